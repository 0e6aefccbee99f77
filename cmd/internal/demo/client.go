package demo

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/loadbalance/overload"
)

const (
	// callLimit is within how long a call must be answered, retry included.
	callLimit = time.Second
	// tryLimit is how long the first task gets, so that a second can still answer.
	tryLimit = callLimit * 3 / 4
	// maxCalls bounds a client's calls in flight: past it the client has failed
	// to call, which counts as an error.
	maxCalls = 4096
	// timedCalls is of how many calls the lookup of one is timed.
	timedCalls = 8
)

// client calls as a user's program would: a clerk says which task owns the key, and
// connections to tasks are made when they are first needed.
type client struct {
	clerk      *clerk.Clerk
	meter      *meter
	consistent bool
	routed     *grpc.ClientConn // to the task that owns the key; nil but in the scene of overload
	slots      chan struct{}
	calls      sync.WaitGroup

	mu    sync.Mutex
	conns map[string]*grpc.ClientConn // by address
}

func newClient(name, job string, plane addresses, m *meter, cfg *Config) (*client, error) {
	ck, err := clerk.New(clerk.Config{
		Job: job, ClientID: name, Distributors: []string{plane.distributor}, Backups: []string{plane.backup},
		Logger: slog.New(slog.DiscardHandler), // the demo shows what happens
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	c := &client{clerk: ck, meter: m, consistent: cfg.Consistent, slots: make(chan struct{}, maxCalls), conns: map[string]*grpc.ClientConn{}}
	if cfg.Overload {
		if c.routed, err = route(ck, job); err != nil {
			ck.Close()
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return c, nil
}

// start makes a call without waiting for its answer.
func (c *client) start(a arrival) {
	select {
	case c.slots <- struct{}{}:
	default:
		c.meter.record(outcome{load: a.load, criticality: a.criticality})
		return
	}
	c.calls.Go(func() {
		defer func() { <-c.slots }()
		c.call(a)
	})
}

func (c *client) call(a arrival) {
	key, load := a.key, a.load
	if rand.IntN(timedCalls) == 0 {
		c.timeLookup(key)
	}
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	if load != 1 {
		ctx = metadata.AppendToOutgoingContext(ctx, loadHeader, strconv.FormatFloat(load, 'g', -1, 64))
	}
	out := outcome{load: load, criticality: a.criticality}
	began := time.Now()
	switch {
	case c.consistent:
		c.insist(ctx, key, &out)
	case c.routed != nil:
		c.ask(overload.WithCriticality(ctx, a.criticality), key, &out)
	default:
		c.choose(ctx, key, &out)
	}
	// An answer that comes too late is none.
	out.answered = out.answered && time.Since(began) <= callLimit
	c.meter.record(out)
}

// choose asks a task that owns the key, and if that does not answer one other.
func (c *client) choose(ctx context.Context, key string, out *outcome) {
	if owners := c.clerk.Lookup(key); owners.Len() > 0 {
		owner := owners.At(rand.IntN(owners.Len()))
		c.try(ctx, tryLimit, key, owner, out)
		if !out.answered {
			if other, ok := c.other(owners, owner); ok {
				out.retried, out.misrouted = true, true
				c.try(ctx, callLimit, key, other, out)
			}
		}
	}
}

// timeLookup measures what a lookup of the key takes. One alone is shorter than
// a look at the clock.
func (c *client) timeLookup(key string) {
	const n = 16
	began := time.Now()
	for range n {
		c.clerk.Lookup(key)
	}
	c.meter.lookup(time.Since(began) / n)
}

// try asks one task.
func (c *client) try(ctx context.Context, limit time.Duration, key string, t assignment.Task, out *outcome) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	conn, err := c.conn(t.Address)
	if err != nil {
		return
	}
	var flags wrapperspb.UInt32Value
	if err := conn.Invoke(ctx, methodGet, wrapperspb.String(key), &flags); err != nil {
		if status.Code(err) == codes.FailedPrecondition {
			out.refused++
		}
		return
	}
	out.answered, out.task = true, t.Name
	out.hit = flags.Value&flagHit != 0
	out.misrouted = out.misrouted || flags.Value&flagOwned == 0
}

// other is a task to turn to when one does not answer: another owner if there
// is one, else any that runs and is not known to be out of reach.
func (c *client) other(owners assignment.Replicas, failed assignment.Task) (assignment.Task, bool) {
	var fit []assignment.Task
	for t := range owners.All() {
		if t.Name != failed.Name && c.reachable(t.Address) {
			fit = append(fit, t)
		}
	}
	if len(fit) == 0 {
		for _, t := range c.clerk.Assignment().Tasks() {
			if t.Name != failed.Name && t.State == assignment.TaskRunning && c.reachable(t.Address) {
				fit = append(fit, t)
			}
		}
	}
	if len(fit) == 0 {
		return assignment.Task{}, false
	}
	return fit[rand.IntN(len(fit))], true
}

func (c *client) reachable(addr string) bool {
	conn, err := c.conn(addr)
	return err == nil && conn.GetState() != connectivity.TransientFailure
}

func (c *client) conn(addr string) (*grpc.ClientConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn, ok := c.conns[addr]; ok {
		return conn, nil
	}
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err == nil {
		c.conns[addr] = conn
	}
	return conn, err
}

// Close waits for the calls in flight.
func (c *client) Close() {
	c.calls.Wait()
	if c.routed != nil {
		c.routed.Close()
	}
	c.clerk.Close()
	for _, conn := range c.conns {
		conn.Close()
	}
}
