package slicelethttp

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are those of a handler. Paths are no labels: there are too many.
type metrics struct {
	seconds   *prometheus.HistogramVec
	misrouted *prometheus.CounterVec
	lost      prometheus.Counter
	moved     prometheus.Counter
	classes   [5]prometheus.Observer // 1xx to 5xx
}

var classNames = [5]string{"1xx", "2xx", "3xx", "4xx", "5xx"}

func newMetrics() *metrics {
	m := &metrics{
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "slicer_slicelethttp_request_seconds", Help: "Time from a request's arrival to the end of its answer, by the class of the answer's code.",
			Buckets: prometheus.ExponentialBuckets(.0001, 4, 9), // 100 us to 6.5 s
		}, []string{"code"}),
		misrouted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slicer_slicelethttp_misrouted_total",
			Help: "Requests for keys that the task does not own, by whether the client's assignment is older or newer than the task's, and by what became of them.",
		}, []string{"route", "result"}),
		lost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "slicer_slicelethttp_ownership_lost_total",
			Help: "Requests to a job in consistent mode whose answer was held back or cut off, since the task lost their key while the handler ran.",
		}),
		moved: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "slicer_slicelethttp_moved_requests_total",
			Help: "Long requests that were ended since their key has moved to another task, without upgraded connections.",
		}),
	}
	for i, name := range classNames {
		m.classes[i] = m.seconds.WithLabelValues(name)
	}
	return m
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.seconds, m.misrouted, m.lost, m.moved}
}

// answered counts an answer; a code of 0 is a handler that gave none.
func (m *metrics) answered(code int, took time.Duration) {
	if code < 100 || code > 599 {
		code = 500
	}
	m.classes[code/100-1].Observe(took.Seconds())
}

func (m *metrics) astray(route string, refused bool) {
	result := "served"
	if refused {
		result = "refused"
	}
	m.misrouted.WithLabelValues(route, result).Inc()
}
