// Package etcdlease keeps the leases of consistent mode in etcd, 3.5.13 or later
// on every member. Before that release a member that had been deposed as leader
// might renew a lease that its successor had let run out.
//
//	st, err := etcdlease.Open(ctx, etcdlease.Config{Endpoints: []string{"etcd-1:2379", "etcd-2:2379"}, Prefix: "/slicer"})
//	...
//	reader, err := lease.NewReader(lease.Config{Readers: st}) // a slicelet
//	session, err := st.OpenWriter(ctx, 5*time.Second)         // an assigner
//
// A session is one etcd lease, however many jobs the process serves. Its keepalives are
// sent one by one by the process that holds it, so that it can count from the sending of
// the one that was answered; etcd's own loop does not tell that.
//
// Below the prefix, which may be that of the assignment store, a job has these keys:
//
//	lease/JOB/head            generation
//	lease/JOB/r/guard         generation, open or recalled
//	lease/JOB/r/bridge        from, to, open or recalled
//	lease/JOB/leader          session; its create revision is the token
//	lease/JOB/h/guard/SESSION    generation
//	lease/JOB/h/bridge/SESSION   from, to
//
// What a process does in etcd is bounded by its rights in etcd alone: one that may
// write below the prefix may ask for a lease of any length, hold claims in any job,
// renew them for ever and so hold up every change, and delete the keys of others.
// Neither a job's lease_duration nor an assigner can hold it back, since a key that
// is deleted before its holder's own deadline gives keys two owners. Let only tasks that
// are trusted so far write there, or serve leases by `slicer serve`, which bounds all that.
//
// The last three go with the session's lease. Beside lease/ there is, while the store is suspended,
//
//	lease-suspended/LEASE        nothing; it goes with a lease of its own
//
// and for each session of another process, that a Pool carries,
//
//	lease/_session/NAME          lease time in milliseconds, owner; it goes with the session's lease
//
// Every step of a change is one transaction that compares the
// create revision of leader and the three records with what was read, and, where no reader may be, the
// create revisions of all keys below h/guard/ or h/bridge/ with 0. It compares those below lease-suspended/
// with 0, and so does every acquire.
package etcdlease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/lease"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
)

// Config says where etcd is.
type Config struct {
	// Endpoints are host:port of one or more members.
	Endpoints []string
	// Prefix of all keys; it begins with a slash and does not end with one. Default /slicer.
	Prefix string
	// TLS secures the connections; nil is plain text.
	TLS credentials.TransportCredentials
	// Logger may be nil.
	Logger *slog.Logger
}

// Store is a lease store in etcd. It implements lease.Readers and lease.Writers.
type Store struct {
	cfg       Config
	client    *clientv3.Client
	prefix    string
	suspended string // prefix of the keys that suspend the store
	past      *history
	log       *slog.Logger
	ctx       context.Context // of what runs until Close
	stop      context.CancelFunc
	wg        sync.WaitGroup
	stream    atomic.Int64 // that watches begin on

	mu      sync.Mutex
	checked map[uint64]bool // members whose version is known to do
	closed  bool
}

// Open connects to etcd and checks the version of every member that answers, one
// at least. One that does not is checked when a session is opened later.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if cfg.Prefix == "" {
		cfg.Prefix = "/slicer"
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if len(cfg.Endpoints) == 0 {
		return nil, fmt.Errorf("etcd leases: %w", &assignment.FieldError{Field: "endpoints", Value: "none", Allowed: "host:port of one or more members"})
	}
	if !strings.HasPrefix(cfg.Prefix, "/") || strings.HasSuffix(cfg.Prefix, "/") || len(cfg.Prefix) > 256 {
		return nil, fmt.Errorf("etcd leases: %w", &assignment.FieldError{Field: "prefix", Value: cfg.Prefix, Allowed: "begins with a slash, does not end with one, at most 256 bytes"})
	}
	past := newHistory()
	client, err := connect(cfg, cfg.Endpoints, &past.conns)
	if err != nil {
		return nil, fmt.Errorf("etcd leases: %v: %w", cfg.Endpoints, err)
	}
	s := &Store{cfg: cfg, client: client, prefix: cfg.Prefix + "/lease/", suspended: cfg.Prefix + "/lease-suspended/", past: past, log: cfg.Logger, checked: map[uint64]bool{}}
	s.ctx, s.stop = context.WithCancel(context.Background())
	if err := s.checkVersions(ctx); err != nil {
		s.Close()
		return nil, fmt.Errorf("etcd leases: %w", err)
	}
	return s, nil
}

