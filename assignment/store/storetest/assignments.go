package storetest

import (
	"math/rand/v2"
	"testing"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
)

func testAssignments(t *testing.T, h *harness) {
	s := h.open()
	other := h.another(s)
	h.job(s, "a")
	h.job(s, "a-b") // of which the other is the beginning
	_, err := s.Read(t.Context(), "a")
	h.is(err, store.ErrNotFound)
	_, err = s.ReadGeneration(t.Context(), "a", 1)
	h.is(err, store.ErrNotFound)

	rng := rand.New(rand.NewPCG(1, 1))
	a := First("a", s.ID(), 10, 5, 40)
	b := First("a-b", s.ID(), 7, 3, 4)
	h.write(s, a)
	h.write(s, b)
	h.reads(s, a)
	h.reads(other, a)
	for i := range 20 {
		writer, reader := s, other
		if i%2 == 1 {
			writer, reader = other, s
		}
		a = Next(a, a.Generation()+1+assignment.Generation(rng.IntN(3)), .1, "x", rng)
		h.write(writer, a)
		h.reads(reader, a)
		if i%5 == 0 { // more at once than one has seen
			for range 3 {
				a = Next(a, a.Generation()+1, .1, "x", rng)
				h.write(writer, a)
			}
			h.reads(reader, a)
		}
		h.reads(writer, a)
		h.reads(reader, b)
	}
	if j, err := s.PutJob(t.Context(), assignment.JobConfig{Name: "a", Zone: "z"}, store.AnyVersion); err != nil || j.Version != 2 {
		t.Errorf("%+v, %v", j, err)
	}
	h.reads(other, a)
	h.close(s)
	s = h.open()
	h.reads(s, a)
	h.reads(s, b)
	a = Next(a, a.Generation()+1, .1, "x", rng)
	h.write(s, a)
	h.reads(h.another(s), a)
}

