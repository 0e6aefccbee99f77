package fanout

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment/seedtest"
)

// fleet are Distributors that share the subscribers of a job. A subscriber that is moved
// away is with another one at once.
type fleet struct {
	shares []rebalancer
	here   []int
	moves  int
	at     time.Time
}

func newFleet(here ...int) *fleet {
	f := &fleet{here: here, at: time.UnixMilli(baseGen)}
	for i := range here {
		f.shares = append(f.shares, newRebalancer(fmt.Sprint("d", i), testJob))
	}
	return f
}

func (f *fleet) mean() int {
	all := 0
	for _, n := range f.here {
		all += n
	}
	return (all + len(f.here) - 1) / len(f.here)
}

// run lets time pass; to says where the k-th that is moved away by one goes.
func (f *fleet) run(d time.Duration, known bool, to func(from, k int) int) {
	const step = 100 * time.Millisecond
	for end := f.at.Add(d); f.at.Before(end); f.at = f.at.Add(step) {
		for i := range f.shares {
			s := &f.shares[i]
			s.distributors, s.mean = 0, 0
			if known {
				s.distributors, s.mean = len(f.here), f.mean()
			}
			n, _ := s.look(f.at, f.here[i], false)
			for k := range n {
				f.here[i]--
				f.here[to(i, k)]++
				f.moves++
			}
		}
	}
}

// After a rolling restart the last Distributor has none, and after a partition one may
// have all: subscribers are spread again, none falls below its share, not many more are
// moved than have to be, and then all stay where they are.
func TestShare(t *testing.T) {
	for name, here := range map[string][]int{
		"rolling restart": {225, 75, 0}, "one has all": {1000, 0, 0, 0}, "ten thousand": {10000, 0}, "one of many": {200, 100, 100, 100, 100, 100},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(here...)
			mean, due := f.mean(), 0
			for _, n := range here {
				due += max(n-mean, 0)
			}
			least := append([]int(nil), here...)
			turn := 0
			next := func(from, _ int) int { turn++; return (from + 1 + turn%(len(here)-1)) % len(here) }
			for range 600 {
				f.run(time.Second, true, next)
				for i, n := range f.here {
					if n < min(least[i], mean) {
						t.Fatalf("%v: one is below its share of %d", f.here, mean)
					}
				}
			}
			for _, n := range f.here {
				if n > mean+max(mean/farMore, leastMore) {
					t.Errorf("%v after ten minutes, the mean is %d", f.here, mean)
				}
			}
			moves := f.moves
			if moves == 0 || moves > 2*due {
				t.Errorf("%d were moved, %d had to be", moves, due)
			}
			f.run(time.Hour, true, next)
			if f.moves != moves {
				t.Errorf("%d more were moved in an hour", f.moves-moves)
			}
		})
	}
}

// None is moved away where others are not known, where there are none, where it is not
// worth it, or for a moment's sake.
func TestShareLetsAlone(t *testing.T) {
	nobody := func(int, int) int { t.Error("one is let go"); return 0 }
	newFleet(1000, 0).run(time.Hour, false, nobody)
	newFleet(1000).run(time.Hour, true, nobody)
	newFleet(8, 0).run(time.Hour, true, nobody)
	newFleet(120, 100, 80).run(time.Hour, true, nobody)
	f := newFleet(1000, 0)
	for range 100 {
		f.run(rebalanceAfter-time.Second, true, nobody)
		f.run(time.Second, false, nobody)
	}
}

// If none of the subscribers can be moved there is a rest, and it does not grow.
func TestRebalancerFindsNone(t *testing.T) {
	s := newRebalancer("d0", testJob)
	s.distributors, s.mean = 2, 100
	looks := 0
	for at := epoch; at.Before(epoch.Add(time.Hour)); at = at.Add(100 * time.Millisecond) {
		if n, next := s.look(at, 1000, false); n > 0 {
			looks++
			if next = s.found(at, next, 1000, n, 0); s.moving || next.Sub(at) != RestMin {
				t.Fatalf("moving: %t, rests for %s", s.moving, next.Sub(at))
			}
		}
	}
	if least := int(time.Hour / (RestMin + rebalanceAfter)); looks < least-1 || looks > least+1 {
		t.Errorf("looked %d times in an hour, not about %d", looks, least)
	}
}

// Those that know no other Distributor return. After a few of them there is a pause, each
// time longer, until some stay away.
func TestShareIsOfNoUse(t *testing.T) {
	f := newFleet(1000, 0)
	back := func(from, _ int) int { return from }
	f.run(10*time.Hour, true, back)
	if f.moves < 10 || f.moves > 300 {
		t.Errorf("%d were let go in ten hours although all came back", f.moves)
	}
	f.run(2*time.Hour, true, func(from, _ int) int { return 1 - from })
	if f.here[0] > 600 || f.shares[0].rest != 0 {
		t.Errorf("%v two hours after there is somewhere to go", f.here)
	}
}

// Whatever there is to begin with and wherever those go that are moved away, it comes to
// an end, with none below its share.
func TestShareSettles(t *testing.T) {
	rng := rand.New(rand.NewPCG(seedtest.Seed(t), 0))
	for range seedtest.Cases(60) {
		here := make([]int, 2+rng.IntN(6))
		for i := range here {
			here[i] = rng.IntN(400)
		}
		began := append([]int(nil), here...)
		f := newFleet(here...)
		anywhere := func(from, _ int) int { return (from + 1 + rng.IntN(len(here)-1)) % len(here) }
		f.run(30*time.Minute, true, anywhere)
		moves := f.moves
		f.run(30*time.Minute, true, anywhere)
		for i, n := range f.here {
			if n > f.mean()+max(f.mean()/farMore, leastMore) || n < min(began[i], f.mean()) {
				t.Errorf("from %v to %v", began, f.here)
			}
		}
		if f.moves != moves {
			t.Errorf("from %v to %v, and on it goes", began, f.here)
		}
	}
}
