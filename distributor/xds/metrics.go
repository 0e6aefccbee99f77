package xds

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicer-project/slicer/distributor/internal/series"
)

// metrics are what /metrics shows of xDS. All names begin with slicer_distributor_xds_.
type metrics struct {
	clients, refusing, refused            *prometheus.GaugeVec
	acks, nacks, sent, sentBytes, renders *prometheus.CounterVec
	ended                                 *prometheus.CounterVec

	reg prometheus.Registerer
	all []prometheus.Collector
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{reg: reg}
	gauge := func(name, help string) *prometheus.GaugeVec {
		v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "slicer_distributor_xds_" + name, Help: help}, []string{"job"})
		m.all = append(m.all, v)
		return v
	}
	counter := func(name, help, label string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "slicer_distributor_xds_" + name, Help: help}, []string{label})
		m.all = append(m.all, v)
		return v
	}
	m.clients = gauge("clients", "Connected xDS clients; those that have asked for routes count among the clerks as well.")
	m.refusing = gauge("clients_refusing", "Connected xDS clients that have refused the last answer of some type: nothing waits for them.")
	m.refused = gauge("job_refused", "1 while xDS clients of the job are not served: slicerctl inspect says why.")
	m.acks = counter("acks_total", "Answers that xDS clients have accepted.", "job")
	m.nacks = counter("nacks_total", "Answers that xDS clients have refused.", "job")
	m.sent = counter("resources_sent_total", "Resources sent to xDS clients.", "job")
	m.sentBytes = counter("bytes_sent_total", "Bytes of the resources sent to xDS clients.", "job")
	m.renders = counter("renders_total", "Assignments made into routes: one for each generation that is asked for.", "job")
	m.ended = counter("streams_ended_total", "xDS clients' streams that have ended, by gRPC status.", "code")
	if reg == nil {
		return m, nil
	}
	for i, c := range m.all {
		if err := reg.Register(c); err != nil {
			m.all = m.all[:i]
			m.close()
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) close() {
	if m.reg != nil {
		for _, c := range m.all {
			m.reg.Unregister(c)
		}
	}
}

// jobMetrics are the metrics of one job, looked up once.
type jobMetrics struct {
	series.Set
	clients, refusing, refused            prometheus.Gauge
	acks, nacks, sent, sentBytes, renders prometheus.Counter
}

func (m *metrics) job(name string) *jobMetrics {
	j := &jobMetrics{}
	gauge := func(v *prometheus.GaugeVec) prometheus.Gauge { return series.Add[prometheus.Gauge](&j.Set, v, name) }
	counter := func(v *prometheus.CounterVec) prometheus.Counter {
		return series.Add[prometheus.Counter](&j.Set, v, name)
	}
	j.clients, j.refusing, j.refused = gauge(m.clients), gauge(m.refusing), gauge(m.refused)
	j.acks, j.nacks, j.sent, j.sentBytes, j.renders = counter(m.acks), counter(m.nacks), counter(m.sent), counter(m.sentBytes), counter(m.renders)
	return j
}
