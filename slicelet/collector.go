package slicelet

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/loadbalance/overload"
)

// collector is a slicelet's metrics besides those of its subscriber. Load is of
// the last report.
type collector struct {
	s *Slicelet

	requests, attempts, slices, keyspace, load, cpu, state *prometheus.Desc

	admission, level, waiting, spacing *prometheus.Desc

	charged, askedRate, usedRate *prometheus.Desc
}

func newCollector(s *Slicelet) *collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("slicer_slicelet_"+name, help, labels, nil)
	}
	return &collector{
		s:        s,
		requests: desc("requests_total", "Requests up to the last report: for keys owned, for keys not owned, and of both those shed.", "kind"),
		attempts: desc("attempts_total", "Requests that arrived, by how often their client had sent them before: 0, 1, or 2 for more.", "before"),
		slices:   desc("slices", "Slices that the task owns."),
		keyspace: desc("keyspace_ratio", "Share of the keyspace that the task owns."),
		load:     desc("load_rate", "Load of the task in units of the job's load metric per second."),
		cpu:      desc("cpu_ratio", "Process CPU as a share of what it may use."),
		state:    desc("draining", "1 when the task drains."),

		admission: desc("admission_total", "Requests that arrived, by their criticality and by what became of them, or would if the job's admission were on: served, late (it could not be served in time) or shed; those that were let in before it was known that far too much was asked for are served and shed.", "criticality", "result"),
		level:     desc("admission_level", "Highest priority of which requests are refused, 0 to 511, in steps of 128 by criticality; 0 is none."),
		waiting:   desc("admission_waiting", "Requests that have arrived and that nothing has begun to work on."),
		spacing:   desc("admission_spacing_seconds", "Mean time between the starts of two requests while some wait: its reciprocal is what the task can do."),

		charged:   desc("charged_total", "Requests of customers with a limit, by whether it let them in: served or refused.", "result"),
		askedRate: desc("customer_asked_rate", "What a customer with a limit asks for, served or not, in units of load a second, by the last report: of the 50 that ask for most.", "customer"),
		usedRate:  desc("customer_used_rate", "What it is charged, in units of load a second, by the last report: of the 50 that ask for most.", "customer"),
	}
}

func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.requests, c.attempts, c.slices, c.keyspace, c.load, c.cpu, c.state, c.admission, c.level, c.waiting, c.spacing, c.charged, c.askedRate, c.usedRate} {
		ch <- d
	}
}

func (c *collector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v)
	}
	last, n := c.s.recorder.newest()
	for _, kind := range []struct {
		name string
		n    uint64
	}{{"owned", n.requests - n.misrouted}, {"misrouted", n.misrouted}, {"shed", n.shed}} {
		ch <- prometheus.MustNewConstMetric(c.requests, prometheus.CounterValue, float64(kind.n), kind.name)
	}
	for before := range c.s.arrivals.attempts.by {
		ch <- prometheus.MustNewConstMetric(c.attempts, prometheus.CounterValue, float64(c.s.arrivals.attempts.by[before].Load()), strconv.Itoa(before))
	}
	c.collectAdmission(ch, gauge)
	c.collectCustomers(ch)
	slices, share := c.s.Slices(), 0.0
	for _, s := range slices {
		share += s.Fraction()
	}
	gauge(c.slices, float64(len(slices)))
	gauge(c.keyspace, share)
	if last != nil {
		gauge(c.load, last.Total)
		gauge(c.cpu, last.CPU)
	}
	draining := 0.0
	if c.s.state() == assignment.TaskDraining {
		draining = 1
	}
	gauge(c.state, draining)
}

// maxCustomers is how many customers have metrics of their own.
const maxCustomers = 50

func (c *collector) collectCustomers(ch chan<- prometheus.Metric) {
	a := c.s.arrivals.accounts
	served, refused := a.Counts()
	ch <- prometheus.MustNewConstMetric(c.charged, prometheus.CounterValue, float64(served), "served")
	ch <- prometheus.MustNewConstMetric(c.charged, prometheus.CounterValue, float64(refused), "refused")
	for name, u := range a.Rates(maxCustomers) {
		ch <- prometheus.MustNewConstMetric(c.askedRate, prometheus.GaugeValue, u.Asked, name)
		ch <- prometheus.MustNewConstMetric(c.usedRate, prometheus.GaugeValue, u.Used, name)
	}
}

func (c *collector) collectAdmission(ch chan<- prometheus.Metric, gauge func(*prometheus.Desc, float64)) {
	control := c.s.arrivals.control
	for of := overload.Sheddable; of <= overload.CriticalPlus; of++ {
		for v := overload.Served; v <= overload.Shed; v++ {
			ch <- prometheus.MustNewConstMetric(c.admission, prometheus.CounterValue, float64(control.Count(of, v)), of.String(), v.String())
		}
	}
	l := control.Limits()
	gauge(c.level, float64(l.Level.Below))
	gauge(c.waiting, float64(control.Queue().Len))
	gauge(c.spacing, l.Spacing.Seconds())
}
