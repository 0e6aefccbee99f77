package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
)

// calls are all that a handle offers, by name.
func calls(s store.Backend, next *assignment.Assignment) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"GetJob":   func(ctx context.Context) error { _, err := s.GetJob(ctx, "a"); return err },
		"ListJobs": func(ctx context.Context) error { _, err := s.ListJobs(ctx); return err },
		"PutJob": func(ctx context.Context) error {
			_, err := s.PutJob(ctx, assignment.JobConfig{Name: "a"}, 0)
			return err
		},
		"PutJobBy": func(ctx context.Context) error {
			_, err := s.PutJobBy(ctx, assignment.JobConfig{Name: "a"}, 0, note("x"))
			return err
		},
		"DeleteJobBy":    func(ctx context.Context) error { return s.DeleteJobBy(ctx, "a", note("x")) },
		"DeleteJob":      func(ctx context.Context) error { return s.DeleteJob(ctx, "a") },
		"Read":           func(ctx context.Context) error { _, err := s.Read(ctx, "a"); return err },
		"ReadGeneration": func(ctx context.Context) error { _, err := s.ReadGeneration(ctx, "a", 1); return err },
		"Write":          func(ctx context.Context) error { return s.Write(ctx, next) },
		"Names":          func(ctx context.Context) error { _, err := s.Names(ctx, "a"); return err },
		"PutNames":       func(ctx context.Context) error { return s.PutNames(ctx, "a", Names(1)) },
		"Watch":          func(ctx context.Context) error { _, err := s.Watch(ctx); return err },
		"Candidates":     func(ctx context.Context) error { _, err := s.Candidates(ctx); return err },
		"Register": func(ctx context.Context) error {
			_, err := s.Register(ctx, store.Candidate{ID: "a", Address: "h:1"})
			return err
		},
	}
}

// testContexts checks that a call whose ctx has ended does nothing and says why.
func testContexts(t *testing.T, h *harness) {
	s := h.open()
	h.job(s, "a")
	a := First("a", s.ID(), 1, 3, 10)
	late, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	for name, call := range calls(s, a) {
		if err := call(canceled(t.Context())); err == nil {
			t.Errorf("%s: no error", name)
		} else {
			h.is(err, context.Canceled)
		}
		err := call(late)
		h.is(err, context.DeadlineExceeded)
		h.is(err, store.ErrUnavailable)
	}
	if j, err := s.GetJob(t.Context(), "a"); err != nil || j.Version != 1 {
		t.Errorf("job %+v, %v", j, err)
	}
	_, err := s.Read(t.Context(), "a")
	h.is(err, store.ErrNotFound)
}

func testClosed(t *testing.T, h *harness) {
	s := h.open()
	h.job(s, "a")
	a := First("a", s.ID(), 1, 3, 10)
	h.write(s, a)
	h.close(s)
	h.close(s)
	for name, call := range calls(s, a) {
		if err := call(t.Context()); err == nil {
			t.Errorf("%s: no error", name)
		} else {
			h.is(err, store.ErrClosed)
		}
	}
	h.reads(h.open(), a)
}

// candidates reads views until one is want, and returns its revision.
func (h *harness) candidates(w store.CandidateWatcher, after int64, want ...store.Candidate) int64 {
	h.Helper()
	for {
		got, rev, err := w.Next(h.Context())
		if err != nil {
			h.Fatalf("next: %v, still waiting for %v", err, want)
		}
		if rev <= after {
			h.Errorf("revision %d after %d", rev, after)
		}
		after = rev
		if len(got)+len(want) == 0 || cmp.Equal(got, want) {
			return rev
		}
	}
}

func testRegistry(t *testing.T, h *harness) {
	ctx := t.Context()
	s := h.open()
	other := h.another(s)
	w, err := s.Candidates(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	rev := h.candidates(w, 0) // the first view at once
	register := func(s store.Registry, c store.Candidate) store.Registration {
		t.Helper()
		r, err := s.Register(ctx, c)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	withdraw := func(r store.Registration) {
		t.Helper()
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []store.Candidate{{}, {ID: "a/b", Address: "h:1"}, {ID: "a"}} {
		if _, err := s.Register(ctx, bad); !isField(err) {
			t.Errorf("%+v: error %v, want a field error", bad, err)
		}
	}
	b := store.Candidate{ID: "b", Address: "h:2", Zone: "z"}
	a := store.Candidate{ID: "a", Address: "h:1"}
	rb := register(other, b)
	rev = h.candidates(w, rev, b)
	ra := register(s, a)
	rev = h.candidates(w, rev, a, b)
	late, err := other.Candidates(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	if h.candidates(late, 0, a, b) < rev {
		t.Error("a later view has an older revision")
	}
	// Another of the same id takes the entry over, and keeps it when the first goes.
	a2 := store.Candidate{ID: "a", Address: "h:3"}
	ra2 := register(other, a2)
	rev = h.candidates(w, rev, a2, b)
	withdraw(ra)
	withdraw(rb)
	rev = h.candidates(w, rev, a2)
	withdraw(ra2)
	withdraw(ra2)
	h.candidates(w, rev)
	if h.candidates(late, 0) < rev {
		t.Error("a later view has an older revision")
	}
}

// testCheck checks a store that works, and one that is closed.
func testCheck(t *testing.T, h *harness) {
	s := h.open()
	for _, write := range []bool{false, true} {
		if err := s.Check(t.Context(), write); err != nil {
			t.Errorf("write %t: %v", write, err)
		}
		h.is(s.Check(canceled(t.Context()), write), context.Canceled)
	}
	h.job(s, "j") // nothing is in the way of what is made later
	r, err := s.Register(t.Context(), store.Candidate{ID: "a", Address: "h:1"})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := r.State(); n != 0 || err != nil {
		t.Errorf("a new registration: written anew %d times, %v", n, err)
	}
	h.close(s)
	for _, write := range []bool{false, true} {
		h.is(s.Check(t.Context(), write), store.ErrClosed)
	}
}

// testRegistryEnds closes a handle that has registrations and watchers.
func testRegistryEnds(t *testing.T, h *harness) {
	s := h.open()
	registrar := h.another(s)
	w, err := registrar.Candidates(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	rev := h.candidates(w, 0)
	var all []store.Candidate
	var regs []store.Registration
	for i := range 5 {
		c := store.Candidate{ID: fmt.Sprint(i), Address: "h:1"}
		r, err := s.Register(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		all, regs = append(all, c), append(regs, r)
	}
	rev = h.candidates(w, rev, all...)
	own, err := s.Candidates(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	h.candidates(own, 0, all...)
	h.close(s)
	for _, r := range regs {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	if registrar != s {
		h.candidates(w, rev)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	for _, w := range []store.CandidateWatcher{w, own} {
		_, _, err := w.Next(t.Context())
		h.is(err, store.ErrClosed)
	}
	if err := own.Close(); err != nil {
		t.Error(err)
	}
}
