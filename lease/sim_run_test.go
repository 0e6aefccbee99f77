package lease_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/seedtest"
	"github.com/slicer-project/slicer/lease/internal/table"
)

var (
	simSeed = flag.Uint64("sim.seed", 0, "run only the simulation of this seed")
	simRuns = flag.Int("sim.runs", 200, "how many simulations to run")
)

// simulate runs one history, faults first and then none, and returns what it broke.
func simulate(seed uint64, w wrong) (steps int, err error) {
	s := &sim{rng: rand.New(rand.NewPCG(seed, 4)), wrong: w, store: table.New(0), owners: map[assignment.Generation][simKeys]int{}}
	for n := range 3 {
		r := &reader{n: n}
		s.readers = append(s.readers, r)
		s.start(r)
		s.after(s.delay(), func() { s.keep(r) })
		s.after(s.delay(), func() { s.watch(r) })
	}
	for range 2 {
		w := &writer{}
		s.writers = append(s.writers, w)
		s.after(s.delay(), func() { s.write(w) })
	}
	s.trouble()
	s.run(2 * time.Second)
	s.calm = true
	for _, r := range s.readers {
		s.start(r)
	}
	s.run(3 * time.Second)
	s.newest++ // with this one all is done with that was left
	s.owners[s.newest] = s.assign()
	s.run(4 * time.Second)
	if s.err != nil {
		return s.changes, s.err
	}
	for _, r := range s.readers {
		if r.holding.Guard != s.newest || s.now >= r.deadline {
			return s.changes, &violation{"I3", fmt.Sprintf("reader %d holds %+v, the newest generation is %d, the records are %+v", r.n, r.holding, s.newest, s.store.State(simJob))}
		}
	}
	return s.changes, nil
}

func (s *sim) run(until time.Duration) {
	for s.err == nil {
		i := 0
		for j := range s.queue {
			if s.queue[j].at < s.queue[i].at {
				i = j
			}
		}
		m := s.queue[i]
		if m.at > until {
			return
		}
		s.queue = slices.Delete(s.queue, i, i+1)
		s.now = m.at
		m.do()
		s.check()
	}
}

func TestSimulation(t *testing.T) {
	if *simSeed != 0 {
		steps, err := simulate(*simSeed, wrong{})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d steps", steps)
		return
	}
	base, total := seedtest.Seed(t), 0
	for i := range uint64(*simRuns) {
		steps, err := simulate(base+i, wrong{})
		if err != nil {
			t.Fatalf("%v\nagain: go test ./lease -run TestSimulation -sim.seed=%d", err, base+i)
		}
		total += steps
	}
	t.Logf("%d histories from seed %d, %d steps of assigners: no violation", *simRuns, base, total)
}

func TestSimulationNoticesWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		name  string
		wrong wrong
		want  string
		from  uint64 // the first seed: some break but one history in a thousand
	}{
		{"acquire that does not compare the record", wrong{blindAcquire: true}, "I1", 1},
		{"guard rewritten while it has readers", wrong{noReadersCheck: true}, "I1", 1},
		{"deadline after the store's", wrong{lateDeadline: true}, "I1", 1},
		{"believing on after the release", wrong{releaseFirst: true}, "I1", 1},
		{"answers to an old session count", wrong{oldAnswers: true}, "I1", 4300},
		{"letting go before holding the next", wrong{letGo: true}, "I2", 1},
		{"joining again before what was left is released", wrong{joinsAtOnce: true}, "I1", 200},
		{"forgetting what may yet be acquired", wrong{forgetsLeft: true}, "I3", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := c.from; seed < c.from+3000; seed++ {
				_, err := simulate(seed, c.wrong)
				var v *violation
				if errors.As(err, &v) && v.what == c.want {
					t.Logf("seed %d: %v", seed, err)
					return
				}
			}
			t.Errorf("3000 histories, and %s was not seen to be broken", c.want)
		})
	}
}
