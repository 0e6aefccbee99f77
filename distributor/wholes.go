package distributor

import (
	"net"
	"slices"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/distributor/limiter"
)

// Admit returns a listener for the server that Register is called with to serve on in
// place of lis. It hands out connections no faster than they can be set up, those of
// different addresses in turn: after a restart all subscribers come at once. Those of
// which nothing has come wait apart from the others. Its Close closes lis.
func (d *Distributor) Admit(lis net.Listener) net.Listener {
	return d.handshakes.Listener(lis, setUserTimeout)
}

func (m *metrics) newHandshakes() *limiter.Handshakes {
	return limiter.NewHandshakes(limiter.HandshakesConfig{
		UnderWay: func(n int) { m.setUps.Set(float64(n)) },
		Dropped:  func(why string) { m.dropped.WithLabelValues(why).Inc() },
	})
}

func newWholes() *limiter.Wholes[*job] {
	return limiter.NewWholes[*job](limiter.DefaultWholes, limiter.DefaultWholeBytes)
}

// Notify has the job look whether a whole assignment may be sent.
func (j *job) Notify() { j.poke() }

// wholeBytes is about what an assignment takes when it is sent whole.
func wholeBytes(a *assignment.Assignment) int { return 8*a.NumOwners() + 64*a.NumTasks() }

// sendWholes has those sent the whole that may be now.
func (j *job) sendWholes(now time.Time) (next time.Time) {
	ids := j.d.wholes.Granted(now, j)
	slices.Sort(ids)
	for _, id := range ids {
		s := j.subs[id]
		if s == nil {
			j.d.wholes.Release(now, id)
			continue
		}
		j.kick(s)
		if !s.sending {
			j.d.wholes.Release(now, id) // it does not need it any more
		}
	}
	waiting, next := j.d.wholes.Look()
	j.d.metrics.turns.Set(float64(waiting))
	return next
}
