package storetest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
)

// Names are names of a version that are held in every way.
func Names(version int64) store.Names {
	return store.Names{Version: version, AsOf: assignment.Generation(version), Held: []store.Held{
		{Task: "task-1", Identity: "spiffe://corp/cache/task/task-1"}, {Task: "task-2", Identity: "spiffe://corp/cache/task/task-2"},
		{Task: "task-3", Identity: "spiffe://corp/cache/all"}, {Task: "task-4", Identity: "spiffe://corp/cache/all"},
		{Task: "task-5", Identity: "host.corp"}, {Task: "task-6", Identity: "anonymous"}, {Task: "task-7", Identity: fmt.Sprint("spiffe://corp/v", version)},
	}}
}

// named checks what the names are.
func (h *harness) named(s store.Store, job string, want store.Names) {
	h.Helper()
	got, err := s.Names(h.Context(), job)
	if err != nil || cmp.Diff(want, got, cmpopts.EquateEmpty()) != "" {
		h.Errorf("names: %v, %s", err, cmp.Diff(want, got, cmpopts.EquateEmpty()))
	}
}

func (h *harness) name(s store.Store, job string, version int64) {
	h.Helper()
	if err := s.PutNames(h.Context(), job, Names(version)); err != nil {
		h.Fatal(err)
	}
}

func testNames(t *testing.T, h *harness) {
	ctx := t.Context()
	s := h.open()
	for _, name := range []string{"", "a/b", "../x", "a"} {
		_, err := s.Names(ctx, name)
		h.is(err, store.ErrNotFound)
		h.is(s.PutNames(ctx, name, Names(1)), store.ErrNotFound)
	}
	h.job(s, "a")
	other := h.another(s)
	h.named(s, "a", store.Names{})
	h.conflict(s.PutNames(ctx, "a", Names(2)), 0)
	for why, change := range map[string]func(*store.Names){
		"no version":        func(n *store.Names) { n.Version = 0 },
		"no order":          func(n *store.Names) { n.Held[0], n.Held[1] = n.Held[1], n.Held[0] },
		"one twice":         func(n *store.Names) { n.Held[1] = n.Held[0] },
		"no name of a task": func(n *store.Names) { n.Held[0].Task = "a b" },
		"no identity":       func(n *store.Names) { n.Held[0].Identity = "" },
		"a wrong number":    func(n *store.Names) { n.AsOf = -1 },
		"what is none":      func(n *store.Names) { n.Held[0].Identity = "spiffe://corp/{task}" },
		"too many": func(n *store.Names) {
			n.Held = nil
			for i := range 5000 {
				n.Held = append(n.Held, store.Held{Task: fmt.Sprintf("%s%05d", strings.Repeat("x", 240), i), Identity: "anonymous"})
			}
		},
	} {
		n := Names(1)
		change(&n)
		if err := s.PutNames(ctx, "a", n); err == nil || errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%s: %v", why, err)
		}
	}
	h.named(s, "a", store.Names{})
	h.name(s, "a", 1)
	h.named(other, "a", Names(1))
	h.name(other, "a", 2)
	h.conflict(s.PutNames(ctx, "a", Names(2)), 2)
	h.conflict(s.PutNames(ctx, "a", Names(4)), 2)
	h.named(s, "a", Names(2))
	h.close(s)
	if s = h.open(); !h.Shared {
		other = s
	}
	h.named(s, "a", Names(2))
	full := store.Names{Version: 3}
	for i := range 4000 {
		full.Held = append(full.Held, store.Held{Task: fmt.Sprintf("%s%05d", strings.Repeat("x", 240), i), Identity: "anonymous"})
	}
	if err := s.PutNames(ctx, "a", full); err != nil {
		t.Errorf("%d bytes: %v", full.Size(), err)
	}
	h.named(other, "a", full)

	// They go with the job, and those that were left behind do not come back with it.
	for _, remove := range []func() error{
		func() error { return s.DeleteJob(ctx, "a") },
		func() error { return other.DeleteJobBy(ctx, "a", note("delete")) },
	} {
		if err := remove(); err != nil {
			t.Fatal(err)
		}
		_, err := s.Names(ctx, "a")
		h.is(err, store.ErrNotFound)
		h.is(other.PutNames(ctx, "a", Names(3)), store.ErrNotFound)
		h.job(s, "a")
		h.named(s, "a", store.Names{})
		h.named(other, "a", store.Names{})
		h.name(s, "a", 1)
	}
}

// testNamesLeft: a process that does not know of names deletes a job without them.
func testNamesLeft(t *testing.T, h *harness) {
	s := h.open()
	h.job(s, "a")
	h.name(s, "a", 1)
	h.close(s)
	raw, err := h.Raw()
	if err != nil {
		t.Fatal(err)
	}
	keys, err := raw.Keys()
	for _, key := range keys {
		if strings.HasSuffix(key, "jobs/a/config") {
			err = errors.Join(err, raw.Delete(key))
		}
	}
	if err := errors.Join(err, raw.Close()); err != nil {
		t.Fatal(err)
	}
	s = h.open()
	_, err = s.Names(t.Context(), "a")
	h.is(err, store.ErrNotFound)
	h.job(s, "a")
	h.named(s, "a", store.Names{})
}

// testNamesRaces: of several that follow the same names one is stored.
func testNamesRaces(t *testing.T, h *harness) {
	ctx := t.Context()
	s := h.open()
	h.job(s, "a")
	const writes, writers = 8, 3
	var wg sync.WaitGroup
	for i := range writers {
		s := h.another(s)
		wg.Go(func() {
			for done := 0; done < writes; {
				n, err := s.Names(ctx, "a")
				if err == nil {
					err = s.PutNames(ctx, "a", store.Names{Version: n.Version + 1, Held: append([]store.Held{{Task: fmt.Sprintf("%03d-%d", 100-n.Version, i), Identity: "x"}}, n.Held...)})
				}
				switch {
				case err == nil:
					done++
				case !errors.Is(err, store.ErrConflict):
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if n, err := s.Names(ctx, "a"); err != nil || n.Version != writes*writers || len(n.Held) != writes*writers {
		t.Errorf("version %d of %d names, %v", n.Version, len(n.Held), err)
	}
	if _, err := s.PutJob(ctx, assignment.JobConfig{Name: "a"}, 1); err != nil {
		t.Error(err) // names change no version of the job
	}
	h.name(s, "a", writes*writers+1)
}
