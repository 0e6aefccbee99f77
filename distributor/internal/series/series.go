// Package series keeps the Prometheus series of one subject, such as a job, together,
// so that they can be dropped by their exact labels. DeletePartialMatch instead looks
// at the series of all subjects: dropping n of them takes n * n steps.
package series

// Vec is a vector of metrics, such as a *prometheus.GaugeVec.
type Vec[M any] interface {
	WithLabelValues(...string) M
	DeleteLabelValues(...string) bool
}

// Set are the series of one subject. Not safe for concurrent use.
type Set struct{ drops []func() }

// Add makes a series, which Drop will drop.
func Add[M any](s *Set, v Vec[M], labels ...string) M {
	Expect(s, v, labels...)
	return v.WithLabelValues(labels...)
}

// Expect makes Drop drop a series, if there is one by then.
func Expect[M any](s *Set, v Vec[M], labels ...string) {
	s.drops = append(s.drops, func() { v.DeleteLabelValues(labels...) })
}

// Drop drops all of them.
func (s *Set) Drop() {
	for _, drop := range s.drops {
		drop()
	}
	s.drops = nil
}
