package sliceletgrpc

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
)

// maxMethods bounds how many methods have metrics of their own: a server with a
// handler for unknown services hears whatever names clients make up.
const maxMethods = 512

// metrics are those of a server.
type metrics struct {
	seconds   *prometheus.HistogramVec
	errors    *prometheus.CounterVec
	misrouted *prometheus.CounterVec
	lost      prometheus.Counter
	moved     prometheus.Counter

	methods sync.Map // name to prometheus.Observer
	n       atomic.Int64
}

func newMetrics() *metrics {
	return &metrics{
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "slicer_sliceletgrpc_rpc_seconds", Help: "Time from an RPC's arrival to its answer, by method.",
			Buckets: prometheus.ExponentialBuckets(.0001, 4, 9), // 100 us to 6.5 s
		}, []string{"method"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slicer_sliceletgrpc_errors_total", Help: "RPCs that failed, by method and code.",
		}, []string{"method", "code"}),
		misrouted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slicer_sliceletgrpc_misrouted_total",
			Help: "RPCs for keys that the task does not own, by whether the client's assignment is older or newer than the task's, and by what became of them.",
		}, []string{"route", "result"}),
		lost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "slicer_sliceletgrpc_ownership_lost_total",
			Help: "RPCs of a job in consistent mode whose answer was held back, since the task lost their key while the handler ran.",
		}),
		moved: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "slicer_sliceletgrpc_moved_streams_total",
			Help: "Streams that were ended since their key has moved to another task.",
		}),
	}
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.seconds, m.errors, m.misrouted, m.lost, m.moved}
}

func (m *metrics) answered(method string, code codes.Code, took time.Duration) {
	o, ok := m.methods.Load(method)
	if !ok {
		if m.n.Add(1) > maxMethods {
			method = "other"
		}
		o, _ = m.methods.LoadOrStore(method, m.seconds.WithLabelValues(method))
	}
	o.(prometheus.Observer).Observe(took.Seconds())
	if code != codes.OK {
		m.errors.WithLabelValues(method, code.String()).Inc()
	}
}

func (m *metrics) astray(route string, refused bool) {
	result := "served"
	if refused {
		result = "refused"
	}
	m.misrouted.WithLabelValues(route, result).Inc()
}
