package backupdist

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are what /metrics shows of a Backup Distributor. All names begin with
// slicer_backupdist_.
type metrics struct {
	subs      *prometheus.GaugeVec
	jobs      prometheus.Gauge
	sent      *prometheus.CounterVec
	sentBytes *prometheus.CounterVec
	encodes   *prometheus.CounterVec
	reads     *prometheus.CounterVec
	ended     *prometheus.CounterVec
	dropped   *prometheus.CounterVec
	watched   *prometheus.GaugeVec
	lastRead  *prometheus.GaugeVec
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	counter := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "slicer_backupdist_" + name, Help: help}, []string{label})
	}
	m := &metrics{
		subs:      prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "slicer_backupdist_subscribers", Help: "Connected subscribers."}, []string{"role"}),
		jobs:      prometheus.NewGauge(prometheus.GaugeOpts{Name: "slicer_backupdist_jobs", Help: "Jobs that are held or asked for."}),
		sent:      counter("updates_total", "Assignments sent to subscribers: whole, compressed (whole, too), as a delta, or the part for a task.", "kind"),
		sentBytes: counter("update_bytes_total", "Encoded bytes of the assignments sent to subscribers.", "kind"),
		encodes:   counter("encodes_total", "Encodings made of assignments.", "kind"),
		reads:     counter("reads_total", "Reads of jobs from the store, by outcome.", "outcome"),
		watched:   prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "slicer_backupdist_store_watched", Help: "1 while a store answers, 0 while it does not."}, []string{"store"}),
		lastRead:  prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "slicer_backupdist_store_last_read_timestamp_seconds", Help: "When a store could last be read, by the clock of the Backup Distributor, as it is asked every two seconds; 0 for never."}, []string{"store"}),
		dropped:   counter("connections_dropped_total", "Connections dropped before they were set up, or closed after, as slicer_distributor_connections_dropped_total.", "why"),
		ended:     counter("streams_ended_total", "Subscribers' streams that have ended, by gRPC status.", "code"),
	}
	if reg == nil {
		return m, nil
	}
	return m, errors.Join(
		register(reg, &m.subs), register(reg, &m.jobs), register(reg, &m.sent), register(reg, &m.sentBytes),
		register(reg, &m.encodes), register(reg, &m.reads), register(reg, &m.ended), register(reg, &m.dropped), register(reg, &m.watched), register(reg, &m.lastRead))
}

// register registers a metric, or takes the one that another server has registered.
func register[C prometheus.Collector](reg prometheus.Registerer, c *C) error {
	err := reg.Register(*c)
	if was := (prometheus.AlreadyRegisteredError{}); errors.As(err, &was) {
		if existing, ok := was.ExistingCollector.(C); ok {
			*c = existing
			return nil
		}
	}
	return err
}

func (m *metrics) updates(kind string, size int) {
	m.sent.WithLabelValues(kind).Inc()
	m.sentBytes.WithLabelValues(kind).Add(float64(size))
}

func (m *metrics) read(err error) {
	outcome := "ok"
	if err != nil {
		outcome = "failed"
	}
	m.reads.WithLabelValues(outcome).Inc()
}
