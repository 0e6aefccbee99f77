package overload

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// others take the CPU as a scheduler gives it to them: the process runs for a slice, then they
// do, in turns, and it waits for its turn too when it has slept. Now and then they keep it from
// the CPU for longer.
type others struct {
	rng         *rand.Rand
	slice, away time.Duration
	stall       time.Duration // up to so long, in one of so many turns
	oneOf       int
	left        time.Duration // of the slice
}

func (o *others) turn() time.Duration {
	o.left = o.slice
	if o.oneOf > 0 && o.rng.IntN(o.oneOf) == 0 {
		return time.Duration(o.rng.Int64N(int64(o.stall)))
	}
	return o.away
}

// wake is how long the process waits that has slept for so long.
func (o *others) wake(slept time.Duration) time.Duration {
	if slept < o.away {
		return 0
	}
	return time.Duration(o.rng.Int64N(int64(o.turn() + 1)))
}

// compute takes CPU time.
func (c *core) compute(d time.Duration) {
	for c.computed += d; c.others != nil && d >= c.others.left; {
		d, c.now = d-c.others.left, c.now+c.others.left
		c.now += c.others.turn()
	}
	if c.others != nil {
		c.others.left -= d
	}
	c.now += d
}

// TestPacerStarved: a process that waits for the CPU, and has little to do, refuses nothing of
// what it will do as soon as it has it.
func TestPacerStarved(t *testing.T) {
	for _, x := range []struct {
		takes time.Duration
		times float64
		others
	}{
		{50 * time.Microsecond, .006, others{slice: 3 * time.Millisecond, away: 9 * time.Millisecond, stall: 600 * time.Millisecond, oneOf: 20}},
		{50 * time.Microsecond, .01, others{slice: time.Millisecond, away: 30 * time.Millisecond, stall: 2 * time.Second, oneOf: 30}},
		{500 * time.Microsecond, .05, others{slice: 3 * time.Millisecond, away: 6 * time.Millisecond, stall: 600 * time.Millisecond, oneOf: 20}},
		{500 * time.Microsecond, .12, others{slice: 3 * time.Millisecond, away: 3 * time.Millisecond, stall: 300 * time.Millisecond, oneOf: 50}},
		{2 * time.Millisecond, .15, others{slice: 3 * time.Millisecond, away: 9 * time.Millisecond}},
		{2 * time.Millisecond, .1, others{slice: 3 * time.Millisecond, away: 9 * time.Millisecond, stall: 300 * time.Millisecond, oneOf: 50}},
	} {
		asked, refused, slowest := 0, 0, time.Duration(0)
		for seed := range uint64(10) {
			rng := rand.New(rand.NewPCG(seed, 11))
			x.others.rng = rng
			c := core{takes: x.takes, intake: x.takes / 25, admit: true, others: &x.others, waits: 20 * time.Second, after: 1}
			o := c.run(rng, x.times, [4]float64{0, 0, 1, 0}, 20*time.Second)
			asked, refused = asked+o.of(o.asked, everything...), refused+o.of(o.shed, everything...)
			slowest = max(slowest, slices.Max(o.latencies))
		}
		t.Logf("%v, %vx, %v of %v: of %d requests %d are refused, the slowest takes %v", x.takes, x.times, x.slice, x.slice+x.away, asked, refused, slowest)
		if refused > 0 {
			t.Error("that is too many")
		}
	}
}

// TestPacerShare: a process that always has a quarter of the CPU serves what that can do, as one
// on a slower machine.
func TestPacerShare(t *testing.T) {
	usual := [4]float64{.2, .2, .5, .1}
	const lasts = 31 * time.Second
	run := func(times float64) *outcome {
		rng := rand.New(rand.NewPCG(12, uint64(times*10)))
		c := core{takes: 2 * time.Millisecond, intake: 60 * time.Microsecond, admit: true, others: &others{rng: rng, slice: 3 * time.Millisecond, away: 9 * time.Millisecond}}
		return c.run(rng, times/4, usual, lasts)
	}
	atOne := p99(run(1).latencies)
	for _, times := range []float64{.5, .8, 1, 1.5, 3, 10} {
		t.Run(fmt.Sprint(times, "x"), func(t *testing.T) {
			o := run(times)
			good := float64(o.of(o.inTime, everything...)) / (min(times, 1-.03*times) * float64(lasts-time.Second) / float64(8*time.Millisecond))
			served := func(c Criticality) float64 { return float64(o.inTime[c]) / float64(o.asked[c]) }
			t.Logf("served in time %.2f of what it can, by criticality %.2f %.2f %.2f %.2f, p99 %v", good,
				served(Sheddable), served(SheddablePlus), served(Critical), served(CriticalPlus), p99(o.latencies))
			if good < .9 || p99(o.latencies) > 2*atOne || times <= 3 && served(CriticalPlus) < .95 {
				t.Errorf("that is too little, or too late (p99 at 1x %v)", atOne)
			}
			for c := Sheddable; c < CriticalPlus; c++ {
				if served(c) > served(c+1)+.02 {
					t.Errorf("of %s %.2f are served, of %s %.2f", c, served(c), c+1, served(c+1))
				}
			}
			if n := o.of(o.shed, everything...); times == .5 && n > 0 {
				t.Errorf("%d are refused", n)
			}
		})
	}
}
