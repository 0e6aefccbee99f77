package access

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/certs"
	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/clerkgrpc"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/slicelet/sliceletgrpc"
	"github.com/slicer-project/slicer/test/examples/greeter/hello"
	"github.com/slicer-project/slicer/test/kit/process"
)

// honestTasks serve job cache, as t1 and so on.
const honestTasks = 3

// honest is a service of job cache, and a client that calls it until end.
type honest struct {
	b      *bed
	calls  atomic.Int64
	failed atomic.Pointer[error]
	reg    *prometheus.Registry // of the tasks and the client
	end    func()
}

// credentials are those of a peer, which reads them from files in a test that replaces these.
func (b *bed) credentials(identity string) []grpc.DialOption {
	if b.files != nil {
		f := b.issue(identity)
		s, err := certs.New(certs.Config{Cert: f.Cert, Key: f.Key, CA: f.CA, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			b.t.Fatal(err)
		}
		return s.DialOptions()
	}
	return []grpc.DialOption{grpc.WithTransportCredentials(b.authority.Client(identity))}
}

// serve starts the service behind these servers, and waits until it answers.
func (b *bed) serve(distributors ...string) *honest {
	b.t.Helper()
	h := &honest{b: b, reg: prometheus.NewRegistry()}
	var ends []func()
	for i := range honestTasks {
		lis, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.t.Fatal(err)
		}
		name := fmt.Sprint("t", i+1)
		s, err := slicelet.New(slicelet.Config{Job: cacheJob, Task: name, Address: lis.Addr().String(), Distributors: distributors, DialOptions: b.credentials("spiffe://corp/cache/task/" + name), Registerer: h.reg})
		if err != nil {
			b.t.Fatal(err)
		}
		srv, done := grpc.NewServer(sliceletgrpc.ServerOptions(s, sliceletgrpc.Config{})...), make(chan struct{})
		hello.RegisterGreeterServer(srv, hello.Greeter{})
		go func() { defer close(done); _ = srv.Serve(lis) }()
		ends = append(ends, func() { srv.Stop(); <-done; s.Close() })
	}
	ck, err := clerk.New(clerk.Config{Job: cacheJob, Distributors: distributors, DialOptions: b.credentials(watcher), Registerer: h.reg})
	if err != nil {
		b.t.Fatal(err)
	}
	conn, err := grpc.NewClient(clerkgrpc.Scheme+":///"+cacheJob, append(clerkgrpc.DialOptions(clerkgrpc.Config{Shared: ck}), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		b.t.Fatal(err)
	}
	greeter := hello.NewGreeterClient(conn)
	call := func(ctx context.Context, key string) error {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		_, err := greeter.SayHello(clerk.WithKey(ctx, key), wrapperspb.String(key))
		return err
	}
	process.Eventually(b.t, limit, "all tasks serve", func() error {
		a, _, err := b.join(distributors[0])
		if err == nil && a.NumTasks() < honestTasks {
			err = fmt.Errorf("%d tasks", a.NumTasks())
		}
		return errors.Join(err, call(b.t.Context(), "first"))
	})
	ctx, cancel := context.WithCancel(b.t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ticks := time.NewTicker(20 * time.Millisecond); ; {
			select {
			case <-ctx.Done():
				ticks.Stop()
				return
			case <-ticks.C:
			}
			if err := call(context.WithoutCancel(ctx), fmt.Sprint("key-", h.calls.Add(1)%1000)); err != nil {
				h.failed.CompareAndSwap(nil, &err)
			}
		}
	})
	h.end = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
		conn.Close()
		ck.Close()
		for _, end := range ends {
			end()
		}
	})
	b.t.Cleanup(h.end)
	return h
}

// unharmed wants that no call has failed.
func (h *honest) unharmed(when string) {
	h.b.t.Helper()
	if err := h.failed.Load(); err != nil {
		h.b.t.Errorf("%s: a call failed: %v", when, *err)
	}
}

// lost is how many connections to Distributors the tasks and the client have lost, or not had.
func (h *honest) lost() (n float64) {
	h.b.t.Helper()
	families, err := h.reg.Gather()
	if err != nil {
		h.b.t.Fatal(err)
	}
	found := 0
	for _, f := range families {
		if strings.HasSuffix(f.GetName(), "_connection_failures_total") {
			for _, m := range f.GetMetric() {
				n += m.GetCounter().GetValue()
				found++
			}
		}
	}
	if found != honestTasks+1 {
		h.b.t.Fatalf("%d series of lost connections", found)
	}
	return n
}

// join connects anew as a client that may watch, and waits for the assignment.
func (b *bed) join(address string) (*assignment.Assignment, time.Duration, error) {
	ctx, cancel := context.WithTimeout(b.t.Context(), 20*time.Second)
	defer cancel()
	began := time.Now()
	cc, err := grpc.NewClient("passthrough:///"+address, b.credentials(watcher)...)
	if err != nil {
		return nil, 0, err
	}
	defer cc.Close()
	s, err := slicerv1.NewSubscriberServiceClient(cc).Watch(ctx)
	if err == nil {
		err = s.Send(&slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Hello{Hello: &slicerv1.Hello{Job: cacheJob, Role: slicerv1.Role_ROLE_CLERK, ClientId: "honest"}}})
	}
	for asm := (wire.Assembler{}); err == nil; {
		var m *slicerv1.WatchResponse
		if m, err = s.Recv(); err != nil {
			break
		}
		if c := m.GetChunk(); c != nil {
			err = asm.Add(c)
		}
		if tr := m.GetTrailer(); err == nil && tr != nil {
			a, err := asm.Finish(tr, nil)
			return a, time.Since(began), err
		}
	}
	return nil, time.Since(began), err
}
