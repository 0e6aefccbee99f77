package autosharding

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/distributor/autosharding/autoshardingtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const job = "web"

// client behaves as the protocol asks of one: it stays connected, to one
// Distributor or the next, says what it has, fills what it gets and acknowledges it.
type client struct {
	t      *testing.T
	uuid   string
	conns  []*grpc.ClientConn
	cancel context.CancelFunc
	done   chan struct{}

	mu      sync.Mutex
	refuses bool
	got     []*autoshardingtest.Assignment
	filled  []autoshardingtest.Slice // of the newest
	streams int                      // that have begun
	ended   []codes.Code             // how they ended
	changed chan struct{}
}

func newClient(t *testing.T, uuid string, addrs ...string) *client {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	c := &client{t: t, uuid: uuid, cancel: cancel, done: make(chan struct{}), changed: make(chan struct{})}
	for _, a := range addrs {
		cc, err := grpc.NewClient(a, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		c.conns = append(c.conns, cc)
	}
	go c.run(ctx)
	t.Cleanup(c.close)
	return c
}

func (c *client) close() {
	c.cancel()
	<-c.done
	for _, cc := range c.conns {
		cc.Close()
	}
}

func (c *client) run(ctx context.Context) {
	defer close(c.done)
	for i := 0; ctx.Err() == nil; i++ {
		err := c.follow(ctx, c.conns[i%len(c.conns)])
		c.mu.Lock()
		c.ended = append(c.ended, status.Code(err))
		c.mu.Unlock()
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

func (c *client) follow(ctx context.Context, cc *grpc.ClientConn) error {
	s, err := autoshardingtest.Watch(ctx, cc, job, c.uuid, c.latest())
	if err != nil {
		return err
	}
	defer s.Close()
	c.mu.Lock()
	c.streams++
	c.mu.Unlock()
	for {
		// Next fails if the generation is not above the one that the stream began with.
		a, err := s.Next()
		if err != nil {
			if status.Code(err) == codes.Unknown {
				c.t.Error(err)
			}
			return err
		}
		filled, _, err := a.Fill()
		c.mu.Lock()
		switch {
		case err != nil:
			c.t.Errorf("generation %d: %v", a.Generation, err)
			s.Nack(a.Generation, err.Error())
		case c.refuses:
			s.Nack(a.Generation, "told to refuse")
		default:
			c.got, c.filled = append(c.got, a), filled
			s.Ack(a.Generation, "")
		}
		close(c.changed)
		c.changed = make(chan struct{})
		c.mu.Unlock()
	}
}

func (c *client) latest() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.got) == 0 {
		return 0
	}
	return c.got[len(c.got)-1].Generation
}

// until waits until the client's newest assignment is as wanted.
func (c *client) until(what string, ok func(a *autoshardingtest.Assignment, filled []autoshardingtest.Slice) bool) {
	c.t.Helper()
	limit := time.After(time.Minute)
	for {
		c.mu.Lock()
		var a *autoshardingtest.Assignment
		if n := len(c.got); n > 0 {
			a = c.got[n-1]
		}
		filled, changed, ended := c.filled, c.changed, fmt.Sprint(c.ended)
		c.mu.Unlock()
		if a != nil && ok(a, filled) {
			return
		}
		select {
		case <-changed:
		case <-limit:
			c.t.Fatalf("client %s waits in vain for %s; its streams ended with %s", c.uuid, what, ended)
		}
	}
}

// owners are the endpoints of all slices of the client's newest assignment.
func owners(a *autoshardingtest.Assignment, filled []autoshardingtest.Slice) map[string]bool {
	all := make(map[string]bool)
	for _, s := range filled {
		for _, e := range s.Endpoints {
			all[a.Endpoints[e]] = true
		}
	}
	return all
}
