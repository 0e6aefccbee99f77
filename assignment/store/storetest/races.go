package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/seedtest"
	"github.com/slicer-project/slicer/assignment/store"
)

// testRaces lets many proposers write the same generations at once, beside
// readers: each generation has exactly one winner, which is what it proposed.
func testRaces(t *testing.T, h *harness) {
	ctx := t.Context()
	const proposers, readers, generations = 5, 2, 30
	s := h.open()
	h.job(s, "a")
	first := First("a", s.ID(), 1, 8, 200)
	h.write(s, first)
	var winners [generations + 2]atomic.Uint64 // checksums
	winners[1].Store(first.Checksum())
	var seen sync.Map // generation to checksum, as readers saw it
	var done atomic.Bool
	var writing, reading sync.WaitGroup
	for i := range proposers {
		s := h.another(s)
		writing.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 6))
			for {
				prev, err := s.Read(ctx, "a")
				if err != nil {
					t.Error(err)
					return
				}
				if prev.Generation() > generations {
					return
				}
				next := Next(prev, prev.Generation()+1, .05, fmt.Sprintf("proposer-%d", i), rng)
				switch err := s.Write(ctx, next); {
				case err == nil:
					if !winners[next.Generation()].CompareAndSwap(0, next.Checksum()) {
						t.Errorf("generation %d was won twice", next.Generation())
					}
				case !errors.Is(err, store.ErrConflict):
					t.Error(err)
					return
				}
			}
		})
	}
	for range readers {
		s := h.another(s)
		reading.Go(func() {
			var last assignment.Generation
			for !done.Load() {
				a, err := s.Read(ctx, "a")
				if err != nil {
					t.Error(err)
					return
				}
				if a.Generation() < last {
					t.Errorf("generation %d after %d", a.Generation(), last)
				}
				last = a.Generation()
				if before, loaded := seen.LoadOrStore(last, a.Checksum()); loaded && before != a.Checksum() {
					t.Errorf("generation %d was seen with two contents", last)
				}
			}
		})
	}
	writing.Wait()
	done.Store(true)
	reading.Wait()
	for g := assignment.Generation(1); g <= generations+1; g++ {
		a, err := s.ReadGeneration(ctx, "a", g)
		if err != nil {
			t.Fatalf("generation %d: %v", g, err)
		}
		if want := winners[g].Load(); a.Checksum() != want || want == 0 {
			t.Errorf("generation %d has checksum %016x, the winner's is %016x", g, a.Checksum(), want)
		}
		if sum, ok := seen.Load(g); ok && sum != a.Checksum() {
			t.Errorf("generation %d was seen with checksum %016x, it has %016x", g, sum, a.Checksum())
		}
	}
}

// model is what a store should hold.
type model struct {
	jobs    map[string]int64 // version, of those there are
	last    map[string]int64 // version, also of deleted ones
	history map[string][]*assignment.Assignment
	floor   map[string]assignment.Generation
}

// testModel does random things to a store and to a model of it.
func testModel(t *testing.T, h *harness) {
	ctx := t.Context()
	seed := seedtest.Seed(t)
	rng := rand.New(rand.NewPCG(seed, 7))
	handles := []store.Backend{h.open()}
	if h.Shared {
		handles = append(handles, h.open(), h.open())
	}
	m := model{make(map[string]int64), make(map[string]int64), make(map[string][]*assignment.Assignment), make(map[string]assignment.Generation)}
	names := []string{"a", "b", "b-c"}
	for step := range 400 {
		i := rng.IntN(len(handles))
		s, job := handles[i], names[rng.IntN(len(names))]
		version, exists := m.jobs[job]
		history := m.history[job]
		var newest *assignment.Assignment
		if len(history) > 0 {
			newest = history[len(history)-1]
		}
		what := ""
		var err error
		switch op := rng.IntN(100); {
		case op < 8:
			what = "put"
			expect := []int64{store.AnyVersion, store.NoVersion, version, version + 1}[rng.IntN(4)]
			var j store.Job
			j, err = s.PutJob(ctx, assignment.JobConfig{Name: job}, expect)
			if expect == store.AnyVersion || expect == store.NoVersion && !exists || expect == version && exists {
				m.last[job]++
				m.jobs[job] = m.last[job]
				if err == nil && j.Version != m.last[job] {
					t.Errorf("version %d, want %d", j.Version, m.last[job])
				}
			} else {
				h.conflict(err, version)
				err = nil
			}
		case op < 10:
			what = "delete"
			err = s.DeleteJob(ctx, job)
			if !exists {
				h.is(err, store.ErrNotFound)
				err = nil
			} else if newest != nil {
				m.floor[job] = newest.Generation()
			}
			delete(m.jobs, job)
			delete(m.history, job)
		case op < 55:
			what = "write"
			var next *assignment.Assignment
			if newest == nil {
				next = First(job, s.ID(), max(1, m.floor[job]+assignment.Generation(rng.IntN(3))), 5, 50)
			} else {
				next = Next(newest, newest.Generation()+1+assignment.Generation(rng.IntN(2)), .3*rng.Float64(), "x", rng)
			}
			err = s.Write(ctx, next)
			switch {
			case !exists:
				h.is(err, store.ErrNotFound)
				err = nil
			case newest == nil && next.Generation() <= m.floor[job]:
				h.conflict(err, int64(m.floor[job]))
				err = nil
			default:
				m.history[job] = append(history, next)
			}
		case op < 60 && len(history) > 1:
			what = "write on an old one"
			old := history[rng.IntN(len(history)-1)]
			h.conflict(s.Write(ctx, Next(old, newest.Generation()+5, .1, "x", rng)), int64(newest.Generation()))
		case op < 80:
			what = "read"
			var got *assignment.Assignment
			if got, err = s.Read(ctx, job); newest == nil {
				h.is(err, store.ErrNotFound)
				err = nil
			} else if err == nil {
				h.same(got, newest)
			}
		case op < 95 && newest != nil:
			what = "read an old one"
			old := history[max(0, len(history)-1-rng.IntN(h.Keep))]
			h.readsGeneration(s, old)
		case op < 97:
			what = "list"
			var jobs []store.Job
			jobs, err = s.ListJobs(ctx)
			if len(jobs) != len(m.jobs) {
				t.Errorf("%d jobs, want %d", len(jobs), len(m.jobs))
			}
			for _, j := range jobs {
				if m.jobs[j.Config.Name] != j.Version {
					t.Errorf("job %s has version %d, want %d", j.Config.Name, j.Version, m.jobs[j.Config.Name])
				}
			}
		case op >= 99:
			what = "open again"
			h.close(s)
			handles[i] = h.open()
		}
		if err != nil || t.Failed() {
			t.Fatalf("step %d, %s %s: %v", step, what, job, err)
		}
	}
}
