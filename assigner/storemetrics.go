package assigner

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// storeMetrics are those of the stores, looked up when asked for.
type storeMetrics struct {
	a                               *Assigner
	up, good, registered, rewritten *prometheus.Desc
	size, used, quota, uncompacted  *prometheus.Desc
}

func newStoreMetrics(a *Assigner) *storeMetrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prefix+name, help, append([]string{"store"}, labels...), nil)
	}
	return &storeMetrics{
		a:           a,
		up:          desc("store_up", "1 while a store can be read, or written, as it is asked every two seconds; 0 while not.", "op"),
		good:        desc("store_last_success_timestamp_seconds", "When a store could last be read, or written, by the clock of the assigner; 0 for never.", "op"),
		registered:  desc("registered", "1 while the assigner is registered in a store, so that it can be preferred; it is so while a Distributor is attached."),
		rewritten:   desc("registrations_rewritten_total", "Times that the registration had to be written anew, because its lease was lost or its record was damaged."),
		size:        desc("store_size_bytes", "Size of an etcd store's database file, of the member that has the largest."),
		used:        desc("store_in_use_bytes", "Part of that file that is in use; the rest is used again before the file grows."),
		quota:       desc("store_quota_bytes", "Size at which etcd takes no more writes, as etcd 3.6 and later tell."),
		uncompacted: desc("store_uncompacted_revisions", "Revisions of etcd that are newer than its last compaction."),
	}
}

// Describe implements prometheus.Collector.
func (m *storeMetrics) Describe(c chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.up, m.good, m.registered, m.rewritten, m.size, m.used, m.quota, m.uncompacted} {
		c <- d
	}
}

// Collect implements prometheus.Collector.
func (m *storeMetrics) Collect(c chan<- prometheus.Metric) {
	for _, s := range m.a.stores {
		read, write := s.health.outcomes()
		for op, o := range map[string]outcome{"read": read, "write": write} {
			gauge(c, m.up, number(o.up()), s.label(), op)
			gauge(c, m.good, seconds(o.good), s.label(), op)
		}
		registered, rewritten, _ := s.health.registration()
		gauge(c, m.registered, number(registered), s.label())
		c <- prometheus.MustNewConstMetric(m.rewritten, prometheus.CounterValue, float64(rewritten), s.label())
		u, known := s.room.get()
		if !known {
			continue
		}
		gauge(c, m.size, float64(u.Size), s.label())
		gauge(c, m.used, float64(u.InUse), s.label())
		gauge(c, m.uncompacted, float64(u.Uncompacted), s.label())
		if u.Quota > 0 {
			gauge(c, m.quota, float64(u.Quota), s.label())
		}
	}
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// seconds is a Unix time, 0 for no time.
func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}
