package demo

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/slicelet/sliceletgrpc"
)

// drainLimit bounds how long a server may take to drain and stop.
const drainLimit = 15 * time.Second

// server is one cache server: a gRPC server that keeps what it was asked for
// while it owns the key.
type server struct {
	name     string
	addr     string
	cable    *cable
	grpc     *grpc.Server
	slicelet *slicelet.Slicelet
	leases   *leases // nil in affinity mode
	custom   bool    // the job's load is what calls carry
	stopped  chan struct{}

	mu   sync.Mutex
	rows map[string]struct{}

	room chan struct{} // a slot for each call that it works on; nil but in the scene of overload
}

func startServer(name, job string, plane addresses, custom bool, cfg *Config) (*server, error) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &server{
		name: name, addr: lis.Addr().String(), cable: newCable(),
		custom: custom, stopped: make(chan struct{}), rows: map[string]struct{}{},
	}
	if cfg.Consistent {
		if s.leases, err = openLeases(plane.distributor, s.cable); err != nil {
			lis.Close()
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	s.slicelet, err = slicelet.New(slicelet.Config{
		Job: job, Task: name, Address: s.addr, Leases: s.leases.forSlicelet(),
		Distributors: []string{plane.distributor}, Backups: []string{plane.backup},
		Logger: slog.New(slog.DiscardHandler), // the demo shows what happens
		DialOptions: []grpc.DialOption{
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(s.cable.dial),
		},
	})
	if err != nil {
		lis.Close()
		s.leases.close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	s.slicelet.Listen(s)
	s.grpc = grpc.NewServer()
	if cfg.Overload {
		s.room = make(chan struct{}, slotsOf(cfg))
		s.grpc = grpc.NewServer(sliceletgrpc.ServerOptions(s.slicelet, sliceletgrpc.Config{})...)
	}
	s.grpc.RegisterService(&cacheService, s)
	go func() {
		defer close(s.stopped)
		// It returns when the server is stopped, or killed.
		_ = s.grpc.Serve(s.cable.listener(lis))
	}()
	return s, nil
}

// get answers any call, as the owner or not: in affinity mode both are right. In
// consistent mode it refuses what is not its own, from the first moment to the last.
func (s *server) get(ctx context.Context, key string) (flags uint32, err error) {
	h, counted := sliceletgrpc.HandleFrom(ctx)
	if !counted {
		h = s.slicelet.Handle(key)
	}
	if s.leases != nil {
		if !h.Owned() {
			return 0, errNotMine
		}
		defer func() {
			if !h.AssignedContinuously() {
				flags, err = 0, errNotMine
			}
		}()
	}
	if s.custom {
		load := 1.
		if v := metadata.ValueFromIncomingContext(ctx, loadHeader); len(v) == 1 {
			if load, err = strconv.ParseFloat(v[0], 64); err != nil {
				return 0, err
			}
		}
		s.slicelet.ReportLoad(key, load)
	}
	if err := s.work(ctx); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.rows[key]; ok {
		flags |= flagHit
	}
	if h.Owned() {
		flags |= flagOwned
		s.rows[key] = struct{}{}
	}
	return flags, nil
}

// SlicesChanged forgets what belongs to others now.
func (s *server) SlicesChanged(_ context.Context, c slicelet.Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.rows {
		k := assignment.KeyOf(key)
		for _, d := range c.Departed {
			if d.Contains(k) {
				delete(s.rows, key)
				break
			}
		}
	}
}

// kill ends the server as kill -9 would: without telling its peers.
func (s *server) kill() {
	s.cable.sever()
	// The rest is housekeeping within this process; no byte of it gets out.
	s.grpc.Stop()
	if s.leases != nil {
		time.Sleep(leaseTTL) // it believes in its keys, cut off as it is, until its lease is over
	}
	s.slicelet.Close()
	s.leases.close()
	<-s.stopped
}

// drain moves the slices away, waits until no client comes any more, and stops.
func (s *server) drain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, drainLimit)
	defer cancel()
	err := s.slicelet.Drain(ctx)
	s.stop()
	return err
}

// stop ends the server in an orderly way.
func (s *server) stop() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.grpc.GracefulStop()
	}()
	select {
	case <-done:
	case <-time.After(time.Second):
		s.grpc.Stop()
		<-done
	}
	s.slicelet.Close()
	s.leases.close()
	<-s.stopped
}
