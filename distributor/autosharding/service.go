package autosharding

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	autoshardingv1 "github.com/slicer-project/slicer/proto/autosharding/v1"
)

// firstWithin bounds the time that a client takes to introduce itself.
const firstWithin = 5 * time.Second

// Service serves the protocol. All methods are safe for concurrent use.
type Service struct {
	source  Source
	names   []naming
	log     *slog.Logger
	metrics *metrics
	stop    chan struct{}
	wg      sync.WaitGroup // every goroutine, handlers included

	mu     sync.Mutex
	closed bool
	jobs   map[string]*job
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
		stop: make(chan struct{}), jobs: make(map[string]*job),
	}, nil
}

// Register adds AutoshardingService to a server.
func (s *Service) Register(r grpc.ServiceRegistrar) {
	autoshardingv1.RegisterAutoshardingServiceServer(r, server{s: s})
}

// Close ends all streams and waits for everything that the Service has started,
// its gRPC handlers included.
func (s *Service) Close() error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.stop)
	}
	s.mu.Unlock()
	s.wg.Wait()
	s.metrics.close()
	return nil
}

// enter counts a handler in; false says that it is too late.
func (s *Service) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.wg.Add(1)
	}
	return !s.closed
}

var errClosing = status.Error(codes.Unavailable, "this distributor is shutting down")

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
	if !s.enter() {
		return errClosing
	}
	defer s.wg.Done()
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
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		c.receive()
	}()
	return c.run()
}

// first waits for the first message.
func (s *Service) first(stream serverStream) (introduction, error) {
	type first struct {
		m   *autoshardingv1.WatchShardingAssignmentRequest
		err error
	}
	came := make(chan first, 1)
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		m, err := stream.Recv()
		came <- first{m, err}
	}()
	late := time.NewTimer(firstWithin)
	defer late.Stop()
	select {
	case f := <-came:
		if f.err != nil {
			return introduction{}, f.err
		}
		return checkFirst(f.m, time.Now())
	case <-late.C:
		return introduction{}, status.Errorf(codes.DeadlineExceeded, "no initial_client_config within %s", firstWithin)
	case <-s.stop:
		return introduction{}, errClosing
	}
}
