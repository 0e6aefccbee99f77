package distributor

import (
	"context"
	"net"
	"time"

	"github.com/slicer-project/slicer/assignment/access/enforce"
	"github.com/slicer-project/slicer/assignment/limiter"
)

// Admit returns a listener for the server that Register is called with to serve on in
// place of lis. It hands out connections no faster than they can be set up, those of
// different addresses in turn: after a restart all subscribers come at once. Those of
// which nothing has come wait apart from the others. Its Close closes lis.
func (d *Distributor) Admit(lis net.Listener) net.Listener {
	return d.handshakes.Listener(lis, pingTimeout)
}

func (m *metrics) newHandshakes(r *enforce.Rights) *limiter.Handshakes {
	return limiter.NewHandshakes(limiter.HandshakesConfig{
		UnderWay: func(n int) { m.setUps.Set(float64(n)) },
		Carrier:  func(ctx context.Context) bool { return r.Peer(ctx).Carrier },
		// Each task's stream may have one that takes its place.
		MaxClientCalls: func(ctx context.Context) int {
			policy, _ := r.Policy()
			return max(limiter.MaxClientCalls, 2*policy.Bounds(enforce.PeerIdentity(ctx)).Tasks)
		},
		Dropped: func(why string) { m.dropped.WithLabelValues(why).Inc() },
	})
}

func newWholes() *limiter.Wholes[*job] {
	return limiter.NewWholes[*job](limiter.DefaultWholes, limiter.DefaultWholeBytes)
}

// jobWholes limits the whole assignments of one job, among those of all.
type jobWholes struct{ j *job }

// Acquire implements fanout.Limiter.
func (w jobWholes) Acquire(now time.Time, id uint64, key string, class, bytes int) bool {
	return w.j.d.wholes.Acquire(now, id, key, class, w.j, bytes)
}

// Release implements fanout.Limiter.
func (w jobWholes) Release(now time.Time, id uint64) { w.j.d.wholes.Release(now, id) }

// Waits implements fanout.Limiter.
func (w jobWholes) Waits(id uint64) bool { return w.j.d.wholes.Waits(id) }

// Granted implements fanout.Limiter.
func (w jobWholes) Granted(now time.Time) []uint64 { return w.j.d.wholes.Granted(now, w.j) }

// Next implements fanout.Limiter.
func (w jobWholes) Next() time.Time {
	waiting, next := w.j.d.wholes.Look()
	w.j.d.metrics.turns.Set(float64(waiting))
	return next
}
