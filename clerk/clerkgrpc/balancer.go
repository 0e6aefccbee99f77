package clerkgrpc

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/internal/flight"
	"github.com/slicer-project/slicer/loadbalance/policy"
)

const balancerName = "slicer"

func init() { balancer.Register(builder{}) }

type builder struct{}

func (builder) Name() string { return balancerName }

func (builder) Build(cc balancer.ClientConn, _ balancer.BuildOptions) balancer.Balancer {
	b := &keyBalancer{cc: cc, conns: map[connKey]*conn{}, wake: make(chan struct{}, 1), stop: make(chan struct{})}
	b.wg.Go(b.keep)
	return b
}

// keyBalancer keeps the connections to a job's tasks and tells the picker which
// there are. It has a connection of its own kind for each task, rather than
// gRPC's child balancers, so that one that is idle can be closed and so that a
// change of one costs nothing for the others.
type keyBalancer struct {
	cc   balancer.ClientConn
	wake chan struct{} // of capacity 1: keep has something to do
	stop chan struct{}
	wg   sync.WaitGroup

	turns turns

	mu     sync.Mutex
	job    *job
	config *Config
	conns  map[connKey]*conn
	table  *table
	swept  time.Time
	quiet  int // sweeps that found nothing used
	// inactive: nothing has been sent for so long that all connections are closed. When
	// something is, it connects to that task, and to the others at warmAt, zero at all other
	// times, or after as many RPCs as few counts down from.
	inactive bool
	warmAt   time.Time
	few      atomic.Int32
	ended    bool
}

var errResolver = errors.New("the slicer balancer needs the slicer resolver: see clerkgrpc.DialOptions")

