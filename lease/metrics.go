package lease

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of a reader; readers that share a registerer share them.
type metrics struct {
	keepalives *prometheus.CounterVec // by result
	sessions   prometheus.Counter
	beliefs    *prometheus.CounterVec // by job and what is believed in now
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		keepalives: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slicer_lease_keepalives_total",
			Help: "Keepalives sent, by result: ok, failed (sent again) or lost (the lease is gone).",
		}, []string{"result"}),
		sessions: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "slicer_lease_sessions_total",
			Help: "Lease sessions opened; more than one a process means that a lease was lost.",
		}),
		beliefs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slicer_lease_beliefs_total",
			Help: "Changes of what the task may use, by job and what that is now: guard (all of its keys), bridge (those that do not move) or nothing.",
		}, []string{"job", "holding"}),
	}
	if reg == nil {
		return m, nil
	}
	var err error
	m.keepalives = register(reg, m.keepalives, &err)
	m.sessions = register(reg, m.sessions, &err)
	m.beliefs = register(reg, m.beliefs, &err)
	return m, err
}

// register returns what is registered under c's name already, if it is the same.
func register[C prometheus.Collector](reg prometheus.Registerer, c C, failed *error) C {
	err := reg.Register(c)
	var already prometheus.AlreadyRegisteredError
	if errors.As(err, &already) {
		if same, ok := already.ExistingCollector.(C); ok {
			return same
		}
	}
	*failed = errors.Join(*failed, err)
	return c
}

// holding names what a belief is in.
func (b *Belief) holding() string {
	switch {
	case b == nil:
		return "nothing"
	case b.after.a == nil:
		return "guard"
	}
	return "bridge"
}
