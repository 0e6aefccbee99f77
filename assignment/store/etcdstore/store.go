package etcdstore

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/store/internal/record"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// Store is a store.Backend on etcd.
type Store struct {
	cfg    Config
	layout record.Layout
	idSeal string // value of the identity's record, as every write compares it
	client *clientv3.Client

	// ctx ends with the store; running is what Close waits for.
	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup

	failed  chan struct{}
	trouble atomic.Pointer[error] // of the last request, nil if it was answered
	conns   connections

	mu        sync.Mutex
	closed    bool
	err       error            // why failed is closed
	states    map[string]state // newest that is known of each job
	overrides map[string]knownOverrides
	sweeper   bool // the collector runs
}

var _ store.Backend = (*Store)(nil)

// Open connects to a store and makes it if it is not there. It returns when etcd
// has answered; its errors name the endpoints.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	s, err := connect(cfg)
	if err != nil {
		return nil, err
	}
	if err := identify(ctx, s); err != nil {
		_ = s.Close()
		return nil, fmt.Errorf("open store %s: %w", s.cfg.where(), err)
	}
	return s, nil
}

// connect is Open before anything is asked of etcd.
func connect(cfg Config) (*Store, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	s := &Store{
		cfg: cfg, failed: make(chan struct{}),
		layout: record.Layout{Prefix: cfg.Prefix + "/", Compress: cfg.Compress},
		states: make(map[string]state), overrides: make(map[string]knownOverrides),
	}
	var err error
	s.client, err = clientv3.New(clientv3.Config{
		Endpoints: cfg.Endpoints,
		// A peer that has vanished without a word is noticed by these pings; etcd
		// refuses clients that ping more often than every 5 s.
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: 3 * time.Second,
		DialTimeout:          cfg.RequestTimeout,
		DialOptions:          append(slices.Clone(cfg.dialOptions), secured(cfg.TLS), grpc.WithChainUnaryInterceptor(s.noteTrouble), grpc.WithStatsHandler(&s.conns)),
		// What the client would say is said by the errors that it returns.
		Logger: clientv3.NewCtxClient(context.Background()).GetLogger(),
	})
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", cfg.where(), err)
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s, nil
}

// secured takes the place of what the client would make of a tls.Config, which cannot be
// changed any more.
func secured(creds credentials.TransportCredentials) grpc.DialOption {
	if creds == nil {
		return grpc.EmptyDialOption{}
	}
	return grpc.WithTransportCredentials(creds)
}

// identify reads the store's identity, or gives it one. An etcd that is just
// starting is waited for.
func identify(ctx context.Context, s *Store) error {
	ctx, done, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	key := s.layout.ID()
	resp, err := s.view(ctx, clientv3.OpGet(key))
	if err != nil {
		return err
	}
	value, rev := got(resp, 0)
	if rev == 0 {
		value = s.layout.EncodeIdentity(record.Identity{StoreID: random()})
		resp, err = s.commit(ctx, txn{
			when: []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", 0)},
			do:   []clientv3.Op{clientv3.OpPut(key, string(value))},
			els:  []clientv3.Op{clientv3.OpGet(key)},
		})
		if err != nil {
			return err
		}
		if !resp.Succeeded {
			value, _ = got(resp, 0)
		}
	}
	id, err := s.layout.DecodeIdentity(value)
	if err != nil {
		return err
	}
	s.layout.StoreID, s.idSeal = id.StoreID, string(value)
	return nil
}

// random is never 0.
func random() uint64 {
	var b [8]byte
	for {
		_, _ = rand.Read(b[:]) // never fails
		if v := binary.LittleEndian.Uint64(b[:]); v != 0 {
			return v
		}
	}
}

// ID implements store.Store.
func (s *Store) ID() uint64 { return s.layout.StoreID }

// Failed implements store.Backend. It is closed when the store was wiped and made anew,
// under another id.
func (s *Store) Failed() <-chan struct{} { return s.failed }

// Err implements store.Backend.
func (s *Store) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// fail ends the store's work here for good.
func (s *Store) fail(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
		close(s.failed)
		s.cfg.Logger.Error("store failed", "store", s.cfg.where(), "error", err)
	}
	return s.err
}

// Close implements store.Store. It withdraws the registrations, for which it
// takes some seconds when etcd does not answer, and waits for what the store
// runs. Calls under way end with ErrClosed.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stop()
	s.running.Wait()
	_ = s.client.Close() // there is nothing left to say
	return nil
}

// goRun runs f until it returns, which it does when s.ctx ends. It does nothing
// once the store is closed.
func (s *Store) goRun(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.running.Go(f)
	return true
}
