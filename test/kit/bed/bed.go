// Package bed is what tests that cross packages stand on: a control plane in this
// process, of any number of assigners and Distributors on one store, each behind
// a real gRPC server on loopback, that can be stopped and started again.
package bed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assigner"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/porttest"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/store/pebblestore"
	"github.com/slicer-project/slicer/assignment/trace"
	"github.com/slicer-project/slicer/assignment/waittest"
	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/backupdist"
	"github.com/slicer-project/slicer/distributor"
	"github.com/slicer-project/slicer/lease"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// Config says what the control plane is made of. The zero value is one assigner
// and one Distributor on Pebble.
type Config struct {
	// Assigners and Distributors are how many; 0 stands for 1.
	Assigners, Distributors int
	// Backup adds a Backup Distributor.
	Backup bool
	// Store is nil for Pebble in a directory of the test's.
	Store store.Backend
	// Leases are for jobs in consistent mode; may be nil.
	Leases lease.Writers
	Logger *slog.Logger
	// Registerer takes the metrics of the assigners; may be nil.
	Registerer prometheus.Registerer
	// Tracer takes the spans of assigners and Distributors; may be nil.
	Tracer trace.Tracer
	// Register adds more services to a Distributor's server; may be nil.
	Register func(grpc.ServiceRegistrar)
}

// Plane is a running control plane. It ends with the test.
type Plane struct {
	Assigners, Distributors []*Server
	Backup                  *Server // nil without
	Store                   store.Backend
}

// Server is a part of the control plane behind a gRPC server at an address of its
// own. It is not safe for concurrent use.
type Server struct {
	Addr string

	make    func() (part, error)
	options []grpc.ServerOption
	behind  part
	grpc    *grpc.Server
	done    chan error
}

type part interface {
	Register(grpc.ServiceRegistrar)
	Close() error
}

// Start starts a control plane. It does not wait until that is ready: PutJob does.
func Start(tb testing.TB, cfg Config) *Plane {
	tb.Helper()
	p := &Plane{Store: cfg.Store}
	if p.Store == nil {
		db, err := pebblestore.Open(tb.TempDir(), pebblestore.Config{Timeout: waittest.Patience})
		if err != nil {
			tb.Fatal(err)
		}
		CloseAtEnd(tb, db.Close)
		p.Store = db
	}
	var addrs []string
	for i := range max(cfg.Assigners, 1) {
		id, lis := fmt.Sprintf("assigner-%d", i), lasting(tb)
		addr := lis.Addr().String()
		addrs = append(addrs, addr)
		p.Assigners = append(p.Assigners, start(tb, lis, assigner.ServerOptions(), func() (part, error) {
			return assigner.New(assigner.Config{ID: id, Address: addr, Stores: []assigner.NamedStore{{Backend: p.Store, Leases: cfg.Leases}}, Logger: cfg.Logger, Registerer: cfg.Registerer, Tracer: cfg.Tracer})
		}))
	}
	for i := range max(cfg.Distributors, 1) {
		id := fmt.Sprintf("distributor-%d", i)
		p.Distributors = append(p.Distributors, start(tb, lasting(tb), distributor.ServerOptions(), func() (part, error) {
			d, err := distributor.New(distributor.Config{ID: id, Assigners: addrs, Logger: cfg.Logger, Tracer: cfg.Tracer})
			if err != nil || cfg.Register == nil {
				return d, err
			}
			return extended{d, cfg.Register}, nil
		}))
	}
	if cfg.Backup {
		p.Backup = start(tb, lasting(tb), backupdist.ServerOptions(), func() (part, error) {
			return backupdist.New(backupdist.Config{Store: p.Store, Logger: cfg.Logger})
		})
	}
	return p
}

// extended is a Distributor with more services beside its own.
type extended struct {
	*distributor.Distributor
	more func(grpc.ServiceRegistrar)
}

func (e extended) Register(r grpc.ServiceRegistrar) {
	e.Distributor.Register(r)
	e.more(r)
}

