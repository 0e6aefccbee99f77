// Package backupdist answers subscribers from the store alone. It is what is left
// when all assigners and Distributors are dead, of one bug perhaps: so it shares
// nothing with them but the nouns, the wire form and the store, and is kept small
// and dull (Slicer paper, section 4.3). With it alone a job is sharded statically:
// programs start and route by the last assignment, and nothing is rebalanced.
//
//	s, err := backupdist.New(backupdist.Config{Store: opened})
//	server := grpc.NewServer(backupdist.ServerOptions()...)
//	s.Register(server)
//	go server.Serve(s.Admit(listener))
//	defer s.Close()
//
// It only reads. It holds every job that its store names, or its stores, so that it can
// go on when one dies, too: a job with subscribers is read whenever it changes, any other
// at most every 10 s. Reports are ignored; Status says that none are taken. A job is
// NOT_FOUND when every store says so and UNAVAILABLE when it has never been read and a
// store that may have it does not answer. No subscriber is sent an older generation than
// it holds.
//
// Subscribers get a delta from the generation before or the whole, each encoded
// once for all of them.
package backupdist

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/access/enforce"
	"github.com/slicer-project/slicer/assignment/limiter"
	"github.com/slicer-project/slicer/assignment/store"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

const (
	// maxJobs bounds the jobs that are held, whatever names are asked for.
	maxJobs = 1 << 16
	// readers bounds the reads from the store that run at once, of newest assignments and of
	// older ones each.
	readers = 8
)

// NamedStore is a store that a Backup Distributor serves.
type NamedStore struct {
	// Name is what logs and metrics call it; a single store may go without.
	Name string
	// Store is read, never written, and not closed.
	Store store.Store
}

// Config says what a Backup Distributor needs to know.
type Config struct {
	// Store is read, never written, and not closed.
	Store store.Store
	// Stores take the place of Store where jobs are in several: any job of any of them
	// is served.
	Stores []NamedStore
	// Logger may be nil: silent.
	Logger *slog.Logger
	// Registerer may be nil: no metrics. Several servers on one share the series.
	Registerer prometheus.Registerer
	// Rights say which peers may own, watch and read jobs. nil allows everything to all.
	Rights *enforce.Rights
}

func (c *Config) check() error {
	if (c.Store == nil) == (len(c.Stores) == 0) {
		return &assignment.FieldError{Field: "stores", Value: len(c.Stores), Allowed: "at least one, or else Store"}
	}
	if c.Store != nil {
		c.Stores = []NamedStore{{Store: c.Store}}
	}
	seen := make(map[string]bool)
	for _, s := range c.Stores {
		switch {
		case s.Store == nil:
			return &assignment.FieldError{Field: "stores", Value: s.Name, Allowed: "stores that are open"}
		case seen[s.Name]:
			return &assignment.FieldError{Field: "stores", Value: s.Name, Allowed: "distinct names"}
		}
		seen[s.Name] = true
	}
	return nil
}

// Server is a Backup Distributor. All methods are safe for concurrent use.
type Server struct {
	sources    []*source
	log        *slog.Logger
	m          *metrics
	rights     *enforce.Rights
	life       context.Context // of everything that is started here
	cancel     context.CancelFunc
	wg         sync.WaitGroup // every goroutine, handlers included
	reading    chan struct{}  // holds a token for each read of a newest assignment that runs
	fetching   chan struct{}  // and for each of an older one
	handshakes *limiter.Handshakes
	unknowns   *limiter.Names

	mu     sync.Mutex // taken before any job's
	closed bool
	jobs   map[string]*job
}

// New starts to read the store, and waits for nothing: the store may be down.
func New(cfg Config) (*Server, error) {
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("backupdist config: %w", err)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	m, err := newMetrics(cfg.Registerer)
	if err != nil {
		return nil, fmt.Errorf("backupdist config: Registerer: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{
		log: cfg.Logger, m: m, rights: cfg.Rights, life: ctx, cancel: cancel,
		reading: make(chan struct{}, readers), fetching: make(chan struct{}, readers), jobs: make(map[string]*job),
		handshakes: limiter.NewHandshakes(limiter.HandshakesConfig{
			Carrier: func(ctx context.Context) bool { return cfg.Rights.Peer(ctx).Carrier },
			Dropped: func(why string) { m.dropped.WithLabelValues(why).Inc() },
		}),
		unknowns: limiter.NewNames(),
	}
	for _, st := range cfg.Stores {
		s.sources = append(s.sources, newSource(s, st))
	}
	for _, src := range s.sources {
		s.wg.Go(src.watch)
		s.wg.Go(src.watchHealth)
	}
	return s, nil
}

// Register adds SubscriberService, and of AdminService what only reads.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	slicerv1.RegisterSubscriberServiceServer(r, subscriberService{s: s})
	slicerv1.RegisterAdminServiceServer(r, adminService{s: s})
}

// Ready is nil once a store has answered: from then on there is something to
// serve, even if the store dies.
func (s *Server) Ready() error {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return errors.New("the backup distributor is closed")
	}
	var errs []error
	for _, src := range s.sources {
		err := src.ready()
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Close ends all streams and waits for everything that it has started, its gRPC
// handlers included. The store stays open.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.wg.Wait()
	return nil
}

var errClosing = status.Error(codes.Unavailable, "this backup distributor is shutting down")

// enter counts a handler in; false says that it is too late.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.wg.Add(1)
	}
	return !s.closed
}

// acquire returns a job, which stays until it is released as often. The peer, a limiter's
// key, has a limited number of names that turn out to be no job's; "" is not limited.
func (s *Server) acquire(name, peer string) (*job, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.jobs[name]
	switch {
	case s.closed:
		return nil, errClosing
	case j == nil && len(s.jobs) >= maxJobs:
		return nil, status.Errorf(codes.ResourceExhausted, "job %q: %d jobs are served here, no more are allowed", name, maxJobs)
	case j == nil:
		if err := s.unknowns.Ask(time.Now(), peer, name); err != nil {
			return nil, err
		}
		j = newJob(s, name)
		j.askedBy = peer
		s.jobs[name] = j
		s.m.jobs.Inc()
		s.wg.Go(j.run)
	}
	j.refs++
	return j, nil
}

func (s *Server) release(j *job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j.refs--
}

// needed says how many need the job.
func (s *Server) needed(j *job) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return j.refs
}

// drop forgets a job that is not needed.
func (s *Server) drop(j *job) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j.refs > 0 {
		return false
	}
	delete(s.jobs, j.name)
	s.m.jobs.Dec()
	return true
}

// ServerOptions are what a server with ten thousand subscribers on it should be
// made with: small buffers, and keepalive pings both ways. On one connection at most
// 1,000 calls are answered at a time, streams included, and of those that the policy of
// Config.Rights calls plane or proxies 10,000. The server's tap handle is among the options. See
// Admit, too.
func ServerOptions() []grpc.ServerOption {
	return append(limiter.ServerOptions(slicerv1.SubscriberService_Watch_FullMethodName),
		grpc.ReadBufferSize(4<<10), grpc.WriteBufferSize(16<<10),
		grpc.StaticStreamWindowSize(64<<10), grpc.StaticConnWindowSize(128<<10),
		grpc.MaxHeaderListSize(16<<10), grpc.ConnectionTimeout(10*time.Second),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 20 * time.Second, Timeout: pingTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}))
}
