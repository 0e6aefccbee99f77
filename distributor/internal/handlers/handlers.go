// Package handlers is for gRPC services whose Close ends all calls and waits for them.
package handlers

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ErrClosing is what calls end with once the Group closes.
var ErrClosing = status.Error(codes.Unavailable, "this distributor is shutting down")

// Group counts the handlers of a service and the goroutines that they start. All methods
// are safe for concurrent use.
type Group struct {
	life   context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex
	closed bool
}

// New makes a Group that lives until Close.
func New() *Group {
	g := new(Group)
	g.life, g.cancel = context.WithCancel(context.Background())
	return g
}

// Life ends when the Group closes.
func (g *Group) Life() context.Context { return g.life }

// Done is closed when the Group closes.
func (g *Group) Done() <-chan struct{} { return g.life.Done() }

// Enter counts a handler in, which is to call Leave. The error is ErrClosing when it is too
// late.
func (g *Group) Enter() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return ErrClosing
	}
	g.wg.Add(1)
	return nil
}

// Leave ends what Enter began.
func (g *Group) Leave() { g.wg.Done() }

// Go runs f in a goroutine that Close waits for. It is for handlers that have entered, what
// they have started, and before Close.
func (g *Group) Go(f func()) { g.wg.Go(f) }

// Stop tells all that the Group closes, and lets no handler in from then on.
func (g *Group) Stop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	g.cancel()
}

// Close is Stop, and waits until all have left.
func (g *Group) Close() {
	g.Stop()
	g.wg.Wait()
}

// First is the first message of a stream, waited for until it is late: what says what the
// message is.
func First[M any](g *Group, recv func() (M, error), within time.Duration, what string) (m M, err error) {
	type first struct {
		m   M
		err error
	}
	came := make(chan first, 1)
	g.Go(func() {
		m, err := recv()
		came <- first{m, err}
	})
	late := time.NewTimer(within)
	defer late.Stop()
	select {
	case f := <-came:
		return f.m, f.err
	case <-late.C:
		return m, status.Errorf(codes.DeadlineExceeded, "no %s within %s", what, within)
	case <-g.Done():
		return m, ErrClosing
	}
}

// EndOf is how a stream ends from which err was received: nil when its client has closed it,
// and has nothing more to say.
func EndOf(err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	return nil
}
