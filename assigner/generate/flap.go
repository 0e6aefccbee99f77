package generate

import (
	"math"
	"time"

	"github.com/slicer-project/slicer/assigner/membership"
)

// A name that comes and goes again and again calls for a generation each time. What such
// names do is gathered, so that they cost the job one generation an interval; what other
// names do is acted on as always, and takes along what has been gathered.
const (
	// flapFree is how many events of one name are acted on at once, such as four
	// restarts; half of them are forgotten in flapHalfLife.
	flapFree     = 12
	flapHalfLife = 30 * time.Second
	// flapGap is the least time between two rounds that only such names call for.
	flapGap = 2 * time.Second
	// flapNames bounds the names that are counted.
	flapNames = 2 * 1024
)

// flaps counts what happens to names.
type flaps struct {
	of      map[string]flap
	pending bool          // something has happened to such a name since the last round
	seen    bool          // something has happened to such a name at all
	seenAt  time.Duration // when it last did
	roundAt time.Duration // when the last round took such things in
}

type flap struct {
	count float64 // at the time at
	at    time.Duration
}

func (f flap) now(now time.Duration) float64 {
	return f.count * math.Exp2(-float64(now-f.at)/float64(flapHalfLife))
}

// take counts an event, and reports whether it is to be acted on at once.
func (f *flaps) take(now time.Duration, e membership.Event) bool {
	switch e.Kind {
	case membership.Joined, membership.Restarted, membership.Returned, membership.Changed, membership.Left, membership.Dead:
	default:
		return true
	}
	if f.of == nil {
		f.of = make(map[string]flap)
	}
	n := f.of[e.Task].now(now) + 1
	f.of[e.Task] = flap{n, now}
	if len(f.of) > flapNames {
		for name, o := range f.of {
			if o.now(now) < flapFree/2 {
				delete(f.of, name)
			}
		}
	}
	if n <= flapFree {
		return true
	}
	f.pending, f.seen, f.seenAt = true, true, now
	return false
}

// lately reports whether something has happened to such a name within flapGap.
func (f *flaps) lately(now time.Duration) bool { return f.seen && now-f.seenAt < flapGap }

// planned notes that a round takes in what has happened.
func (f *flaps) planned(now time.Duration) {
	if f.pending {
		f.pending, f.roundAt = false, now
	}
}

// due is when what such names did calls for a round.
func (f *flaps) due() (time.Duration, bool) { return f.roundAt + flapGap, f.pending }