func testRefusals(t *testing.T, h *harness) {
	ctx := t.Context()
	s := h.open()
	rng := rand.New(rand.NewPCG(2, 2))
	first := First("a", s.ID(), 10, 5, 40)
	h.is(s.Write(ctx, first), store.ErrNotFound) // no such job
	h.job(s, "a")
	h.is(s.Write(ctx, First("a", s.ID()+1, 10, 5, 40)), store.ErrConflict)
	h.conflict(s.Write(ctx, Next(first, 11, 0, "x", rng)), 0)
	h.write(s, first)
	h.conflict(s.Write(ctx, first), 10)
	h.conflict(s.Write(ctx, First("a", s.ID(), 11, 5, 40)), 10)
	second := Next(first, 20, .1, "x", rng)
	rival := Next(first, 20, .1, "y", rng)
	late := Next(first, 30, .1, "z", rng)
	h.write(h.another(s), second)
	h.conflict(s.Write(ctx, rival), 20)
	h.conflict(s.Write(ctx, late), 20)
	h.conflict(h.another(s).Write(ctx, late), 20)
	h.reads(s, second)
	if err := s.DeleteJob(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	h.is(s.Write(ctx, Next(second, 40, .1, "x", rng)), store.ErrNotFound)
	h.is(h.another(s).Write(ctx, Next(second, 40, .1, "x", rng)), store.ErrNotFound)
}

func testHistory(t *testing.T, h *harness) {
	ctx := t.Context()
	s := h.open()
	h.job(s, "a")
	rng := rand.New(rand.NewPCG(3, 3))
	a := First("a", s.ID(), 100, 5, 400)
	all := []*assignment.Assignment{a}
	h.write(s, a)
	for i := range h.Keep + 150 {
		if i%40 == 39 {
			a = Shuffled(a, a.Generation()+2, rng)
		} else {
			a = Next(a, a.Generation()+2, .02, "x", rng)
		}
		all = append(all, a)
		h.write(s, a)
	}
	check := func(s store.Store) {
		t.Helper()
		gone := 0
		for i, a := range all {
			got, err := s.ReadGeneration(ctx, "a", a.Generation())
			if err != nil {
				h.is(err, store.ErrNotFound)
				if i != gone {
					t.Fatalf("generation %d of %d is gone, an older one is not", i, len(all))
				}
				gone++
				continue
			}
			h.same(got, a)
			if _, err := s.ReadGeneration(ctx, "a", a.Generation()+1); err == nil {
				t.Errorf("generation %d is there, though it was not written", a.Generation()+1)
			}
		}
		if kept := len(all) - gone; kept < h.Keep || kept > h.Keep+64 {
			t.Errorf("%d generations are kept, want %d or some more", kept, h.Keep)
		}
	}
	check(s)
	check(h.another(s))
	for _, g := range []assignment.Generation{-1, 0, 1, assignment.MaxGeneration, 1<<63 - 1} {
		_, err := s.ReadGeneration(ctx, "a", g)
		h.is(err, store.ErrNotFound)
	}
	h.close(s)
	s = h.open()
	h.reads(s, a)
	check(s)
}

func testDeletedAndMadeAnew(t *testing.T, h *harness) {
	ctx := t.Context()
	s := h.open()
	other := h.another(s)
	rng := rand.New(rand.NewPCG(4, 4))
	h.job(s, "a")
	a := First("a", s.ID(), 100, 5, 40)
	h.write(s, a)
	a = Next(a, 200, .1, "x", rng)
	h.write(s, a)
	h.reads(other, a)
	if err := s.DeleteJob(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	for _, s := range []store.Store{s, other} {
		_, err := s.Read(ctx, "a")
		h.is(err, store.ErrNotFound)
		_, err = s.ReadGeneration(ctx, "a", 200)
		h.is(err, store.ErrNotFound)
	}
	h.job(s, "a")
	for _, s := range []store.Store{s, other} {
		_, err := s.Read(ctx, "a")
		h.is(err, store.ErrNotFound)
		h.conflict(s.Write(ctx, Next(a, 300, .1, "x", rng)), 0)
		h.conflict(s.Write(ctx, First("a", s.ID(), 199, 5, 40)), 200)
		h.conflict(s.Write(ctx, First("a", s.ID(), 200, 5, 40)), 200)
	}
	b := First("a", s.ID(), 201, 4, 30)
	h.write(other, b)
	h.reads(s, b)
	_, err := s.ReadGeneration(ctx, "a", 200)
	h.is(err, store.ErrNotFound)

	// Deleted before anything was written, the floor stays.
	for range 2 {
		if err := other.DeleteJob(ctx, "a"); err != nil {
			t.Fatal(err)
		}
		h.job(s, "a")
	}
	h.close(s)
	if s == other {
		other = h.open()
	}
	h.conflict(other.Write(ctx, First("a", other.ID(), 201, 4, 30)), 201)
	h.write(other, First("a", other.ID(), 202, 4, 30))
}

func testLarge(t *testing.T, h *harness) {
	s := h.open()
	other := h.another(s)
	rng := rand.New(rand.NewPCG(5, 5))
	h.job(s, "a")
	a := First("a", s.ID(), 100, 1000, 100_000)
	h.write(s, a)
	h.reads(other, a)
	for i, next := range []func() *assignment.Assignment{
		func() *assignment.Assignment { return Next(a, a.Generation()+1, .01, "x", rng) },
		func() *assignment.Assignment { return Next(a, a.Generation()+1, .2, "x", rng) }, // a long delta
		func() *assignment.Assignment { return Shuffled(a, a.Generation()+1, rng) },      // as long as the whole
		func() *assignment.Assignment { return Next(a, a.Generation()+1, .01, "x", rng) },
	} {
		old := a
		a = next()
		h.write(s, a)
		h.reads(other, a)
		h.readsGeneration(other, old)
		if i == 1 {
			h.reads(h.another(s), a)
		}
	}
	h.close(s)
	s = h.open()
	h.reads(s, a)
	a = Next(a, a.Generation()+1, .01, "x", rng)
	h.write(s, a)
	h.reads(h.another(s), a)
}
