package xds

import (
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/distributor/internal/handlers"
	xdsv3 "github.com/slicer-project/slicer/proto/xds/v3"
)

// firstWithin bounds the time that a client takes to ask for something.
const firstWithin = 5 * time.Second

// Service serves xDS. All methods are safe for concurrent use.
type Service struct {
	source   Source
	id       string
	log      *slog.Logger
	metrics  *metrics
	handlers *handlers.Group // and every goroutine

	mu   sync.Mutex
	jobs map[string]*job
}

// New makes a Service. Errors are the Registerer's.
func New(cfg Config) (*Service, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	m, err := newMetrics(cfg.Registerer)
	if err != nil {
		return nil, fmt.Errorf("xds config: %w", err)
	}
	return &Service{source: cfg.Source, id: cfg.ID, log: cfg.Logger, metrics: m, handlers: handlers.New(), jobs: make(map[string]*job)}, nil
}

// Register adds AggregatedDiscoveryService to a server: of its two variants the one that gRPC
// speaks, state of the world.
func (s *Service) Register(r grpc.ServiceRegistrar) {
	r.RegisterService(&grpc.ServiceDesc{
		ServiceName: "envoy.service.discovery.v3.AggregatedDiscoveryService",
		HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{
			StreamName: "StreamAggregatedResources", ServerStreams: true, ClientStreams: true,
			Handler: func(_ any, stream grpc.ServerStream) error {
				err := s.watch(&grpc.GenericServerStream[xdsv3.DiscoveryRequest, xdsv3.DiscoveryResponse]{ServerStream: stream})
				s.metrics.ended.WithLabelValues(status.Code(err).String()).Inc()
				return err
			},
		}},
	}, s)
}

// Close ends all streams and waits for everything that the Service has started,
// its gRPC handlers included.
func (s *Service) Close() error {
	s.handlers.Close()
	s.metrics.unregister()
	return nil
}

type serverStream = grpc.BidiStreamingServer[xdsv3.DiscoveryRequest, xdsv3.DiscoveryResponse]

func (s *Service) watch(stream serverStream) error {
	if err := s.handlers.Enter(); err != nil {
		return err
	}
	defer s.handlers.Leave()
	first, err := handlers.First(s.handlers, stream.Recv, firstWithin, "request")
	if err != nil {
		return handlers.EndOf(err)
	}
	in, err := checkNode(first.GetNode(), hostOfPeer(stream))
	if err != nil {
		return err
	}
	c := newClient(s, in, stream)
	if err := c.handle(time.Now(), first); err != nil {
		return err
	}
	defer c.leave()
	s.handlers.Go(c.receive)
	return c.run()
}

// hostOfPeer is where a stream's client is, "" if that is not known.
func hostOfPeer(stream serverStream) string {
	p, ok := peer.FromContext(stream.Context())
	if !ok || p.Addr == nil {
		return ""
	}
	host, _, err := net.SplitHostPort(p.Addr.String())
	if err != nil {
		return p.Addr.String()
	}
	return host
}
