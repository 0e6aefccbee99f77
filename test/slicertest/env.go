package slicertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/lease/serve"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"github.com/slicer-project/slicer/slicelet"
)

// distributor is where the environment serves on its own network: an IP address, so that none
// looks it up.
const distributor = "192.0.2.1:4720"

// patience bounds each wait. In a bubble it is virtual time.
const patience = time.Minute

// Env is a control plane in the test's process, and a network. All methods are safe for concurrent
// use.
type Env struct {
	tb      testing.TB // nil: what goes wrong panics
	storeID uint64
	network *network
	server  *grpc.Server
	store   *serve.Store // the leases of jobs in consistent mode
	serving sync.WaitGroup
	ctx     context.Context // ended by Close
	stop    context.CancelFunc

	mu        sync.Mutex
	jobs      map[string]*jobState
	held      map[string]int // how often Hold holds a subscriber, by name
	slicelets []*ownSlicelet
	lines     []*line
	closers   []func() error
}

// ownSlicelet is one that Slicelet has made.
type ownSlicelet struct {
	*slicelet.Slicelet
	env       *Env
	job, task string
	line      *line  // to its leases, nil in affinity mode
	width     uint64 // how many keys listeners have been told that it owns, in consistent mode
}

// New starts an environment that ends with the test. What goes wrong in it fails the test.
func New(tb testing.TB) *Env {
	tb.Helper()
	e := start()
	e.tb = tb
	tb.Cleanup(e.Close)
	return e
}

// Start starts an environment that Close ends, for examples and for TestMain. What goes wrong in
// it panics.
func Start() *Env { return start() }

func start() *Env {
	e := &Env{storeID: rand.Uint64(), network: &network{listeners: make(map[string]*listener)}, jobs: make(map[string]*jobState), held: make(map[string]int)}
	e.server = grpc.NewServer(grpc.WaitForHandlers(true), grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
		MinTime: 5 * time.Second, PermitWithoutStream: true,
	}))
	slicerv1.RegisterSubscriberServiceServer(e.server, subscriberServer{env: e})
	e.ctx, e.stop = context.WithCancel(context.Background())
	began := time.Now()
	e.store, _ = serve.Open(e.ctx, serve.Config{ // nothing is read that could fail
		Storage: records{}, Terms: e.termsOf, Fresh: true, Clock: func() time.Duration { return time.Since(began) },
	})
	e.store.Register(e.server)
	lis, _ := e.network.listen(distributor) // the network is new
	e.serve(lis)
	return e
}

func (e *Env) serve(lis net.Listener) {
	e.serving.Go(func() { _ = e.server.Serve(lis) }) // until Close
}

// fail ends the test.
func (e *Env) fail(err error) {
	if e.tb == nil {
		panic(fmt.Sprintf("slicertest: %v", err))
	}
	e.tb.Helper()
	e.tb.Fatalf("slicertest: %v", err)
}

// helper marks the caller's frame as the environment's in what a test prints.
func (e *Env) helper() {
	if e.tb != nil {
		e.tb.Helper()
	}
}

// Close closes what Clerk and Slicelet have made, the newest first, and ends the environment. It
// returns when all goroutines have ended. Closing twice is as good as once.
func (e *Env) Close() {
	e.mu.Lock()
	closers := e.closers
	e.closers = nil
	e.mu.Unlock()
	for _, end := range slices.Backward(closers) {
		if err := end(); err != nil && e.tb != nil {
			e.tb.Errorf("slicertest: %v", err)
		}
	}
	e.stop()
	e.server.Stop()
	e.serving.Wait()
	_ = e.store.Close()
}

// Distributors is for clerk.Config and slicelet.Config, with DialOptions.
func (e *Env) Distributors() []string { return []string{distributor} }

// DialOptions connect gRPC clients to all that listens on the environment's network, in plain text:
// for clerk.Config and slicelet.Config, and for connections to servers that Listen.
func (e *Env) DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithContextDialer(e.network.dial),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
	}
}

// DialContext connects to what listens on the environment's network. It is for
// http.Transport.DialContext; the network's name is ignored.
func (e *Env) DialContext(ctx context.Context, _, address string) (net.Conn, error) {
	return e.network.dial(ctx, address)
}

// Listen listens on the environment's network, at the Address of a task: for the task's server.
func (e *Env) Listen(task string) net.Listener {
	e.helper()
	lis, err := e.network.listen(Address(task))
	if err != nil {
		e.fail(err)
	}
	return lis
}

// Loopback serves at a port of 127.0.0.1 as well, and returns where, host:port: for programs that
// run as processes, or that take no DialOptions.
func (e *Env) Loopback() string {
	e.helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		e.fail(err)
	}
	e.serve(lis)
	return lis.Addr().String()
}

// Slicelet makes a slicelet that the environment closes, and waits until it is ready and all others
// know of it; one that is Starting it does not wait for. Where the
// config names no Distributors, they are the environment's, and so are Leases in a consistent job; where it names no Address, that is the
// one at which Listen listens.
func (e *Env) Slicelet(cfg slicelet.Config) *slicelet.Slicelet {
	e.helper()
	if cfg.Address == "" {
		cfg.Address = Address(cfg.Task)
	}
	if len(cfg.Distributors)+len(cfg.Backups) == 0 && cfg.Static == nil {
		cfg.Distributors, cfg.DialOptions = e.Distributors(), append(e.DialOptions(), cfg.DialOptions...)
	}
	own := &ownSlicelet{env: e, job: cfg.Job, task: cfg.Task}
	if cfg.Leases == nil && e.isConsistent(cfg.Job) {
		cfg.Leases, own.line = e.reader(cfg.Task)
	}
	s, err := slicelet.New(cfg)
	if err != nil {
		e.fail(err)
	}
	e.own(s.Close)
	own.Slicelet = s
	e.mu.Lock()
	e.slicelets = slices.DeleteFunc(e.slicelets, func(o *ownSlicelet) bool { return o.job == own.job && o.task == own.task })
	e.slicelets = append(e.slicelets, own)
	e.mu.Unlock()
	if own.line != nil {
		s.Listen(own)
	}
	if cfg.Starting || cfg.Static != nil {
		return s
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.Ready(ctx); err != nil {
		e.fail(err)
	}
	if err := e.settle(cfg.Job, e.Assignment(cfg.Job).Generation()); err != nil {
		e.fail(fmt.Errorf("job %q: %w", cfg.Job, err))
	}
	return s
}

// Clerk makes a clerk that the environment closes, and waits until it is ready, unless its job has
// no task yet. Where the config names no Distributors, they are the environment's.
func (e *Env) Clerk(cfg clerk.Config) *clerk.Clerk {
	e.helper()
	if len(cfg.Distributors)+len(cfg.Backups) == 0 && cfg.Static == nil {
		cfg.Distributors, cfg.DialOptions = e.Distributors(), append(e.DialOptions(), cfg.DialOptions...)
	}
	c, err := clerk.New(cfg)
	if err != nil {
		e.fail(err)
	}
	e.own(c.Close)
	if e.Assignment(cfg.Job) == nil {
		return c
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := c.Ready(ctx); err != nil {
		e.fail(err)
	}
	return c
}

// own makes Close end something.
func (e *Env) own(end func() error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closers = append(e.closers, end)
}

// Assignment is the newest of a job, nil if there is none yet.
func (e *Env) Assignment(job string) *assignment.Assignment {
	e.mu.Lock()
	defer e.mu.Unlock()
	if j := e.jobs[job]; j != nil {
		return j.newest
	}
	return nil
}
