package autosharding

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicer-project/slicer/distributor/internal/answers"
	"github.com/slicer-project/slicer/distributor/internal/series"
)

// metrics are what /metrics shows of the protocol. All names begin with
// slicer_distributor_autosharding_.
type metrics struct {
	clients, refusing                              *prometheus.GaugeVec
	acks, nacks, remarks, sent, sentBytes, encodes *prometheus.CounterVec
	reports                                        *prometheus.CounterVec
	ended                                          *prometheus.CounterVec

	unregister func()
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{}
	var all []prometheus.Collector
	gauge := func(name, help string) *prometheus.GaugeVec {
		v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "slicer_distributor_autosharding_" + name, Help: help}, []string{"job"})
		all = append(all, v)
		return v
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "slicer_distributor_autosharding_" + name, Help: help}, labels)
		all = append(all, v)
		return v
	}
	m.clients = gauge("clients", "Connected clients of gRPC's auto-sharding protocol; they count among the clerks as well.")
	m.refusing = gauge("clients_refusing", "Connected clients whose last answer was a refusal: nothing waits for them.")
	m.acks = counter("acks_total", "Assignments that clients have accepted.", "job")
	m.nacks = counter("nacks_total", "Assignments that clients have refused.", "job")
	m.remarks = counter("ack_remarks_total", "Assignments that clients have accepted with a remark, such as on keys without an owner.", "job")
	m.sent = counter("assignments_total", "Assignments sent to clients.", "job")
	m.sentBytes = counter("bytes_sent_total", "Bytes of the assignments sent to clients.", "job")
	m.encodes = counter("encodes_total", "Encodings made of assignments: one for each generation that is sent.", "job")
	m.reports = counter("load_reports_total", "Load reports that came from clients: taken, of another metric than the job's (ignored), or sooner than a second after the last (early).", "job", "outcome")
	m.ended = counter("streams_ended_total", "Clients' streams that have ended, by gRPC status.", "code")
	var err error
	m.unregister, err = series.Register(reg, all...)
	if err != nil {
		return nil, err
	}
	return m, nil
}

// jobMetrics are the metrics of one job, looked up once.
type jobMetrics struct {
	series.Set
	answers.Series
	remarks, sent, sentBytes, encodes prometheus.Counter
	reports                           map[string]prometheus.Counter // by outcome
}

// What becomes of a load report.
const (
	reportTaken   = "taken"
	reportIgnored = "ignored"
	reportEarly   = "early"
)

func (m *metrics) job(name string) *jobMetrics {
	j := &jobMetrics{reports: make(map[string]prometheus.Counter)}
	gauge := func(v *prometheus.GaugeVec) prometheus.Gauge { return series.Add[prometheus.Gauge](&j.Set, v, name) }
	counter := func(v *prometheus.CounterVec, labels ...string) prometheus.Counter {
		return series.Add[prometheus.Counter](&j.Set, v, append([]string{name}, labels...)...)
	}
	j.Series = answers.Series{Clients: gauge(m.clients), Refusing: gauge(m.refusing), Acks: counter(m.acks), Nacks: counter(m.nacks)}
	j.remarks = counter(m.remarks)
	j.sent, j.sentBytes, j.encodes = counter(m.sent), counter(m.sentBytes), counter(m.encodes)
	for _, outcome := range []string{reportTaken, reportIgnored, reportEarly} {
		j.reports[outcome] = counter(m.reports, outcome)
	}
	return j
}
