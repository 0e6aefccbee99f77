package autosharding

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metrics are what /metrics shows of the protocol. All names begin with
// slicer_distributor_autosharding_.
type metrics struct {
	clients, refusing                              *prometheus.GaugeVec
	acks, nacks, remarks, sent, sentBytes, encodes *prometheus.CounterVec
	reports                                        *prometheus.CounterVec
	ended                                          *prometheus.CounterVec

	reg   prometheus.Registerer
	byJob []interface{ DeletePartialMatch(prometheus.Labels) int }
	all   []prometheus.Collector
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{reg: reg}
	gauge := func(name, help string) *prometheus.GaugeVec {
		v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "slicer_distributor_autosharding_" + name, Help: help}, []string{"job"})
		m.all, m.byJob = append(m.all, v), append(m.byJob, v)
		return v
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "slicer_distributor_autosharding_" + name, Help: help}, labels)
		m.all, m.byJob = append(m.all, v), append(m.byJob, v)
		return v
	}
	m.clients = gauge("clients", "Connected clients of gRPC's auto-sharding protocol; they count among the clerks as well.")
	m.refusing = gauge("clients_refusing", "Connected clients whose last answer was a refusal: nobody waits for them.")
	m.acks = counter("acks_total", "Assignments that clients have accepted.", "job")
	m.nacks = counter("nacks_total", "Assignments that clients have refused.", "job")
	m.remarks = counter("ack_remarks_total", "Assignments that clients have accepted with a remark, such as on keys without an owner.", "job")
	m.sent = counter("assignments_total", "Assignments sent to clients.", "job")
	m.sentBytes = counter("bytes_sent_total", "Bytes of the assignments sent to clients.", "job")
	m.encodes = counter("encodes_total", "Encodings made of assignments: one for each generation that somebody needs.", "job")
	m.reports = counter("load_reports_total", "Load reports that came from clients: taken, of another metric than the job's (ignored), or sooner than a second after the last (early).", "job", "outcome")
	m.ended = counter("streams_ended_total", "Clients' streams that have ended, by gRPC status.", "code")
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
	clients, refusing                              prometheus.Gauge
	acks, nacks, remarks, sent, sentBytes, encodes prometheus.Counter
	taken, ignored, early                          prometheus.Counter
}

func (m *metrics) job(name string) *jobMetrics {
	return &jobMetrics{
		clients: m.clients.WithLabelValues(name), refusing: m.refusing.WithLabelValues(name),
		acks: m.acks.WithLabelValues(name), nacks: m.nacks.WithLabelValues(name), remarks: m.remarks.WithLabelValues(name),
		sent: m.sent.WithLabelValues(name), sentBytes: m.sentBytes.WithLabelValues(name), encodes: m.encodes.WithLabelValues(name),
		taken: m.reports.WithLabelValues(name, "taken"), ignored: m.reports.WithLabelValues(name, "ignored"),
		early: m.reports.WithLabelValues(name, "early"),
	}
}

// drop forgets the series of a job.
func (m *metrics) drop(job string) {
	for _, v := range m.byJob {
		v.DeletePartialMatch(prometheus.Labels{"job": job})
	}
}
