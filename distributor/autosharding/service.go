package autosharding

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/distributor/internal/handlers"
	autoshardingv1 "github.com/slicer-project/slicer/proto/autosharding/v1"
)

// firstWithin bounds the time that a client takes to introduce itself.
const firstWithin = 5 * time.Second

// Service serves the protocol. All methods are safe for concurrent use.
type Service struct {
	source   Source
	names    []naming
	log      *slog.Logger
	metrics  *metrics
	handlers *handlers.Group // and every goroutine

	mu   sync.Mutex
	jobs map[string]*job
}

// New validates the config. Errors are *assignment.FieldError, or the Registerer's.
func New(cfg Config) (*Service, error) {
	names, err := namings("Endpoint", cfg.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("autosharding config: %w", err)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	m, err := newMetrics(cfg.Registerer)
	if err != nil {
		return nil, fmt.Errorf("autosharding config: %w", err)
	}
	return &Service{
		source: cfg.Source, names: names, log: cfg.Logger, metrics: m,
		handlers: handlers.New(), jobs: make(map[string]*job),
	}, nil
}

// Register adds AutoshardingService to a server.
func (s *Service) Register(r grpc.ServiceRegistrar) {
	autoshardingv1.RegisterAutoshardingServiceServer(r, server{s: s})
}

// Close ends all streams and waits for everything that the Service has started,
// its gRPC handlers included.
func (s *Service) Close() error {
	s.handlers.Close()
	s.metrics.unregister()
	return nil
}

// server is what clients call.
type server struct {
	autoshardingv1.UnimplementedAutoshardingServiceServer
	s *Service
}

func (v server) WatchShardingAssignment(stream serverStream) error {
	err := v.s.watch(stream)
	v.s.metrics.ended.WithLabelValues(status.Code(err).String()).Inc()
	return err
}

type serverStream = grpc.BidiStreamingServer[autoshardingv1.WatchShardingAssignmentRequest, autoshardingv1.WatchShardingAssignmentResponse]

func (s *Service) watch(stream serverStream) error {
	if err := s.handlers.Enter(); err != nil {
		return err
	}
	defer s.handlers.Leave()
	in, err := s.first(stream)
	if err != nil {
		return err
	}
	feed, err := s.source.Join(stream.Context(), in.job, in.name, in.held)
	if err != nil {
		return err
	}
	defer func() { feed.Leave(time.Now()) }()
	c := newClient(s, in, feed, stream)
	defer c.leave()
	s.handlers.Go(c.receive)
	return c.run()
}

// first waits for the first message.
func (s *Service) first(stream serverStream) (introduction, error) {
	m, err := handlers.First(s.handlers, stream.Recv, firstWithin, "initial_client_config")
	if err != nil {
		return introduction{}, err
	}
	return checkFirst(m, time.Now())
}
