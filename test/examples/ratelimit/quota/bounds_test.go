package quota

import (
	"flag"
	"math"
	"testing"
	"time"
)

var (
	firstSeed = flag.Uint64("quota.seed", 1, "first seed of the simulation")
	seeds     = flag.Uint64("quota.seeds", 1, "how many seeds of the simulation")
)

// scenario is what happens to a limit, and what has to hold for what is let in over any 10 s
// afterwards, as parts of what the limit allows.
type scenario struct {
	name string
	// prepare changes a world of which each frontend is asked for so much.
	prepare func(w *world, demand float64)
	from    time.Duration // of the windows
	least   float64
	most    float64
}

func demands(f func(i int, now time.Duration) float64) func(*world, float64) {
	return func(w *world, demand float64) {
		for i, front := range w.fronts {
			front.demand = func(now time.Duration) float64 { return demand * f(i, now) }
		}
	}
}

func and(prepare func(*world, float64), do func(*world)) func(*world, float64) {
	return func(w *world, demand float64) {
		prepare(w, demand)
		do(w)
	}
}

var even = demands(func(int, time.Duration) float64 { return 1 })

var scenarios = []scenario{
	{"calm", even, 15 * time.Second, .95, 1.02},
	{"start", even, 0, .9, 1.1},
	// Some frontends are asked for more than others, up to twice the mean.
	{"uneven", func(w *world, demand float64) {
		demands(func(i int, _ time.Duration) float64 { return 2 * (float64(i) + .5) / float64(len(w.fronts)) })(w, demand)
	}, 15 * time.Second, .95, 1.02},
	// Every 10 s the half of the frontends that had most of the demand has little.
	{"shift", demands(func(i int, now time.Duration) float64 {
		if (int(now/(10*time.Second))+i)%2 == 0 {
			return 1.8
		}
		return .2
	}), 15 * time.Second, .9, 1.1},
	{"move", and(even, func(w *world) {
		w.at(25*time.Second, w.move)
		w.at(26*time.Second, w.move)
		w.at(45*time.Second, w.move)
	}), 15 * time.Second, .9, 1.1},
	// Nothing that an owner has known is left, and for 5 s there is none.
	{"crash", and(even, func(w *world) {
		w.at(30*time.Second, func() { w.crash(5 * time.Second) })
		w.at(45*time.Second, func() { w.crash(0) })
	}), 15 * time.Second, .9, 1.1},
	// A twentieth of the messages is lost, and as many take up to half a second.
	{"losses", and(even, func(w *world) { w.loss, w.slow = .05, .05 }), 15 * time.Second, .85, 1.1},
	// There is no owner for longer than a Share is held: frontends are asked equally.
	{"none", and(even, func(w *world) { w.at(20*time.Second, func() { w.owner.up = false }) }), 15 * time.Second, .85, 1.1},
}

// TestBounds simulates frontends and owners, and looks at what is let in over any 10 s. A
// frontend lets in whole requests: what that makes is two requests of each more or less.
func TestBounds(t *testing.T) {
	for _, c := range []struct {
		frontends  int
		per, times float64
	}{{1, 20, 2}, {3, 20, 2}, {20, 20, 1.5}, {20, 5, 3}, {5, 50, 1.2}} {
		rate := c.per * float64(c.frontends)
		slack := 2 * float64(c.frontends) / (rate * window.Seconds())
		for _, s := range scenarios {
			if s.name == "shift" && c.frontends == 1 {
				continue
			}
			least, most := math.Inf(1), 0.
			for seed := *firstSeed; seed < *firstSeed+*seeds; seed++ {
				w := newWorld(seed, Limit{Rate: rate, Burst: max(1, rate/10)}, c.frontends)
				s.prepare(w, c.per*c.times)
				w.run(60 * time.Second)
				low, high := w.bounds(s.from, 60*time.Second, 1.1)
				if low < s.least-slack || high > s.most+slack {
					t.Errorf("%s, %+v, seed %d: %.3f to %.3f of the rate over 10 s, want %.3f to %.3f", s.name, c, seed, low, high, s.least-slack, s.most+slack)
				}
				if w.lent > rate*(1+1e-9) {
					t.Errorf("%s, %+v, seed %d: %.1f of %.1f a second is lent", s.name, c, seed, w.lent, rate)
				}
				least, most = min(least, low), max(most, high)
			}
			t.Logf("%-7s %+v: %.3f to %.3f", s.name, c, least, most)
		}
	}
}

// Frontends that are cut off go on with what they have for as long as they hold it, and that
// is all that is let in too much.
func TestCutOff(t *testing.T) {
	w := newWorld(*firstSeed, Limit{Rate: 400, Burst: 40}, 20)
	even(w, 40)
	w.at(20*time.Second, func() {
		for _, f := range w.fronts[:5] {
			f.cut = true
		}
	})
	w.run(60 * time.Second)
	least, most := w.bounds(15*time.Second, 60*time.Second, 1.1)
	if least < .9 || most < 1.15 || most > 1.35 {
		t.Errorf("%.3f to %.3f of the rate over 10 s with a quarter of the frontends cut off, want .9 to 1.35", least, most)
	}
	// Then each of the five has a twentieth, as a frontend without an owner.
	if _, most := w.bounds(45*time.Second, 60*time.Second, 1.1); most < 1.2 || most > 1.27 {
		t.Errorf("%.3f of the rate in the end, want 1.25", most)
	}
}

// Where less is asked for than is allowed, all is let in.
func TestUnder(t *testing.T) {
	w := newWorld(*firstSeed, Limit{Rate: 400, Burst: 40}, 20)
	even(w, 12)
	w.run(60 * time.Second)
	asked, admitted := 0., 0.
	for i := range w.asked {
		asked, admitted = asked+w.asked[i], admitted+w.admitted[i]
	}
	if part := admitted / asked; part < .98 {
		t.Errorf("%.3f of what is asked for is let in, at 60 %% of what is allowed", part)
	}
}
