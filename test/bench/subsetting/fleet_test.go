package subsetting

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/test/kit/bed"
)

const job = "fleet"

// server is a listener that counts, with a slicelet while it is up.
type server struct {
	net.Listener
	name           string
	opened, closed atomic.Int64
	slicelet       *slicelet.Slicelet
}

func (s *server) Accept() (net.Conn, error) {
	c, err := s.Listener.Accept()
	if err != nil {
		return nil, err
	}
	s.opened.Add(1)
	return &counted{Conn: c, of: s}, nil
}

type counted struct {
	net.Conn
	of   *server
	once sync.Once
}

func (c *counted) Close() error {
	c.once.Do(func() { c.of.closed.Add(1) })
	return c.Conn.Close()
}

func (s *server) open() int { return int(s.opened.Load() - s.closed.Load()) }

// fleet is servers and a control plane.
type fleet struct {
	testing.TB
	scale
	plane   *bed.Plane
	servers []*server
	pools   []*pool // of plain clients
	// client makes one that keeps connections to its clerk's subset.
	client func(*clerk.Clerk) (closer, error)
}

type closer interface{ Close() error }

// newFleet has the servers listen and starts those that are there first. serve returns when its
// listener is closed; end is called before that.
func newFleet(tb testing.TB, c scale, serve func(net.Listener) error, end func()) *fleet {
	f := &fleet{TB: tb, scale: c, plane: bed.Start(tb, bed.Config{})}
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	if err := f.plane.PutJob(ctx, assignment.JobConfig{Name: job, HeartbeatTimeout: 30 * time.Second}); err != nil {
		tb.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range c.more {
		s := &server{Listener: bed.Listen(tb), name: fmt.Sprintf("server-%03d", i)}
		f.servers = append(f.servers, s)
		wg.Go(func() {
			if err := serve(s); err != nil && !errors.Is(err, net.ErrClosed) {
				tb.Error(err)
			}
		})
	}
	bed.CloseAtEnd(tb, func() error {
		var err error
		for _, s := range f.servers {
			err = errors.Join(err, s.stop())
		}
		end()
		for _, s := range f.servers {
			_ = s.Listener.Close() // end may have done it
		}
		wg.Wait()
		return err
	})
	f.start(f.servers[:c.before])
	return f
}

// start starts slicelets.
func (f *fleet) start(servers []*server) {
	f.Helper()
	for _, s := range servers {
		var err error
		s.slicelet, err = slicelet.New(slicelet.Config{
			Job: job, Task: s.name, Address: s.Addr().String(), Distributors: f.plane.Addrs(),
		})
		if err != nil {
			f.Fatal(err)
		}
	}
}

// drain stops servers as an operator does: nothing waits for heartbeats of a drained one.
func (f *fleet) drain(servers []*server) {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), 4*time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for _, s := range servers {
		wg.Go(func() {
			if err := errors.Join(s.slicelet.Drain(ctx), s.stop()); err != nil {
				f.Error(err)
			}
		})
	}
	wg.Wait()
}

func (s *server) stop() error {
	if s.slicelet == nil {
		return nil
	}
	err := s.slicelet.Close()
	s.slicelet = nil
	return err
}

// connect makes the clients, with clerks that have a subset.
func (f *fleet) connect() (metrics prometheus.Gatherers, clerks []*clerk.Clerk, end func()) {
	f.Helper()
	var ends []func() error
	end = func() {
		for _, c := range ends {
			if err := c(); err != nil {
				f.Error(err)
			}
		}
	}
	for i := range f.clients {
		registry := prometheus.NewRegistry()
		metrics = append(metrics, registry)
		ck, err := clerk.New(clerk.Config{
			Job: job, ClientID: fmt.Sprintf("client-%03d", i), Distributors: f.plane.Addrs(),
			Subset: clerk.SubsetConfig{Size: f.size}, Registerer: registry,
		})
		if err != nil {
			end()
			f.Fatal(err)
		}
		c, err := f.client(ck)
		if err != nil {
			end()
			f.Fatal(errors.Join(err, ck.Close()))
		}
		ends = append(ends, c.Close, ck.Close)
		clerks = append(clerks, ck)
	}
	return metrics, clerks, end
}

// await polls, since what it waits for is spread over the whole fleet.
func (f *fleet) await(what string, done func() (bool, string)) {
	f.Helper()
	for deadline := time.Now().Add(4 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		ok, state := done()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			f.Fatalf("%s: %s", what, state)
		}
	}
}