func start(tb testing.TB, lis net.Listener, opts []grpc.ServerOption, make func() (part, error)) *Server {
	tb.Helper()
	s := &Server{Addr: lis.Addr().String(), make: make, options: opts}
	if err := s.serve(lis); err != nil {
		tb.Fatal(errors.Join(err, lis.Close()))
	}
	CloseAtEnd(tb, s.Stop)
	return s
}

func (s *Server) serve(lis net.Listener) (err error) {
	if s.behind, err = s.make(); err != nil {
		return err
	}
	s.grpc, s.done = grpc.NewServer(s.options...), make(chan error, 1)
	s.behind.Register(s.grpc)
	if d, ok := s.behind.(interface {
		Admit(net.Listener) net.Listener
	}); ok {
		lis = d.Admit(lis)
	}
	go func(g *grpc.Server, done chan<- error) { done <- g.Serve(lis) }(s.grpc, s.done)
	return nil
}

// Stop ends it; what it said before is all that is known of it. Stopping twice is
// as good as once.
func (s *Server) Stop() error {
	if s.grpc == nil {
		return nil
	}
	err := s.behind.Close()
	s.grpc.Stop()
	err = errors.Join(err, <-s.done)
	s.grpc = nil
	return err
}

// Restart starts a new incarnation at the same address.
func (s *Server) Restart() error {
	if err := s.Stop(); err != nil {
		return err
	}
	lis, err := net.Listen("tcp", s.Addr)
	if err != nil {
		return err
	}
	if err := s.serve(lis); err != nil {
		return errors.Join(err, lis.Close())
	}
	return nil
}

// Addrs are where the Distributors serve.
func (p *Plane) Addrs() (addrs []string) {
	for _, d := range p.Distributors {
		addrs = append(addrs, d.Addr)
	}
	return addrs
}

// PutJob makes a job as an operator would, through a Distributor, waiting for that
// to reach its assigner.
func (p *Plane) PutJob(ctx context.Context, cfg assignment.JobConfig) error {
	conn, err := grpc.NewClient(p.Distributors[0].Addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	admin := slicerv1.NewAdminServiceClient(conn)
	for {
		_, err = admin.PutJob(ctx, &slicerv1.PutJobRequest{Config: wire.JobToProto(cfg)})
		if status.Code(err) != codes.Unavailable {
			return err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
}

// lasting listens on a port for Restart: one that the kernel chooses may go to another
// process while the server is down.
func lasting(tb testing.TB) net.Listener {
	tb.Helper()
	var err error
	for range 10 { // another process may look for one, too
		var free []string
		if free, err = porttest.Free(1); err != nil {
			break
		}
		var lis net.Listener
		if lis, err = net.Listen("tcp", free[0]); err == nil {
			return lis
		}
	}
	tb.Fatal(err)
	return nil
}

// Listen listens on loopback.
func Listen(tb testing.TB) net.Listener {
	tb.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	return lis
}

// Serve serves until the test is over; closeBehind ends what is behind the server.
func Serve(tb testing.TB, lis net.Listener, register func(grpc.ServiceRegistrar), closeBehind func() error, opts ...grpc.ServerOption) {
	s := grpc.NewServer(opts...)
	register(s)
	done := make(chan error, 1)
	go func() { done <- s.Serve(lis) }()
	CloseAtEnd(tb, func() error {
		err := closeBehind()
		s.Stop()
		return errors.Join(err, <-done)
	})
}

// ServeHTTP is Serve for an HTTP server.
func ServeHTTP(tb testing.TB, lis net.Listener, handler http.Handler, closeBehind func() error) {
	s := &http.Server{Handler: handler}
	done := make(chan error, 1)
	go func() { done <- s.Serve(lis) }()
	CloseAtEnd(tb, func() error {
		_ = s.Close()
		<-done // that it was closed
		return closeBehind()
	})
}

// CloseAtEnd ends something with the test, which fails if that fails.
func CloseAtEnd(tb testing.TB, end func() error) {
	tb.Cleanup(func() {
		if err := end(); err != nil {
			tb.Error(err)
		}
	})
}
