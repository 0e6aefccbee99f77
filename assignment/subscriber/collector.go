package subscriber

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Collector is a subscriber's state as Prometheus metrics, named
// slicer_<component>_<what>_<unit>.
type Collector struct {
	s *Subscriber

	generation, age, source, link, updates, refused, failures *prometheus.Desc
}

// NewCollector names the metrics after a component, such as clerk.
func NewCollector(component string, s *Subscriber) *Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("slicer_"+component+"_"+name, help, labels, nil)
	}
	return &Collector{
		s:          s,
		generation: desc("assignment_generation", "Generation of the assignment in hand, 0 if there is none."),
		age:        desc("assignment_age_seconds", "Time since the assignment in hand was made, by its generation and the local clock."),
		source:     desc("assignment_source", "1 for where the assignment in hand came from: distributor, backup or cache.", "source"),
		link:       desc("link", "1 for the kind of server that serves at this moment: distributor or backup.", "server"),
		updates:    desc("assignment_updates_total", "Assignments put to use, by where they came from.", "source"),
		refused:    desc("assignment_refused_total", "Assignments refused: malformed, of another job, or not what their checksum says."),
		failures:   desc("connection_failures_total", "Connections lost, and attempts that came to nothing."),
	}
}

// Describe is prometheus.Collector's.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.generation, c.age, c.source, c.link, c.updates, c.refused, c.failures} {
		ch <- d
	}
}

// Collect is prometheus.Collector's.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	st, n := c.s.State(), c.s.Counters()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	if a := st.Assignment; a != nil {
		gauge(c.generation, float64(a.Generation()))
		gauge(c.age, time.Since(a.Generation().Time()).Seconds())
	} else {
		gauge(c.generation, 0)
	}
	for _, s := range []Source{Cache, Backup, Distributor} {
		gauge(c.source, oneIf(s == st.Source), s.String())
		if s != Cache {
			gauge(c.link, oneIf(s == st.Link), s.String())
			counter(c.updates, n.Updates[s], s.String())
		}
	}
	counter(c.refused, n.Refused)
	counter(c.failures, n.Failures)
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// maxInstances bounds how many of a kind one registerer takes.
const maxInstances = 10000

// Register registers collectors under the labels given and one more, kind,
// whose value is the first number that is free: so that several of a kind can
// share a registerer. The function returned takes them away again. A nil
// registerer takes nothing.
func Register(r prometheus.Registerer, kind string, labels prometheus.Labels, cs ...prometheus.Collector) (unregister func(), err error) {
	if r == nil {
		return func() {}, nil
	}
	for i := range maxInstances {
		all := prometheus.Labels{kind: strconv.Itoa(i)}
		for k, v := range labels {
			all[k] = v
		}
		in := prometheus.WrapRegistererWith(all, r)
		n := 0
		for n < len(cs) && err == nil {
			if err = in.Register(cs[n]); err == nil {
				n++
			}
		}
		undo := func() {
			for _, c := range cs[:n] {
				in.Unregister(c)
			}
		}
		if err == nil {
			return undo, nil
		}
		undo()
		if taken := (prometheus.AlreadyRegisteredError{}); !errors.As(err, &taken) {
			return nil, fmt.Errorf("metrics: %w", err)
		}
		err = nil
	}
	return nil, fmt.Errorf("metrics: %d of a kind are registered already", maxInstances)
}
