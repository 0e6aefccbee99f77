package front_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/slicer-project/slicer/assignment/store/etcdstore/etcdtest"
	"github.com/slicer-project/slicer/assignment/waittest"
	"github.com/slicer-project/slicer/lease"
	etcdlease "github.com/slicer-project/slicer/lease/etcd"
	"github.com/slicer-project/slicer/lease/front"
	"github.com/slicer-project/slicer/lease/leasetest"
	"github.com/slicer-project/slicer/lease/remote"
)

func TestMain(m *testing.M) { etcdtest.Main(m) }

// bed is fronts of one etcd.
type bed struct {
	t   *testing.T
	cfg etcdlease.Config
	// direct is a store of the etcd, as an assigner has one.
	direct *etcdlease.Store
	limit  time.Duration // lease_duration of every job
	fronts []*served
}

// served is a front that listens.
type served struct {
	front  *front.Front
	store  *etcdlease.Store
	addr   string
	relay  *etcdtest.Relay // slicelets reach it through this
	server *grpc.Server
	done   chan struct{}
}

func newBed(t *testing.T, endpoints []string, fronts int) *bed {
	b := &bed{t: t, cfg: etcdlease.Config{Endpoints: endpoints, Prefix: etcdtest.Prefix(t)}, limit: lease.MaxTTL}
	b.direct = b.open()
	for range fronts {
		f := &served{}
		b.fronts = append(b.fronts, f)
		b.start(f)
		f.relay = etcdtest.NewRelay(t, f.addr)
	}
	t.Cleanup(func() {
		for _, f := range b.fronts {
			b.kill(f)
		}
	})
	return b
}

func (b *bed) open() *etcdlease.Store {
	b.t.Helper()
	st, err := waittest.Answer(lease.ErrUnavailable, func() (*etcdlease.Store, error) { return etcdlease.Open(b.t.Context(), b.cfg) })
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { st.Close() })
	return st
}

// start starts a front, at the address that it had.
func (b *bed) start(f *served, change ...func(*front.Config)) {
	b.t.Helper()
	addr := f.addr
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	lis, err := net.Listen("tcp", addr)
	if err != nil {
		b.t.Fatal(err)
	}
	f.addr = lis.Addr().String()
	cfg := front.Config{
		Store: func(ctx context.Context) (st *etcdlease.Store, err error) {
			f.store, err = etcdlease.Open(ctx, b.cfg)
			return f.store, err
		},
		LeaseTime: func(context.Context, string) (time.Duration, error) { return b.limit, nil },
	}
	for _, c := range change {
		c(&cfg)
	}
	if f.front, err = front.New(cfg); err != nil {
		b.t.Fatal(err)
	}
	f.server, f.done = grpc.NewServer(), make(chan struct{})
	f.front.Register(f.server)
	server, done := f.server, f.done
	go func() {
		defer close(done)
		if err := server.Serve(lis); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			b.t.Errorf("Serve: %v", err)
		}
	}()
}

// kill ends a front as far as that can be done in one process: nothing is given back.
func (b *bed) kill(f *served) {
	if f.server == nil {
		return
	}
	f.server.Stop()
	<-f.done
	if err := f.front.Close(); err != nil {
		b.t.Error(err)
	}
	if f.store != nil {
		f.store.Close()
	}
	f.server, f.store = nil, nil
}

// readers are as a slicelet has them, with connections of its own to all fronts.
func (b *bed) readers() lease.Readers {
	b.t.Helper()
	var conns []grpc.ClientConnInterface
	for _, f := range b.fronts {
		conns = append(conns, dial(b.t, f.relay.Address()))
	}
	return remote.New(conns...)
}

func dial(t *testing.T, addr string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.5, MaxDelay: 200 * time.Millisecond}, MinConnectTimeout: 5 * time.Second}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// spread gives each session readers of its own.
type spread struct {
	b  *bed
	mu sync.Mutex
}

func (s *spread) OpenReader(ctx context.Context, ttl time.Duration, jobs ...string) (lease.ReadSession, error) {
	s.mu.Lock()
	r := s.b.readers()
	s.mu.Unlock()
	return r.OpenReader(ctx, ttl, jobs...)
}

func TestConformance(t *testing.T) {
	for name, fronts := range map[string]int{"one front": 1, "three fronts": 3} {
		t.Run(name, func(t *testing.T) {
			leasetest.Run(t, func(t *testing.T) leasetest.Store {
				b := newBed(t, etcdtest.Start(t), fronts)
				return leasetest.Store{Readers: &spread{b: b}, Writers: b.direct, Suspender: b.direct, TTL: 2 * time.Second}
			})
		})
	}
}
