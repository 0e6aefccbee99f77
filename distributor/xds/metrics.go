package xds

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicer-project/slicer/distributor/internal/answers"
	"github.com/slicer-project/slicer/distributor/internal/series"
)

// metrics are what /metrics shows of xDS. All names begin with slicer_distributor_xds_.
type metrics struct {
	clients, refusing, refused            *prometheus.GaugeVec
	acks, nacks, sent, sentBytes, renders *prometheus.CounterVec
	ended                                 *prometheus.CounterVec

	unregister func()
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{}
	var all []prometheus.Collector
	gauge := func(name, help string) *prometheus.GaugeVec {
		v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "slicer_distributor_xds_" + name, Help: help}, []string{"job"})
		all = append(all, v)
		return v
	}
	counter := func(name, help, label string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "slicer_distributor_xds_" + name, Help: help}, []string{label})
		all = append(all, v)
		return v
	}
	m.clients = gauge("clients", "Connected xDS clients; those that have routes count among the clerks as well.")
	m.refusing = gauge("clients_refusing", "Connected xDS clients that have refused the last answer of some type: nothing waits for them.")
	m.refused = gauge("job_refused", "1 while xDS clients of the job are not served: slicerctl inspect says why.")
	m.acks = counter("acks_total", "Answers that xDS clients have accepted.", "job")
	m.nacks = counter("nacks_total", "Answers that xDS clients have refused.", "job")
	m.sent = counter("resources_sent_total", "Resources sent to xDS clients.", "job")
	m.sentBytes = counter("bytes_sent_total", "Bytes of the resources sent to xDS clients.", "job")
	m.renders = counter("renders_total", "Assignments made into routes: one for each generation that is asked for.", "job")
	m.ended = counter("streams_ended_total", "xDS clients' streams that have ended, by gRPC status.", "code")
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
	refused                  prometheus.Gauge
	sent, sentBytes, renders prometheus.Counter
}

func (m *metrics) job(name string) *jobMetrics {
	j := &jobMetrics{}
	gauge := func(v *prometheus.GaugeVec) prometheus.Gauge { return series.Add[prometheus.Gauge](&j.Set, v, name) }
	counter := func(v *prometheus.CounterVec) prometheus.Counter {
		return series.Add[prometheus.Counter](&j.Set, v, name)
	}
	j.Series = answers.Series{Clients: gauge(m.clients), Refusing: gauge(m.refusing), Acks: counter(m.acks), Nacks: counter(m.nacks)}
	j.refused = gauge(m.refused)
	j.sent, j.sentBytes, j.renders = counter(m.sent), counter(m.sentBytes), counter(m.renders)
	return j
}