// UpdateClientConnState is balancer.Balancer's: there is a new assignment or a new
// subset.
func (b *keyBalancer) UpdateClientConnState(s balancer.ClientConnState) error {
	n, ok := s.ResolverState.Attributes.Value(clerkStateKey{}).(*clerkState)
	if !ok {
		b.cc.UpdateState(balancer.State{ConnectivityState: connectivity.TransientFailure, Picker: base.NewErrPicker(errResolver)})
		return errResolver
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.job, b.config = n.job, &n.source.cfg
	dead := b.take(n.subset, time.Now())
	b.publish()
	for _, g := range dead { // now that those that leave find others
		g.Die()
	}
	n.source.generation.Store(b.table.generation)
	notify(b.wake)
	return nil
}

// take makes the connections and the table fit a subset and its assignment. It
// returns what is under way at tasks that are dead.
func (b *keyBalancer) take(s *clerk.Subset, now time.Time) (dead []*flight.Group) {
	a := s.Assignment()
	t := &table{
		job: b.job, kind: b.config.Policy, turns: &b.turns, wake: b.wake, few: &b.few, assignment: a,
		entries: make([]entry, a.NumTasks()), generation: newGeneration(a.Generation()),
	}
	if b.table != nil && b.table.assignment == a {
		t.generation = b.table.generation
	}
	_, settled := s.Index()
	alive := 0
	for _, task := range a.Tasks() {
		if task.State != assignment.TaskDead {
			alive++
		}
	}
	settled = settled || s.Len() == alive // no index would make it another
	before := b.conns
	b.conns = make(map[connKey]*conn, a.NumTasks())
	for pos, task := range a.Tasks() {
		key := connKey{task.Name, task.Address}
		c, ok := before[key]
		delete(before, key)
		if !ok {
			c = &conn{task: task, state: connectivity.Idle, flights: new(flight.Group), throttle: b.job.clerk.Throttle(task.Name)}
			c.measure(b.config.Policy)
		}
		b.conns[key] = c
		in := s.Contains(pos)
		// A task that is said to be dead need not be: its reports have stopped. If it
		// still owns something it is still asked.
		if over := b.fit(c, task, in && settled && task.State != assignment.TaskDead, now); over != nil {
			dead = append(dead, over)
		}
		t.entries[pos] = entry{conn: c, flights: c.flights, draining: task.State == assignment.TaskDraining, inSubset: in}
		if in && task.State == assignment.TaskRunning {
			t.any = append(t.any, uint32(pos))
		}
	}
	for _, c := range before {
		b.shut(c, clerk.CloseTaskGone)
		dead = append(dead, c.flights)
	}
	b.table = t
	return dead
}

// fit makes a connection fit what is known of its task now. What it returns is
// that of conn.follows.
func (b *keyBalancer) fit(c *conn, task assignment.Task, warm bool, now time.Time) (over *flight.Group) {
	if task.Incarnation != c.task.Incarnation && c.state != connectivity.Ready {
		// Another process: whatever kept the one before from answering is over.
		b.shut(c, clerk.CloseFailed)
		c.failing = false
	}
	over = c.follows(task)
	c.left = !warm && (c.warm || c.left)
	c.warm = warm
	if warm && !b.inactive && b.warmAt.IsZero() {
		b.heat(c, now)
	}
	c.follow()
	return over
}

// heat connects to a task of the subset.
func (b *keyBalancer) heat(c *conn, now time.Time) {
	if c.sub == nil || c.state == connectivity.Idle {
		b.connect(c, now)
	}
}

// connect begins to connect, unless gRPC is waiting before it tries again.
func (b *keyBalancer) connect(c *conn, now time.Time) {
	if b.ended {
		return
	}
	if c.sub == nil {
		sub := &subConn{}
		address := resolver.Address{Addr: c.task.Address}
		if b.config.Authority != nil {
			address.ServerName = b.config.Authority(c.task)
		}
		//lint:ignore SA1019 it is only to take one address, as it does here; nothing else makes connections.
		sc, err := b.cc.NewSubConn([]resolver.Address{address}, balancer.NewSubConnOptions{
			HealthCheckEnabled: b.config.HealthCheck,
			StateListener:      func(s balancer.SubConnState) { b.heard(c, sub, s) },
		})
		if err != nil {
			c.err = err
			return
		}
		sub.sc = sc
		c.sub, c.state = sub, connectivity.Idle
	}
	if c.state == connectivity.Idle {
		c.state, c.since = connectivity.Connecting, now
		c.sub.sc.Connect()
	}
}

// shut ends a connection; RPCs on it go on to their end.
func (b *keyBalancer) shut(c *conn, why clerk.CloseCause) {
	c.ready.Store(nil)
	c.closed(b.job.clerk, why)
	if c.sub != nil {
		c.sub.sc.Shutdown()
		c.sub = nil
	}
	c.state, c.left, c.idle = connectivity.Idle, false, 0
	c.wanted.Store(false)
}

// heard is told by gRPC how a connection does.
func (b *keyBalancer) heard(c *conn, sub *subConn, s balancer.SubConnState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.sub != sub || b.ended {
		return
	}
	now := time.Now()
	c.state = s.ConnectivityState
	switch s.ConnectivityState {
	case connectivity.Ready:
		c.failing, c.err = false, nil
		c.wanted.Store(false)
		c.opened(b.job.clerk)
		c.told.Store(nil)
		c.ready.Store(sub)
	case connectivity.TransientFailure:
		// It cannot be reached, or it says that it does not serve.
		c.ready.Store(nil)
		c.failing, c.err = true, s.ConnectionError
	case connectivity.Idle:
		c.ready.Store(nil)
		c.closed(b.job.clerk, clerk.CloseFailed)
		if c.warm || c.wanted.Load() {
			c.wanted.Store(false)
			b.connect(c, now)
		} else {
			c.failing = false // the next request finds out
		}
	}
	c.follow()
	b.publish()
	notify(b.wake)
}

// publish makes the table the picker, and has waiting RPCs pick again.
func (b *keyBalancer) publish() {
	if b.table == nil || b.ended {
		return
	}
	counts := map[connectivity.State]int{}
	for _, c := range b.conns {
		if c.failing && c.state != connectivity.Ready {
			counts[connectivity.TransientFailure]++
		} else {
			counts[c.state]++
		}
	}
	state := connectivity.Idle
	switch {
	case counts[connectivity.Ready] > 0:
		state = connectivity.Ready
	case counts[connectivity.Connecting] > 0:
		state = connectivity.Connecting
	case counts[connectivity.TransientFailure] > 0 && counts[connectivity.Idle] == 0:
		state = connectivity.TransientFailure
	}
	b.cc.UpdateState(balancer.State{ConnectivityState: state, Picker: b.table})
}

// ResolverError is balancer.Balancer's. The resolver tells of none.
func (b *keyBalancer) ResolverError(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.table == nil && !b.ended {
		b.cc.UpdateState(balancer.State{
			ConnectivityState: connectivity.TransientFailure,
			Picker:            base.NewErrPicker(fmt.Errorf("slicer: %w", err)),
		})
	}
}

// UpdateSubConnState is balancer.Balancer's, for balancers without listeners.
func (b *keyBalancer) UpdateSubConnState(balancer.SubConn, balancer.SubConnState) {}

// ExitIdle is balancer.Balancer's. Warm connections need no telling, unless there are none
// since nothing is sent: grpc.ClientConn.Connect opens them.
func (b *keyBalancer) ExitIdle() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.inactive {
		b.inactive, b.quiet, b.warmAt = false, 0, time.Now()
		notify(b.wake)
	}
}

// Close is balancer.Balancer's.
func (b *keyBalancer) Close() {
	b.mu.Lock()
	for _, c := range b.conns {
		b.shut(c, clerk.CloseShutdown)
	}
	b.ended = true
	b.mu.Unlock()
	close(b.stop)
	b.wg.Wait()
}

func notify(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// turns count for policy.RoundRobin: slices that lie apart take turns of their own
// mostly, so that two that are asked for in turn do not each get one owner.
type turns [256]atomic.Uint64

func (t *turns) next(k assignment.SliceKey, kind policy.Kind, random func() uint64) uint64 {
	if kind == policy.RoundRobin {
		return t[k>>(assignment.KeyBits-8)&255].Add(1)
	}
	return random()
}
