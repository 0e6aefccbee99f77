package subsetting

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/slicer-project/slicer/assigner"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/store/pebblestore"
	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/backupdist"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/distributor"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"github.com/slicer-project/slicer/slicelet"
)

// Where the parts of a virtual control plane serve.
const (
	assigner1, assigner2       = "10.0.0.1:1", "10.0.0.2:1"
	distributor1, distributor2 = "10.0.1.1:1", "10.0.1.2:1"
	backup                     = "10.0.2.1:1"
)

// plane is a control plane of real parts whose connections are in memory, so that
// it runs on virtual time: two assigners, two Distributors and a Backup
// Distributor on one store.
type plane struct {
	testing.TB
	store store.Backend

	mu        sync.Mutex
	listeners map[string]*bufconn.Listener
	stops     map[string]func()
	metrics   map[string]*prometheus.Registry // of the Distributor that has run last at an address
}

func newPlane(tb testing.TB) *plane {
	p := &plane{TB: tb, listeners: make(map[string]*bufconn.Listener), stops: make(map[string]func()), metrics: make(map[string]*prometheus.Registry)}
	st, err := pebblestore.Open(tb.TempDir(), pebblestore.Config{})
	if err != nil {
		tb.Fatal(err)
	}
	p.store = st
	for _, address := range []string{assigner1, assigner2, distributor1, distributor2, backup} {
		p.start(address)
	}
	return p
}

func (p *plane) close() {
	for _, address := range []string{distributor1, distributor2, backup, assigner1, assigner2} {
		p.stop(address)
	}
	if err := p.store.Close(); err != nil {
		p.Error(err)
	}
}

func (p *plane) dialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			p.mu.Lock()
			l := p.listeners[address]
			p.mu.Unlock()
			if l == nil {
				return nil, errors.New("connection refused by " + address)
			}
			return l.DialContext(ctx)
		}),
	}
}

type part interface {
	Register(grpc.ServiceRegistrar)
	Close() error
}

// start starts the part that has this address.
func (p *plane) start(address string) {
	p.Helper()
	var behind part
	var err error
	var options []grpc.ServerOption
	switch address {
	case assigner1, assigner2:
		options = assigner.ServerOptions()
		behind, err = assigner.New(assigner.Config{ID: "a" + address, Address: address, Stores: []assigner.NamedStore{{Backend: p.store}}})
	case backup:
		options = backupdist.ServerOptions()
		behind, err = backupdist.New(backupdist.Config{Store: p.store})
	default:
		options = distributor.ServerOptions()
		p.metrics[address] = prometheus.NewRegistry()
		behind, err = distributor.New(distributor.Config{ID: "d" + address, Assigners: []string{assigner1, assigner2}, DialOptions: p.dialOptions(), Registerer: p.metrics[address]})
	}
	if err != nil {
		p.Fatal(err)
	}
	l, s, served := bufconn.Listen(64<<10), grpc.NewServer(options...), make(chan error, 1)
	behind.Register(s)
	go func() { served <- s.Serve(l) }()
	p.mu.Lock()
	p.listeners[address] = l
	p.mu.Unlock()
	p.stops[address] = func() {
		p.mu.Lock()
		delete(p.listeners, address)
		p.mu.Unlock()
		err := behind.Close()
		s.Stop()
		if err = errors.Join(err, <-served); err != nil {
			p.Error(err)
		}
	}
}

func (p *plane) stop(address string) {
	if stop := p.stops[address]; stop != nil {
		delete(p.stops, address)
		stop()
	}
}

// count is a metric of a Distributor, over all that have the kind or role, any if it is
// empty.
func (p *plane) count(address, name, kind string) (sum int) {
	p.Helper()
	all, err := p.metrics[address].Gather()
	if err != nil {
		p.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.Metric {
			of := kind == ""
			for _, l := range m.Label {
				of = of || (l.GetName() == "kind" || l.GetName() == "role") && l.GetValue() == kind
			}
			if of {
				sum += int(m.GetCounter().GetValue() + m.GetGauge().GetValue())
			}
		}
	}
	return sum
}

// subscribers is how many a Distributor has.
func (p *plane) subscribers(address string) int {
	return p.count(address, "slicer_distributor_subscribers", "")
}

func (p *plane) putJob() { p.putConfig(assignment.JobConfig{Name: job}) }

func (p *plane) putConfig(cfg assignment.JobConfig) {
	p.Helper()
	conn, err := grpc.NewClient("passthrough:///"+distributor1, p.dialOptions()...)
	if err != nil {
		p.Fatal(err)
	}
	defer conn.Close()
	for range 100 {
		time.Sleep(100 * time.Millisecond)
		_, err = slicerv1.NewAdminServiceClient(conn).PutJob(p.Context(), &slicerv1.PutJobRequest{Config: wire.JobToProto(cfg)})
		if err == nil {
			return
		}
	}
	p.Fatal(err)
}

func (p *plane) server(name string) *slicelet.Slicelet {
	p.Helper()
	s, err := slicelet.New(slicelet.Config{
		Job: job, Task: name, Address: "10.1.0.1:1", DialOptions: p.dialOptions(),
		Distributors: []string{distributor1, distributor2}, Backups: []string{backup},
	})
	if err != nil {
		p.Fatal(err)
	}
	return s
}

func (p *plane) client(name string) *clerk.Clerk {
	p.Helper()
	c, err := clerk.New(clerk.Config{
		Job: job, ClientID: name, Subset: clerk.SubsetConfig{Size: 3}, DialOptions: p.dialOptions(),
		Distributors: []string{distributor1, distributor2}, Backups: []string{backup},
	})
	if err != nil {
		p.Fatal(err)
	}
	return c
}

// crowd is clients that live, by number.
type crowd struct {
	*plane
	clerks map[int]*clerk.Clerk
	next   int
	// held is the index that each had when it was last looked at.
	held map[int]int
}

func (c *crowd) come(n int) {
	for range n {
		c.clerks[c.next] = c.plane.client(fmt.Sprintf("client-%03d", c.next))
		c.next++
	}
}

func (c *crowd) leave(numbers ...int) {
	c.Helper()
	for _, n := range numbers {
		if err := c.clerks[n].Close(); err != nil {
			c.Error(err)
		}
		delete(c.clerks, n)
		delete(c.held, n)
	}
}

// check has each live client hold an index of its own, below limit, and the one
// that it held before if it held one.
func (c *crowd) check(what string, limit int) {
	c.Helper()
	by := make(map[int]int)
	for n, ck := range c.clerks {
		s := ck.Subset()
		if s == nil {
			c.Fatalf("%s: client %d has no assignment", what, n)
		}
		index, known := s.Index()
		if !known || index >= limit {
			c.Errorf("%s: client %d has index %d, known: %v; want one below %d", what, n, index, known, limit)
		}
		if other, taken := by[index]; taken {
			c.Errorf("%s: clients %d and %d have index %d", what, n, other, index)
		}
		if before, ok := c.held[n]; ok && before != index {
			c.Errorf("%s: client %d had index %d and has %d", what, n, before, index)
		}
		by[index], c.held[n] = n, index
	}
}
