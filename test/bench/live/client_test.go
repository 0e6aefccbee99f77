package live

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/test/kit/bed"
)

const (
	// callLimit is long enough for a busy machine.
	callLimit = 20 * time.Second
	// maxCalls bounds a client's calls in flight.
	maxCalls = 1024
	// maxBehind is how late a call may be made. A client that has not had the CPU
	// for longer goes on from there: to make up for it in a burst would be another
	// load than the one that is meant.
	maxBehind = 100 * time.Millisecond
)

// client is a Poisson stream of requests to the owners of their keys.
type client struct {
	clerk *clerk.Clerk
	load  *popularity
	rng   *rand.Rand
	gap   time.Duration // mean
	slots chan struct{}
	calls sync.WaitGroup
	stop  chan struct{}
	done  chan struct{}

	failed atomic.Int64

	mu    sync.Mutex
	conns map[string]*grpc.ClientConn // by address
}

func startClient(tb testing.TB, distributorAddr string, load *popularity, rng *rand.Rand, perSecond float64) *client {
	tb.Helper()
	c := &client{
		load: load, rng: rng, gap: time.Duration(float64(time.Second) / perSecond), slots: make(chan struct{}, maxCalls),
		stop: make(chan struct{}), done: make(chan struct{}), conns: map[string]*grpc.ClientConn{},
	}
	var err error
	if c.clerk, err = clerk.New(clerk.Config{Job: job, Distributors: []string{distributorAddr}}); err != nil {
		tb.Fatal(err)
	}
	go c.offer()
	bed.CloseAtEnd(tb, c.close)
	return c
}

// offer calls, each time when the next call is due.
func (c *client) offer() {
	defer close(c.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	due := time.Now()
	for {
		due = due.Add(time.Duration(c.rng.ExpFloat64() * float64(c.gap)))
		wait := time.Until(due)
		if wait > 0 {
			timer.Reset(wait)
			<-timer.C
		} else if -wait > maxBehind {
			due = time.Now()
		}
		select {
		case <-c.stop:
			return
		default:
		}
		key, choice := c.load.key(c.rng), c.rng.Uint32()
		select {
		case c.slots <- struct{}{}:
			c.calls.Go(func() {
				c.call(key, choice)
				<-c.slots
			})
		default:
			c.failed.Add(1)
		}
	}
}

// call asks one of the key's owners; before there are any there is none to ask.
func (c *client) call(key string, choice uint32) {
	owners := c.clerk.Lookup(key)
	if owners.Len() == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	conn, err := c.conn(owners.At(int(choice % uint32(owners.Len()))))
	if err == nil {
		err = conn.Invoke(ctx, methodTouch, wrapperspb.String(key), &emptypb.Empty{})
	}
	if err != nil {
		c.failed.Add(1)
	}
}

func (c *client) conn(t assignment.Task) (*grpc.ClientConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn, ok := c.conns[t.Address]; ok {
		return conn, nil
	}
	conn, err := grpc.NewClient("passthrough:///"+t.Address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err == nil {
		c.conns[t.Address] = conn
	}
	return conn, err
}

func (c *client) close() error {
	close(c.stop)
	<-c.done
	c.calls.Wait()
	for _, conn := range c.conns {
		conn.Close()
	}
	return c.clerk.Close()
}
