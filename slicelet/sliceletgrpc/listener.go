package sliceletgrpc

import (
	"fmt"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/limiter"
	"github.com/slicer-project/slicer/slicelet"
)

const (
	// DefaultSetUps is how many connections are set up at once.
	DefaultSetUps = limiter.DefaultHandshakes
	maxSetUps     = 65536
	// userTimeout is gRPC's own (keepalive.ServerParameters.Timeout), which it can set only
	// for connections that it is given as they are.
	userTimeout = 20 * time.Second
)

// ListenerConfig says how connections are let in. The zero value will do.
type ListenerConfig struct {
	// SetUps is how many connections are set up at once: 1 to 65536, 0 stands for
	// DefaultSetUps.
	SetUps int
	// Registerer takes the metrics; nil is none.
	Registerer prometheus.Registerer
}

// Listener returns a listener for the gRPC server of a task to serve on in place of lis.
// When many clients connect at once, as after a restart, it lets in no more than can be set
// up, those of different addresses in turn, so that RPCs of those that are connected do
// not wait behind some 1,000 handshakes: SetUps at a time and, while the task has no room for all
// that is asked of it, 2. A handshake counts until it is over, of TLS and HTTP/2, and for one
// second at most. The others wait as sockets of which the first byte has come. Dropped are those
// that send nothing for 10 s; above 512 that have sent nothing yet of one address, or 2,048
// altogether, the oldest of them; and above 16,384 that wait, the newest of the address with the
// most.
//
// Close closes lis. It is an error if a field is not allowed (*assignment.FieldError), or
// the registerer refuses the metrics; one registerer takes one listener of a task.
func Listener(lis net.Listener, s *slicelet.Slicelet, cfg ListenerConfig) (net.Listener, error) {
	if cfg.SetUps < 0 || cfg.SetUps > maxSetUps {
		return nil, &assignment.FieldError{Field: "set_ups", Value: cfg.SetUps, Allowed: fmt.Sprintf("0 to %d", maxSetUps)}
	}
	underWay := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "slicer_sliceletgrpc_connections_being_set_up", Help: "Connections of clients that are being set up.",
	})
	dropped := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "slicer_sliceletgrpc_connections_dropped_total",
		Help: "Connections dropped before they were set up: silent, that sent nothing for 10 s or were too many such, or many, that waited behind too many.",
	}, []string{"why"})
	if cfg.Registerer != nil {
		for i, c := range []prometheus.Collector{underWay, dropped} {
			if err := cfg.Registerer.Register(c); err != nil {
				if i > 0 {
					cfg.Registerer.Unregister(underWay)
				}
				return nil, err
			}
		}
	}
	h := limiter.NewHandshakes(limiter.HandshakesConfig{
		Most: cfg.SetUps, UntilSetUp: true, Busy: func() bool { return s.Admission().Level().Below > 0 },
		UnderWay: func(n int) { underWay.Set(float64(n)) },
		Dropped:  func(why string) { dropped.WithLabelValues(why).Inc() },
	})
	return h.Listener(lis, userTimeout), nil
}
