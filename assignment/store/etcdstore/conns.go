package etcdstore

import (
	"context"
	"sync"

	"google.golang.org/grpc/stats"
)

// connections tells when a connection is made, before the first request is sent on it.
type connections struct {
	mu   sync.Mutex
	next chan struct{} // closed at the next one; nil if nothing waits
}

// turn is closed when the next connection is made.
func (c *connections) turn() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next == nil {
		c.next = make(chan struct{})
	}
	return c.next
}

func (c *connections) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }
func (c *connections) HandleRPC(context.Context, stats.RPCStats)                       {}
func (c *connections) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	return ctx
}

func (c *connections) HandleConn(_ context.Context, s stats.ConnStats) {
	if _, ok := s.(*stats.ConnBegin); !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next != nil {
		close(c.next)
		c.next = nil
	}
}