// connect makes a client, which counts its connections.
func connect(cfg Config, endpoints []string, conns *atomic.Int64) (*clientv3.Client, error) {
	var secured grpc.DialOption = grpc.EmptyDialOption{}
	if cfg.TLS != nil {
		// In place of what the client would make of a tls.Config, which cannot be changed any more.
		secured = grpc.WithTransportCredentials(cfg.TLS)
	}
	return clientv3.New(clientv3.Config{
		Endpoints: endpoints, DialTimeout: 5 * time.Second,
		// etcd refuses clients that ping more often than every 5 s.
		DialKeepAliveTime: 5 * time.Second, DialKeepAliveTimeout: 2 * time.Second,
		// Windows that are fixed need no pings to find their size: all messages are small.
		DialOptions: []grpc.DialOption{secured, grpc.WithInitialWindowSize(1 << 20), grpc.WithInitialConnWindowSize(1 << 20),
			grpc.WithStatsHandler(counter{conns})},
		// What the client would log is in the errors that it returns.
		Logger: clientv3.NewCtxClient(context.Background()).GetLogger(),
	})
}

// Close ends the connections and waits for what runs. Sessions run out, unless
// they were closed before.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stop()
	err := s.client.Close() // which ends watches
	s.wg.Wait()
	return err
}

// OpenReader implements lease.Readers. The jobs are checked and bind nothing: etcd
// grants the lease time asked for, and claims in any job.
func (s *Store) OpenReader(ctx context.Context, ttl time.Duration, jobs ...string) (lease.ReadSession, error) {
	if err := lease.CheckJobs(jobs); err != nil {
		return nil, err
	}
	return s.open(ctx, ttl)
}

// OpenWriter implements lease.Writers.
func (s *Store) OpenWriter(ctx context.Context, ttl time.Duration) (lease.WriteSession, error) {
	return s.open(ctx, ttl)
}

func (s *Store) open(ctx context.Context, ttl time.Duration) (*session, error) {
	if err := lease.CheckTTL(ttl); err != nil {
		return nil, err
	}
	if err := s.checkVersions(ctx); err != nil {
		return nil, err
	}
	m, conns := s.past.mark(), s.past.conns.Load()
	// etcd counts whole seconds, and makes it longer than its election timeout.
	resp, err := s.client.Grant(ctx, seconds(ttl))
	if err != nil {
		return nil, explain(ctx, err)
	}
	if granted := time.Duration(resp.TTL) * time.Second; granted < ttl {
		return nil, fmt.Errorf("%w: etcd grants %s where %s were asked for", lease.ErrUnavailable, granted, ttl)
	}
	n := &session{s: s, id: resp.ID, ttl: ttl, era: m.era, held: map[string]*held{}}
	n.checked.Store(conns)
	if err = s.heard(ctx, m, resp.Revision); err == nil {
		err = s.remember(ctx, m, nil)
	}
	if err != nil {
		s.wg.Go(func() { n.discard() })
		return nil, err
	}
	return n, nil
}

// explain maps an error of the client onto those of the contract.
func explain(ctx context.Context, err error) error {
	if ended := ctx.Err(); ended != nil {
		return ended
	}
	var coded interface{ Code() codes.Code }
	if errors.As(err, &coded) && coded.Code() == codes.NotFound {
		return fmt.Errorf("%w: %w", lease.ErrLost, err) // the only thing that etcd does not find
	}
	return fmt.Errorf("%w: %w", lease.ErrUnavailable, err)
}
