package storetest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
)

// note is an entry about a job's config, not numbered yet.
func note(action string) store.Entry {
	return store.Entry{Action: action, Assigner: "a1", Stamp: Stamp()}
}

// noted is the entry that becomes of it.
func noted(order int64, action string) store.Entry {
	e := note(action)
	e.Order = order
	return e
}

// testNoted makes, changes and deletes a job, with entries in the history.
func testNoted(t *testing.T, h *harness) {
	ctx := t.Context()
	s := h.open()
	other := h.another(s)
	put := func(s store.Store, zone string, expect, version int64, action string) {
		t.Helper()
		j, err := s.PutJobBy(ctx, assignment.JobConfig{Name: "a", Zone: zone, History: 30}, expect, note(action))
		if err != nil || j.Version != version || j.Config.Zone != zone {
			t.Fatalf("%s: %+v, %v", action, j, err)
		}
	}
	for name, e := range map[string]store.Entry{"no action": note(""), "long words": note(strings.Repeat("x", 2000))} {
		if _, err := s.PutJobBy(ctx, assignment.JobConfig{Name: "a"}, store.AnyVersion, e); err == nil || s.DeleteJobBy(ctx, "a", e) == nil {
			t.Errorf("%s is noted", name)
		}
	}
	for _, name := range []string{"a", "", "../x"} {
		h.is(s.DeleteJobBy(ctx, name, note("delete")), store.ErrNotFound)
	}
	_, err := s.History(ctx, "a", 10)
	h.is(err, store.ErrNotFound)

	put(s, "x", store.NoVersion, 1, "create")
	h.controlled(other, "a", store.Overrides{Version: 1})
	if err := other.PutOverrides(ctx, "a", Overrides(2), Order(2), 9); err != nil {
		t.Fatal(err)
	}
	put(s, "y", 1, 2, "change") // it has not heard of the order
	// What is in force stays.
	want := Overrides(2)
	want.Version = 3
	h.controlled(other, "a", want)
	_, err = other.PutJobBy(ctx, assignment.JobConfig{Name: "a"}, 1, note("too late"))
	h.conflict(err, 2)
	first := First("a", s.ID(), 10, 3, 10)
	h.commit(s, first, 3)
	history := []store.Entry{noted(1, "create"), Order(2), noted(3, "change")}
	h.history(other, "a", 10, append(history, Entry(first, 3))...)

	if err := other.DeleteJobBy(ctx, "a", note("delete")); err != nil {
		t.Fatal(err)
	}
	history = append(history, noted(4, "delete"))
	for _, s := range []store.Store{s, other} {
		h.history(s, "a", 10, history...)
		h.history(s, "a", 1, noted(4, "delete"))
		_, err = s.Overrides(ctx, "a")
		h.is(err, store.ErrNotFound)
		h.is(s.DeleteJobBy(ctx, "a", note("again")), store.ErrNotFound)
	}
	h.close(s)
	if s = h.open(); !h.Shared {
		other = s
	}
	put(other, "z", store.AnyVersion, 3, "create again")
	h.controlled(s, "a", store.Overrides{Version: 5})
	h.conflict(s.PutOverrides(ctx, "a", Overrides(5), Order(5), 9), 5)
	h.history(s, "a", 10, append(history, noted(5, "create again"))...)

	// A job that is deleted under a name keeps some of its orders, without one it keeps
	// none.
	for i := range store.KeptOrders {
		put(s, "z", store.AnyVersion, int64(4+i), fmt.Sprint("change ", i))
	}
	if err := s.DeleteJobBy(ctx, "a", note("delete")); err != nil {
		t.Fatal(err)
	}
	all, err := other.History(ctx, "a", 100)
	if err != nil || len(all) != store.KeptOrders || all[0].Action != "change 1" || all[store.KeptOrders-1].Action != "delete" {
		t.Errorf("%d entries, %v", len(all), err)
	}
	h.job(s, "a")
	h.history(other, "a", 100, all...)
	if err := other.DeleteJob(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	_, err = s.History(ctx, "a", 10)
	h.is(err, store.ErrNotFound)
}

// testNotedRaces puts configs and gives orders at once: each is noted, under a number of
// its own.
func testNotedRaces(t *testing.T, h *harness) {
	ctx := t.Context()
	s := h.open()
	const writes = 8
	config := assignment.JobConfig{Name: "a", History: 4 * writes}
	if _, err := s.PutJob(ctx, config, store.NoVersion); err != nil {
		t.Fatal(err)
	}
	order := func(s store.Store) error {
		c, err := s.Overrides(ctx, "a")
		if err != nil {
			return err
		}
		return s.PutOverrides(ctx, "a", Overrides(c.Version+1), Order(c.Version+1), config.History)
	}
	change := func(s store.Store) error {
		_, err := s.PutJobBy(ctx, config, store.AnyVersion, note("change"))
		return err
	}
	var wg sync.WaitGroup
	for _, try := range []func(store.Store) error{order, change, change} {
		s := h.another(s)
		wg.Go(func() {
			for done := 0; done < writes; {
				switch err := try(s); {
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
	all, err := s.History(ctx, "a", 100)
	if err != nil || len(all) != 3*writes {
		t.Errorf("%d entries, %v; want %d", len(all), err, 3*writes)
	}
	for i, e := range all {
		if e.Order != int64(i+1) {
			t.Errorf("entry %d is of order %d", i, e.Order)
		}
	}
	if j, err := s.GetJob(ctx, "a"); err != nil || j.Version != 1+2*writes {
		t.Errorf("version %d, %v", j.Version, err)
	}
}

// deleteNoted deletes a job whose overrides cannot be read.
func (h *harness) deleteNoted(s store.Store, job string) {
	h.Helper()
	ctx := h.Context()
	if err := s.DeleteJobBy(ctx, job, note("delete")); err != nil {
		h.Fatal(err)
	}
	all, err := s.History(ctx, job, 10)
	if len(all) != 1 || all[0].Action != "delete" || err != nil && !errors.Is(err, store.ErrCorrupt) {
		h.Errorf("history %+v, %v", all, err)
	}
}
