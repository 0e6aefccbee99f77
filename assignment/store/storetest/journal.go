package storetest

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
)

// commit writes a with its entry, under overrides of a version.
func (h *harness) commit(s store.Store, a *assignment.Assignment, version int64) {
	h.Helper()
	e := Entry(a, version)
	if err := s.Commit(h.Context(), store.Commit{Next: a, Overrides: orNone(version), Entry: &e, Keep: 50}); err != nil {
		h.Fatalf("commit %v: %v", a, err)
	}
}

func orNone(version int64) int64 {
	if version == 0 {
		return store.NoVersion
	}
	return version
}

// controlled checks what the overrides are.
func (h *harness) controlled(s store.Store, job string, want store.Overrides) {
	h.Helper()
	got, err := s.Overrides(h.Context(), job)
	if err != nil || cmp.Diff(want, got, cmpopts.EquateEmpty()) != "" {
		h.Errorf("overrides: %v, %s", err, cmp.Diff(want, got, cmpopts.EquateEmpty()))
	}
}

// history checks what is in it.
func (h *harness) history(s store.Store, job string, limit int, want ...store.Entry) {
	h.Helper()
	got, err := s.History(h.Context(), job, limit)
	if err != nil || cmp.Diff(want, got, cmpopts.EquateEmpty()) != "" {
		h.Errorf("history: %v, %s", err, cmp.Diff(want, got, cmpopts.EquateEmpty()))
	}
}

func testOverrides(t *testing.T, h *harness) {
	ctx := t.Context()
	s := h.open()
	for _, name := range []string{"", "a/b", "../x", "a"} {
		_, err := s.Overrides(ctx, name)
		h.is(err, store.ErrNotFound)
		_, err = s.History(ctx, name, 10)
		h.is(err, store.ErrNotFound)
		h.is(s.PutOverrides(ctx, name, Overrides(1), Order(1), 9), store.ErrNotFound)
	}
	h.job(s, "a")
	w, err := s.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	h.names(w, "a")
	h.controlled(s, "a", store.Overrides{})
	h.history(s, "a", 10)
	other := h.another(s)
	h.conflict(s.PutOverrides(ctx, "a", Overrides(2), Order(2), 9), 0)
	for name, c := range map[string]func(*store.Overrides, *store.Entry){
		"no number":     func(c *store.Overrides, e *store.Entry) { c.Version, e.Order = 0, 0 },
		"another entry": func(_ *store.Overrides, e *store.Entry) { e.Order = 2 },
		"overlap":       func(c *store.Overrides, _ *store.Entry) { c.Pins[1].Slice.Start-- },
		"no action":     func(_ *store.Overrides, e *store.Entry) { e.Action = "" },
		"long words":    func(_ *store.Overrides, e *store.Entry) { e.Why = string(make([]byte, 600)) },
	} {
		next, e := Overrides(1), Order(1)
		if c(&next, &e); s.PutOverrides(ctx, "a", next, e, 9) == nil {
			t.Errorf("%s is put", name)
		}
	}
	h.controlled(s, "a", store.Overrides{})
	put := func(s store.Store, version int64) {
		t.Helper()
		if err := s.PutOverrides(ctx, "a", Overrides(version), Order(version), 3); err != nil {
			t.Fatal(err)
		}
	}
	put(s, 1)
	h.names(w, "a")
	h.controlled(s, "a", Overrides(1))
	h.controlled(other, "a", Overrides(1))
	put(other, 2)
	h.names(w, "a")
	h.conflict(s.PutOverrides(ctx, "a", Overrides(2), Order(2), 9), 2)
	put(s, 3)
	put(s, 4)
	put(other, 5)
	h.history(s, "a", 10, Order(3), Order(4), Order(5))
	h.history(other, "a", 2, Order(4), Order(5))
	h.close(s)
	if other == s {
		other = h.open()
	}
	h.controlled(other, "a", Overrides(5))
	h.history(other, "a", 10, Order(3), Order(4), Order(5))
	put(other, 6)
}

