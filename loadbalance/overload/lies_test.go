package overload

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"
)

// liar sends requests that it says to stand for others.
type liar struct {
	rate      float64 // of what the core could do
	p         Priority
	standsFor int
	next      time.Duration
}

// TestLies: what a client says to hold back, and does not, takes nothing from the others, beside
// the same requests without the lie: nothing at all where there is room for all, however much it
// says, and else nothing that is critical, where it says ten times what it sends; five seconds
// after an overload it takes nothing any more.
func TestLies(t *testing.T) {
	usual := [4]float64{.2, .2, .5, .1}
	const lasts = 21 * time.Second
	for _, p := range []Priority{Priorities - 1, 3 * Cohorts, 3*Cohorts - 1, 2 * Cohorts} {
		for _, rate := range []float64{.02, .1} {
			t.Run(fmt.Sprintf("priority %d, rate %v", p, rate), func(t *testing.T) {
				begin := func(standsFor int) (*core, *rand.Rand) {
					return &core{takes: 2 * time.Millisecond, intake: 60 * time.Microsecond, admit: true, clients: make([]TaskLevel, 20),
						liar: &liar{rate: rate, p: p, standsFor: standsFor}}, rand.New(rand.NewPCG(1, 1))
				}
				compare := func(when string, with, without *outcome, of ...Criticality) {
					t.Helper()
					for _, c := range of {
						lies, honest := share(with, c), share(without, c)
						t.Logf("%s: %.3f of %s is served, without the lies %.3f", when, lies, c, honest)
						if lies < honest-.03 {
							t.Errorf("%s: %.3f of %s is served, without the lies %.3f", when, lies, c, honest)
						}
					}
				}
				with, rng := begin(MostStandsFor)
				without, other := begin(0)
				compare(".8x", with.run(rng, .8, usual, lasts), without.run(other, .8, usual, lasts), everything...)
				with, rng = begin(1 + 10)
				without, other = begin(0)
				compare("1.5x", with.run(rng, 1.5, usual, lasts), without.run(other, 1.5, usual, lasts), Critical, CriticalPlus)
				for _, c := range []struct {
					core *core
					rng  *rand.Rand
				}{{with, rng}, {without, other}} {
					c.core.run(c.rng, 3, usual, lasts)
					c.core.run(c.rng, .7, usual, 4*time.Second)
				}
				compare("after it", with.run(rng, .7, usual, lasts), without.run(other, .7, usual, lasts), everything...)
			})
		}
	}
}

// share is what share of the requests of a criticality is served.
func share(o *outcome, c Criticality) float64 {
	return float64(o.inTime[c]) / float64(o.asked[c])
}

// FuzzParseStandsFor: whatever a header says, it is no number below 0, and none is larger than
// 16 bits have room for.
func FuzzParseStandsFor(f *testing.F) {
	for _, s := range []string{"", "0", "1", "10000", "65535", "65536", "-1", "1e4", "+3", "NaN", "0x10", "1_000"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n := ParseStandsFor(s); n < 0 || n > math.MaxUint16 || n > 0 && strings.TrimLeft(s, "0") != strconv.Itoa(n) {
			t.Errorf("%q: %d", s, n)
		}
	})
}
