package overload

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/waittest"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/clerkhttp"
	"github.com/slicer-project/slicer/loadbalance/overload"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/slicelet/sliceletgrpc"
	"github.com/slicer-project/slicer/slicelet/slicelethttp"
	"github.com/slicer-project/slicer/test/examples/greeter/hello"
	"github.com/slicer-project/slicer/test/kit/bed"
)

// seen is what the servers saw of requests, by server.
type seen struct {
	mu sync.Mutex
	by map[string][]overload.Labels
	// brief is the least time that a request had.
	brief time.Duration
}

func (s *seen) note(ctx context.Context, server string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.by[server] = append(s.by[server], overload.LabelsOf(ctx))
	left := time.Hour
	if by, ok := ctx.Deadline(); ok {
		left = time.Until(by)
	}
	s.brief = left
}

// take returns what there is, and forgets it.
func (s *seen) take() (by map[string][]overload.Labels, brief time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	by, s.by = s.by, map[string][]overload.Labels{}
	return by, s.brief
}

// asking is a gRPC server that asks the next one, if there is one, for each request twice.
type asking struct {
	hello.UnaryGreeterServer
	name string
	seen *seen
	next func(ctx context.Context, key string) error
}

func (a *asking) SayHello(ctx context.Context, key *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
	a.seen.note(ctx, a.name)
	for i := range 2 {
		if a.next == nil {
			break
		}
		if err := a.next(ctx, fmt.Sprint(key.GetValue(), "-", i)); err != nil {
			return nil, err
		}
	}
	return key, nil
}

// TestLabels: a gRPC server asks an HTTP server, which asks a gRPC server, each twice: all
// that one request from outside causes has its criticality, customer and deadline, and one
// cohort. Jobs have defaults of their own, which change while they run.
func TestLabels(t *testing.T) {
	plane := bed.Start(t, bed.Config{})
	s := &seen{by: map[string][]overload.Labels{}}
	put := func(job string, c overload.Criticality) {
		t.Helper()
		cfg := assignment.JobConfig{Name: job, Overload: assignment.OverloadConfig{DefaultCriticality: c}}
		if err := plane.PutJob(t.Context(), cfg.WithDefaults()); err != nil {
			t.Fatal(err)
		}
	}
	for _, job := range []string{"front", "middle", "back"} {
		put(job, overload.SheddablePlus)
	}
	back := serveLabels(t, plane, "back", &asking{name: "back", seen: s})
	middle := serveHTTP(t, plane, "middle", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.note(r.Context(), "middle")
		for i := range 2 {
			if err := back(r.Context(), fmt.Sprint(r.URL.Path, i)); err != nil {
				http.Error(w, err.Error(), http.StatusBadGateway)
			}
		}
	}))
	front := serveLabels(t, plane, "front", &asking{name: "front", seen: s, next: middle})
	ctx, cancel := context.WithTimeout(t.Context(), waittest.Patience)
	defer cancel()
	// all asks once, and returns the labels that every server saw.
	all := func(ctx context.Context) (l overload.Labels) {
		t.Helper()
		s.take()
		if err := front(ctx, "key"); err != nil {
			t.Fatal(err)
		}
		by, brief := s.take()
		if len(by["front"]) != 1 || len(by["middle"]) != 2 || len(by["back"]) != 4 || brief > waittest.Patience {
			t.Errorf("%v, with %v left at the last", by, brief)
		}
		l = by["front"][0]
		for server, labels := range by {
			for _, other := range labels {
				if other != l {
					t.Errorf("%s saw %+v, front %+v", server, other, l)
				}
			}
		}
		return l
	}
	if l := all(ctx); l.Criticality != overload.SheddablePlus || l.Customer != "" {
		t.Errorf("a request that says nothing: %+v", l)
	}
	said := overload.WithCustomer(overload.WithCohort(overload.WithCriticality(ctx, overload.CriticalPlus), 5), "mail")
	if l := all(said); l != overload.LabelsOf(said) {
		t.Errorf("a request that says all: %+v", l)
	}
	put("front", overload.Sheddable)
	for ctx.Err() == nil {
		if all(ctx).Criticality == overload.Sheddable {
			return
		}
	}
	t.Error("the job's default has not changed")
}

// serveLabels starts the task of a job, and returns what asks it.
func serveLabels(t *testing.T, plane *bed.Plane, job string, a *asking) func(ctx context.Context, key string) error {
	t.Helper()
	lis := bed.Listen(t)
	s := task(t, plane, job, lis)
	bed.Serve(t, lis, func(r grpc.ServiceRegistrar) { hello.RegisterGreeterServer(r, a) }, s.Close, sliceletgrpc.ServerOptions(s, sliceletgrpc.Config{})...)
	stub := dial(t, plane, job)
	return func(ctx context.Context, key string) error {
		_, err := stub.SayHello(clerk.WithKey(ctx, key), wrapperspb.String(key))
		return err
	}
}

func serveHTTP(t *testing.T, plane *bed.Plane, job string, next http.Handler) func(ctx context.Context, key string) error {
	t.Helper()
	lis := bed.Listen(t)
	s := task(t, plane, job, lis)
	h, err := slicelethttp.Handler(s, next, slicelethttp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	bed.ServeHTTP(t, lis, h, s.Close)
	ck, err := clerk.New(clerk.Config{Job: job, Distributors: plane.Addrs()})
	if err != nil {
		t.Fatal(err)
	}
	bed.CloseAtEnd(t, ck.Close)
	tr, err := clerkhttp.NewTransport(clerkhttp.Config{Clerk: ck})
	if err != nil {
		t.Fatal(err)
	}
	bed.CloseAtEnd(t, tr.Close)
	return func(ctx context.Context, key string) error {
		req, err := http.NewRequestWithContext(clerk.WithKey(ctx, key), http.MethodGet, "http://"+job+"/"+key, nil)
		if err != nil {
			return err
		}
		resp, err := tr.RoundTrip(req)
		if err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("status %d", resp.StatusCode)
		}
		return nil
	}
}

func task(t *testing.T, plane *bed.Plane, job string, lis net.Listener) *slicelet.Slicelet {
	t.Helper()
	s, err := slicelet.New(slicelet.Config{
		Job: job, Task: "task-0", Address: lis.Addr().String(), Distributors: plane.Addrs(), Customer: slicelet.BelieveCustomer,
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}
