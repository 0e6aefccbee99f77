package crowdtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// subscribe keeps one subscriber on the Distributor, with the waits that package
// subscriber has between attempts.
func (c *crowd) subscribe(ctx context.Context, i int, joined func()) {
	hello := &slicerv1.Hello{Job: Job, Role: slicerv1.Role_ROLE_CLERK, ClientId: fmt.Sprint("c", i)}
	for fails := 0; ctx.Err() == nil; {
		began := time.Now()
		err := c.watch(ctx, i, hello, joined)
		if ctx.Err() != nil {
			return
		}
		joined()
		if hello.Generation != 0 && time.Since(began) > 10*time.Millisecond {
			c.mu.Lock()
			c.lost++
			c.mu.Unlock()
		}
		wait := time.Duration(rand.Int64N(int64(300 * time.Millisecond)))
		if fails++; time.Since(began) >= 5*time.Second {
			fails = 0
		} else {
			most := min(250*time.Millisecond<<min(fails-1, 10), 5*time.Second)
			wait = most/2 + rand.N(most/2)
		}
		for _, d := range status.Convert(err).Details() {
			if m, ok := d.(*slicerv1.ComeBack); ok {
				asked := time.Duration(m.GetAfterMs()) * time.Millisecond
				wait = asked + rand.N(asked/2+1)
			}
		}
		time.Sleep(wait)
	}
}

// dial has the windows that package subscriber has.
func (c *crowd) dial() (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+c.address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStaticStreamWindowSize(1<<20), grpc.WithStaticConnWindowSize(1<<20), grpc.WithIdleTimeout(0),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: 10 * time.Second}))
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
func (c *crowd) watch(ctx context.Context, i int, hello *slicerv1.Hello, joined func()) error {
	cc, err := c.dial()
	if err != nil {
		return err
	}
	defer cc.Close()
	stream, err := slicerv1.NewSubscriberServiceClient(cc).Watch(ctx, grpc.ForceCodecV2(codec{}))
	if err != nil {
		return err
	}
	if err := stream.Send(&slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Hello{Hello: hello}}); err != nil {
		return err
	}
	for size := uint64(0); ; {
		var m heard
		if err := stream.RecvMsg(&m); err != nil {
			return err
		}
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
		joined()
		c.saw(i, t.Checksum)
		hello.Generation, hello.StoreId, hello.Checksum = t.Generation, Store, t.Checksum
		if err := stream.Send(&slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Ack{Ack: &slicerv1.Ack{Generation: t.Generation}}}); err != nil {
			return err
		}
	}
}
