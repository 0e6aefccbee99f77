package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
)

// testWatchSays: what a watch says of a job in the end is what is stored.
func testWatchSays(t *testing.T, h *harness) {
	ctx := t.Context()
	s := h.open()
	w, err := h.another(s).Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	says := func(want store.Change) {
		t.Helper()
		for got := (store.Change{}); got != want; {
			all, err := w.Next(ctx)
			if err != nil {
				t.Fatalf("%v, while the watch says %+v, want %+v", err, got, want)
			}
			for _, c := range all {
				got = c
			}
		}
	}
	h.job(s, "a")
	says(store.Change{Job: "a", Version: 1})
	a := First("a", s.ID(), 10, 3, 10)
	h.write(s, a)
	says(store.Change{Job: "a", Version: 1, Generation: 10})
	if err := s.PutOverrides(ctx, "a", Overrides(1), Order(1), 9); err != nil {
		t.Fatal(err)
	}
	says(store.Change{Job: "a", Version: 1, Generation: 10, Overrides: 1})
	if _, err := s.PutJob(ctx, assignment.JobConfig{Name: "a", Zone: "z"}, 1); err != nil {
		t.Fatal(err)
	}
	says(store.Change{Job: "a", Version: 2, Generation: 10, Overrides: 1})
	next := Next(a, 11, .1, "x", rand.New(rand.NewPCG(9, 9)))
	if err := s.Commit(ctx, store.Commit{Next: next, Overrides: 1, Fulfills: true}); err != nil {
		t.Fatal(err)
	}
	says(store.Change{Job: "a", Version: 2, Generation: 11, Overrides: 2})
	late, err := s.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	w = late
	says(store.Change{Job: "a", Version: 2, Generation: 11, Overrides: 2})
	if err := s.DeleteJob(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	says(store.Change{Job: "a"})
}

func testWatch(t *testing.T, h *harness) {
	ctx := t.Context()
	s := h.open()
	watch := func(first ...string) store.Watcher {
		t.Helper()
		w, err := s.Watch(ctx)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		})
		names, err := w.Next(ctx)
		if err != nil || fmt.Sprint(names.Jobs()) != fmt.Sprint(first) {
			t.Fatalf("first %v, %v; want %v", names, err, first)
		}
		return w
	}
	w := watch()
	other := h.another(s)
	h.job(other, "b")
	h.names(w, "b")
	h.job(s, "a")
	h.names(w, "a")
	late := watch("a", "b")
	rng := rand.New(rand.NewPCG(8, 8))
	a := First("a", s.ID(), 1, 5, 50)
	h.write(other, a)
	h.names(w, "a")
	h.names(late, "a")
	for range 5 {
		a = Next(a, a.Generation()+1, .1, "x", rng)
		h.write(s, a)
		h.names(w, "a")
		h.reads(s, a) // what is named can be read
	}
	if _, err := other.PutJob(ctx, assignment.JobConfig{Name: "b", Zone: "z"}, 1); err != nil {
		t.Fatal(err)
	}
	h.names(w, "b")
	if err := other.DeleteJob(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	h.names(w, "a")
	h.names(late, "a", "b")
	_ = watch("b")
}

// testWatchStuckReader writes often before the reader comes back: each job is
// named once or so, not once a write.
func testWatchStuckReader(t *testing.T, h *harness) {
	ctx := t.Context()
	s := h.open()
	w, err := s.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	rng := rand.New(rand.NewPCG(9, 9))
	newest := make(map[string]*assignment.Assignment)
	for round := range 30 {
		for i := range 10 {
			job := fmt.Sprintf("job-%d", i)
			if round == 0 {
				h.job(s, job)
				newest[job] = First(job, s.ID(), 1, 3, 10)
			} else {
				newest[job] = Next(newest[job], newest[job].Generation()+1, .1, "x", rng)
			}
			h.write(s, newest[job])
		}
	}
	h.job(s, "last")
	calls := 0
	for last := false; !last; calls++ {
		names, err := w.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if len(names) > 11 {
			t.Errorf("%d names, there are 11 jobs", len(names))
		}
		for i, name := range names.Jobs() {
			if i > 0 && names[i-1].Job >= name {
				t.Errorf("names out of order: %v", names)
			}
			last = last || name == "last"
		}
	}
	// The changes may arrive while the reader is at it, but not one by one.
	if calls > 150 {
		t.Errorf("%d calls of Next for 300 writes", calls)
	}
	for _, a := range newest {
		h.reads(s, a)
	}
}

func testWatchEnds(t *testing.T, h *harness) {
	s := h.open()
	h.job(s, "a")
	var watchers []store.Watcher
	for range 4 {
		w, err := s.Watch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		watchers = append(watchers, w)
		h.names(w, "a")
	}
	// A reader that gives up finds the watcher as it was.
	ctx, cancel := context.WithCancel(t.Context())
	gaveUp := make(chan error)
	go func() { _, err := watchers[0].Next(ctx); gaveUp <- err }()
	cancel()
	h.is(<-gaveUp, context.Canceled)
	h.job(s, "b")
	h.names(watchers[0], "b")

	var wg sync.WaitGroup
	for i, w := range watchers {
		wg.Go(func() {
			var err error
			for err == nil { // those that have not been told of b are told now
				_, err = w.Next(t.Context())
			}
			if !errors.Is(err, store.ErrClosed) {
				t.Errorf("watcher %d: %v, want %v", i, err, store.ErrClosed)
			}
		})
	}
	if err := watchers[1].Close(); err != nil {
		t.Error(err)
	}
	h.close(s)
	wg.Wait()
	for _, w := range watchers {
		_, err := w.Next(t.Context())
		h.is(err, store.ErrClosed)
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
	_, err := s.Watch(t.Context())
	h.is(err, store.ErrClosed)
}
