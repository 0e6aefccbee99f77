package certs

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicer-project/slicer/assignment"
)

var (
	expiryDesc = prometheus.NewDesc("slicer_tls_expiry_seconds",
		"Time until the first certificate in use expires, of the process's own and those between it and its authority (certificate) or of the authorities that others are checked by; below 0 once it has.", []string{"of"}, nil)
	loadedDesc = prometheus.NewDesc("slicer_tls_loaded_timestamp_seconds",
		"When what is in use was read, certificate or authorities.", []string{"of"}, nil)
	staleDesc = prometheus.NewDesc("slicer_tls_stale",
		"1 while the files hold something that is no good, or are gone, so that what was read before is in use.", []string{"of"}, nil)
	failuresDesc = prometheus.NewDesc("slicer_tls_reload_failures_total",
		"Times that files had changed and were no good.", []string{"of"}, nil)
	refusedDesc = prometheus.NewDesc("slicer_tls_handshakes_failed_total",
		"TLS handshakes of clients that came to nothing, by why: no_certificate, unknown_authority, expired, bad_certificate, plain_text, refused_by_client, closed, timeout or other.", []string{"reason"}, nil)
)

// collector looks at the files when it is asked, so that what is wrong with them shows on a
// process that nothing connects to.
type collector struct {
	mu      sync.Mutex
	sources []*Source
}

// register enters a source's metrics, beside those of others that are entered already.
func register(reg prometheus.Registerer, s *Source) error {
	err := reg.Register(&collector{sources: []*Source{s}})
	var already prometheus.AlreadyRegisteredError
	if !errors.As(err, &already) {
		return err
	}
	c, ok := already.ExistingCollector.(*collector)
	if !ok {
		return err
	}
	return c.add(s)
}

// add takes one more source, unless its metrics could not be told from those of another.
func (c *collector) add(s *Source) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, other := range c.sources {
		for _, f := range other.slots {
			for _, g := range s.slots {
				if f.name == g.name {
					return &assignment.FieldError{Field: "for", Value: g.name, Allowed: "what no other source of the registerer is for"}
				}
			}
		}
	}
	c.sources = append(c.sources, s)
	return nil
}

// Describe is prometheus.Collector's.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{expiryDesc, loadedDesc, staleDesc, failuresDesc, refusedDesc} {
		to <- d
	}
}

// Collect is prometheus.Collector's.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	c.mu.Lock()
	sources := slices.Clone(c.sources)
	c.mu.Unlock()
	gauge := func(d *prometheus.Desc, v float64, label string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, label)
	}
	counter := func(d *prometheus.Desc, v int, label string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), label)
	}
	refused := make(map[string]int)
	for _, s := range sources {
		for _, f := range s.state() {
			gauge(expiryDesc, time.Until(f.expires).Seconds(), f.name)
			gauge(loadedDesc, float64(f.loaded.UnixMilli())/1000, f.name)
			stale := 0.
			if f.bad != "" {
				stale = 1
			}
			gauge(staleDesc, stale, f.name)
			counter(failuresDesc, f.failures, f.name)
		}
		for reason, n := range s.refused.counts() {
			refused[reason] += n
		}
	}
	for reason, n := range refused {
		counter(refusedDesc, n, reason)
	}
}

// state returns copies of what is known of the files.
func (s *Source) state() (all []slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.lookLocked(false)
	for _, f := range s.slots {
		all = append(all, *f)
	}
	return all
}
