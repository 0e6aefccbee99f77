package overload_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/slicer-project/slicer/loadbalance/overload"
)

// A server is sent twice what it accepts, all if it accepts all, and all again half a minute
// after it has room.
func TestAccepts(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ asked, accepts float64 }{{1000, 1000}, {1000, 600}, {1000, 100}, {2000, 10}, {100, 1}, {5, 5}} {
		r := rand.New(rand.NewPCG(1, 2))
		var a overload.Accepts
		now := time.Duration(0)
		run := func(over time.Duration, accepts float64) (sent float64) {
			every := time.Duration(float64(time.Second) / tc.asked)
			room := 0.
			for end := now + over; now < end; now += every {
				room = min(room+accepts*every.Seconds(), 5)
				if r.Float64() < a.Hold(now) {
					a.Count(now, false)
					continue
				}
				sent++
				ok := room >= 1
				if ok {
					room--
				}
				a.Count(now, ok)
			}
			return sent / over.Seconds()
		}
		run(20*time.Second, tc.accepts)
		sent := run(20*time.Second, tc.accepts)
		if want := min(tc.asked, 2*tc.accepts+8./3); sent < .8*want || sent > 1.3*want+1 {
			t.Errorf("%+v: %.4g were sent, want about %g", tc, sent, want)
		}
		run(30*time.Second, 2*tc.asked)
		if sent := run(10*time.Second, 2*tc.asked); sent < .99*tc.asked {
			t.Errorf("%+v: %.4g were sent when there was room again", tc, sent)
		}
		if now += time.Minute; !a.Quiet(now) || a.Hold(now) > .1 {
			t.Errorf("%+v: something is remembered after a minute", tc)
		}
	}
}
