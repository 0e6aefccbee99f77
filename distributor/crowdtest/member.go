package crowdtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/status"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// subscribe keeps one subscriber on the Distributor, with the times that package
// subscriber has where it knows one Distributor.
func (c *crowd) subscribe(ctx context.Context, i int, joined func()) {
	c.mu.Lock()
	compressed := c.kind == Compressed
	c.mu.Unlock()
	hello := &slicerv1.Hello{Job: Job, Role: slicerv1.Role_ROLE_CLERK, ClientId: fmt.Sprint("c", i), Compressed: compressed}
	for fails := 0; ctx.Err() == nil; {
		var served time.Time
		err := c.watch(ctx, i, hello, 2*time.Second<<min(fails/2, 2), func() {
			joined()
			if served.IsZero() {
				served = time.Now()
			}
		})
		if ctx.Err() != nil {
			return
		}
		joined()
		asked := retryAfter(err)
		c.mu.Lock()
		switch {
		case asked > 0:
			c.ends.SentAway++
		case errors.Is(err, errTimedOut):
			c.ends.TimedOut++
		case !served.IsZero():
			c.ends.Lost++
		}
		kind := c.kind
		c.mu.Unlock()
		fails++
		switch {
		case kind == AtOnce:
			time.Sleep(time.Until(time.Now().Truncate(250 * time.Millisecond).Add(250 * time.Millisecond)))
		case asked > 0:
			time.Sleep(asked + rand.N(asked/2+1))
		case !served.IsZero() && time.Since(served) >= 5*time.Second:
			fails = 0
			time.Sleep(rand.N(300 * time.Millisecond))
		default:
			most := min(250*time.Millisecond<<min(fails-1, 10), 5*time.Second)
			time.Sleep(most/2 + rand.N(most/2))
		}
	}
}

// retryAfter is how long a subscriber that was moved away is to stay away, 0 if it was not.
func retryAfter(err error) time.Duration {
	for _, d := range status.Convert(err).Details() {
		if m, ok := d.(*slicerv1.RetryAfter); ok {
			return time.Duration(m.GetAfterMs()) * time.Millisecond
		}
	}
	return 0
}

// watchKey has one subscriber watch the key in etcd.
func (c *crowd) watchKey(ctx context.Context, i int, joined func()) {
	defer joined()
	err := func() error {
		address, revision, _ := strings.Cut(c.address, "@")
		from, err := strconv.ParseInt(revision, 10, 64)
		if err != nil {
			return err
		}
		cl, err := clientv3.New(clientv3.Config{Endpoints: []string{address}, DialTimeout: time.Minute, Context: ctx, MaxCallRecvMsgSize: 64 << 20})
		if err != nil {
			return err
		}
		defer cl.Close()
		for r := range cl.Watch(ctx, Key, clientv3.WithRev(from)) {
			if err := r.Err(); err != nil {
				return err
			}
			for _, e := range r.Events {
				joined()
				c.saw(i, uint64(e.Kv.ModRevision))
			}
		}
		return nil
	}()
	if ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "watcher", i, "ended:", err)
	}
}

// watch runs one stream, and keeps in the hello what it holds.
func (c *crowd) watch(ctx context.Context, i int, hello *slicerv1.Hello, patience time.Duration, served func()) error {
	c.connecting <- struct{}{}
	s, err := open(ctx, c.address, patience, hello, sync.OnceFunc(func() { <-c.connecting }))
	if err != nil {
		return err
	}
	defer s.close()
	for size := uint64(0); ; {
		var m heard
		if err := s.RecvMsg(&m); err != nil {
			return err
		}
		served()
		size += m.bytes
		t := m.trailer
		if t == nil {
			continue
		}
		if t.Base != 0 && t.Base != hello.Generation {
			return errors.New("a delta on something else than what is held")
		}
		if t.Size != size {
			return fmt.Errorf("%d bytes, the trailer says %d", size, t.Size)
		}
		size = 0
		c.saw(i, t.Checksum)
		hello.Generation, hello.StoreId, hello.Checksum = t.Generation, Store, t.Checksum
		if err := s.Send(&slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Ack{Ack: &slicerv1.Ack{Generation: t.Generation}}}); err != nil {
			return err
		}
	}
}