func testOverridesDeleted(t *testing.T, h *harness) {
	ctx := t.Context()
	s := h.open()
	other := h.another(s)
	h.job(s, "a")
	if err := s.PutOverrides(ctx, "a", Overrides(1), Order(1), 9); err != nil {
		t.Fatal(err)
	}
	a := First("a", s.ID(), 10, 3, 10)
	h.commit(other, a, 1)
	if err := other.DeleteJob(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	_, err := s.Overrides(ctx, "a")
	h.is(err, store.ErrNotFound)
	h.is(s.PutOverrides(ctx, "a", Overrides(2), Order(2), 9), store.ErrNotFound)
	h.job(s, "a")
	h.history(s, "a", 10)
	// What was decided under the orders of the job that was is not stored for the
	// one that is.
	next := First("a", s.ID(), 20, 3, 10)
	for _, s := range []store.Store{s, other} {
		h.is(s.Commit(ctx, store.Commit{Next: next, Overrides: 1}), store.ErrConflict)
		h.is(s.PutOverrides(ctx, "a", Overrides(2), Order(2), 9), store.ErrConflict)
	}
	now, err := s.Overrides(ctx, "a")
	if err != nil || now.Version < 2 || now.Freeze != nil || len(now.Pins) != 0 {
		t.Errorf("overrides %+v, %v of a job made anew", now, err)
	}
	h.commit(other, next, now.Version)
	if err := other.PutOverrides(ctx, "a", Overrides(now.Version+1), Order(now.Version+1), 9); err != nil {
		t.Error(err)
	}
	h.controlled(s, "a", Overrides(now.Version+1))
}

func testControlRaces(t *testing.T, h *harness) {
	ctx := t.Context()
	s := h.open()
	h.job(s, "a")
	const writers, writes = 4, 6
	h.race(s, writers, writes, func(s store.Store) (int64, error) {
		c, err := s.Overrides(ctx, "a")
		if err != nil {
			return 0, err
		}
		order := c.Version + 1
		return order, s.PutOverrides(ctx, "a", Overrides(order), Order(order), 100)
	})
	if all, err := s.History(ctx, "a", 100); err != nil || len(all) != writers*writes {
		t.Errorf("%d entries, %v", len(all), err)
	}
}

// testCommits writes under overrides that are those in force, and others.
func testCommits(t *testing.T, h *harness) {
	ctx := t.Context()
	s := h.open()
	other := h.another(s)
	h.job(s, "a")
	rng := rand.New(rand.NewPCG(1, 2))
	first := First("a", s.ID(), 10, 3, 10)
	e := Entry(first, 0)
	h.conflict(s.Commit(ctx, store.Commit{Next: first, Overrides: 1, Entry: &e, Keep: 9}), 0)
	h.commit(s, first, 0)
	if err := other.PutOverrides(ctx, "a", Overrides(1), Order(1), 9); err != nil {
		t.Fatal(err)
	}
	second := Next(first, 11, .1, "x", rng)
	e2 := Entry(second, 0)
	// Decided before the order, and stored after it: no.
	h.conflict(s.Commit(ctx, store.Commit{Next: second, Overrides: store.NoVersion, Entry: &e2, Keep: 9}), 1)
	h.reads(s, first)
	h.history(s, "a", 10, e, Order(1))
	for name, c := range map[string]store.Commit{
		"fulfils nothing that it names": {Next: second, Fulfills: true},
		"another's entry":               {Next: second, Overrides: 1, Entry: &e, Keep: 9},
		"an order for an entry":         {Next: second, Overrides: 1, Entry: &store.Entry{Order: 1, Action: "x", Stamp: Stamp()}, Keep: 9},
	} {
		if err := s.Commit(ctx, c); err == nil || errors.Is(err, store.ErrConflict) {
			t.Errorf("%s: %v", name, err)
		}
	}
	e2 = Entry(second, 1)
	if err := other.Commit(ctx, store.Commit{Next: second, Overrides: 1, Fulfills: true, Entry: &e2, Keep: 9}); err != nil {
		t.Fatal(err)
	}
	for _, s := range []store.Store{s, other} {
		h.reads(s, second)
		h.controlled(s, "a", Overrides(1).Fulfilled())
		h.history(s, "a", 10, e, Order(1), e2)
	}
	third := Next(second, 12, .1, "x", rng)
	h.conflict(s.Commit(ctx, store.Commit{Next: third, Overrides: 1}), 2)
	h.commit(s, third, 2)
	// A write that does not compare works as before, and does not change the history.
	h.write(other, Next(third, 13, .1, "x", rng))
	h.history(s, "a", 10, e, Order(1), e2, Entry(third, 2))
}

// testHistoryRing keeps as many as is asked for, of entries that are too long no
// more than fits, and says how much was left out.
func testHistoryRing(t *testing.T, h *harness) {
	ctx := t.Context()
	s := h.open()
	h.job(s, "a")
	rng := rand.New(rand.NewPCG(1, 2))
	a := First("a", s.ID(), 1, 3, 10)
	var all []store.Entry
	for i := range 90 {
		e := Entry(a, 0)
		if i == 85 {
			e.Decisions = slices.Repeat(e.Decisions, 1500)
		}
		keep := 70
		if i >= 80 {
			keep = 8
		}
		if err := s.Commit(ctx, store.Commit{Next: a, Overrides: store.NoVersion, Entry: &e, Keep: keep}); err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
		if i == 79 {
			h.history(s, "a", 1000, all[10:]...)
			h.history(s, "a", 65, all[15:]...)
		}
		a = Next(a, a.Generation()+1, .1, "x", rng)
	}
	got, err := s.History(ctx, "a", 1000)
	if err != nil || len(got) != 8 || got[0].Generation != all[82].Generation || got[7].Generation != all[89].Generation {
		t.Fatalf("%d entries, %v", len(got), err)
	}
	if long := got[3]; len(long.Decisions) < 50 || long.LeftOut != 2+3000-len(long.Decisions) {
		t.Errorf("of 3000 decisions %d are kept and %d left out", len(long.Decisions), long.LeftOut)
	}
}
