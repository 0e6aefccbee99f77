package overload

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// TestRecovers: after 30 s at five times what a task can do, 98 % of each second's requests are
// served from the third second on, at half and at .8 of it, whether its clients hold back what they
// are told to or not, and whether they send what is not served once or three times; with 2,000 clients
// that ask rarely and that no control plane tells, from the eleventh. Where handlers are full, and 20
// clients ask for little each, so that they hear little, it is from the fourth.
func TestRecovers(t *testing.T) {
	const flood, lasts, seeds = 30 * time.Second, 16 * time.Second, 10
	usual := [4]float64{.2, .2, .5, .1}
	for _, x := range []struct {
		pool    bool
		clients int // 0: such as know no levels
		bar     time.Duration
	}{{false, 0, 2}, {false, 1, 2}, {false, 20, 2}, {false, 2000, 10}, {true, 0, 2}, {true, 1, 2}, {true, 20, 3}} {
		for _, attempts := range []int{1, 3} {
			for _, after := range []float64{.5, .8} {
				t.Run(fmt.Sprintf("pool %t, %d clients, %d attempts, then %vx", x.pool, x.clients, attempts, after), func(t *testing.T) {
					var asked, answered [lasts / quarter]int
					for seed := range uint64(seeds) {
						rng := rand.New(rand.NewPCG(seed, 77))
						var asks, answers []int
						if x.pool {
							s := &slots{admit: true, clients: make([]TaskLevel, x.clients), attempts: attempts, rate: func(now time.Duration) float64 {
								if now < flood {
									return 5 * 50
								}
								return after * 50
							}}
							s.run(rng, 0, 0, flood+lasts+time.Second)
							asks, answers = s.asks[flood/quarter:], s.answers[flood/quarter:]
						} else {
							c := core{takes: 2 * time.Millisecond, intake: 60 * time.Microsecond, admit: true, clients: make([]TaskLevel, x.clients), attempts: attempts}
							c.run(rng, 5, usual, flood)
							o := c.run(rng, after, usual, lasts+time.Second)
							asks, answers = o.asks, o.answers
						}
						for i := range asked {
							asked[i], answered[i] = asked[i]+asks[i], answered[i]+answers[i]
						}
					}
					back, least := time.Duration(-1), 1.
					for i := range len(asked) - 3 {
						served := float64(sum(answered[i:i+4])) / float64(sum(asked[i:i+4]))
						if back < 0 && served >= .98 {
							back = time.Duration(i) * quarter
						}
						if i >= int(x.bar*time.Second/quarter) {
							least = min(least, served)
						}
					}
					t.Logf("seeds 0 to %d: .98 of a second are served after %v, and from %d s on at least %.3f", seeds-1, back, x.bar, least)
					if least < .98 {
						t.Error("that is too few")
					}
				})
			}
		}
	}
}

func sum(of []int) (n int) {
	for _, v := range of {
		n += v
	}
	return n
}
