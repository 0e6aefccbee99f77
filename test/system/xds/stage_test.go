package xds

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/distributor/xds"
	"github.com/slicer-project/slicer/test/examples/greeter/hello"
	"github.com/slicer-project/slicer/test/kit/balanced"
	"github.com/slicer-project/slicer/test/kit/bed"
	"github.com/slicer-project/slicer/test/kit/process"
)

const (
	mostSlices = xds.MaxSlices
	stageTasks = 10
)

// stage serves xDS of one assignment that does not change.
type stage struct {
	a    *assignment.Assignment
	addr string
}

// stages are the assignments that calls are looked at with: of few slices and of as many as
// there may be, which end anywhere or where the balancer ends them.
var stages = []struct {
	name string
	make func(t testing.TB, servers []string) *stage
}{
	{"slices=150", func(t testing.TB, servers []string) *stage { return newStage(t, 150, servers) }},
	{"slices=5000", func(t testing.TB, servers []string) *stage { return newStage(t, mostSlices, servers) }},
	{"slices=150/balanced", func(t testing.TB, servers []string) *stage { return newBalanced(t, 150, servers) }},
	{"slices=5000/balanced", func(t testing.TB, servers []string) *stage { return newBalanced(t, mostSlices, servers) }},
}

// newStage deals slices of random widths out to servers, two neighbours never to the same.
func newStage(t testing.TB, n int, servers []string) *stage {
	t.Helper()
	rnd := rand.New(rand.NewPCG(1, uint64(n)))
	starts := []assignment.SliceKey{0}
	for len(starts) < n {
		starts = append(starts, assignment.SliceKey(rnd.Uint64()>>1))
		if len(starts) == n {
			slices.Sort(starts)
			starts = slices.Compact(starts)
		}
	}
	var p assignment.Placement
	at := 0
	for _, start := range starts {
		at = (at + 1 + rnd.IntN(len(servers)-1)) % len(servers)
		p.Add(start, uint32(at))
	}
	return serveStage(t, p, servers)
}

// newBalanced is a stage of at most so many slices as the balancer has made them.
func newBalanced(t testing.TB, n int, servers []string) *stage {
	t.Helper()
	var p assignment.Placement
	for s, r := range balanced.NewOf(t, n*5/6, len(servers)).Assignment().All() {
		var owners []uint32
		for i := range r.Len() {
			owners = append(owners, uint32(r.Position(i)))
		}
		p.Add(s.Start, owners...)
	}
	return serveStage(t, p, servers)
}

func serveStage(t testing.TB, p assignment.Placement, servers []string) *stage {
	t.Helper()
	var tasks []assignment.Task
	for i, addr := range servers {
		tasks = append(tasks, assignment.Task{Name: fmt.Sprintf("t%d", i), Incarnation: uint64(i + 1), Address: addr, Index: uint32(i), Weight: 1, State: assignment.TaskRunning})
	}
	s := &stage{}
	var err error
	if s.a, err = assignment.Successor(nil, assignment.Header{Job: job, StoreID: 1, Generation: assignment.Generation(time.Now().UnixMilli())}, tasks, p); err != nil {
		t.Fatal(err)
	}
	service, err := xds.New(xds.Config{Source: s, Logger: logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	lis := bed.Listen(t)
	s.addr = lis.Addr().String()
	bed.Serve(t, lis, service.Register, service.Close)
	return s
}

// serveAll starts so many servers, without slicelets.
func serveAll(t testing.TB, n int) (addrs []string) {
	t.Helper()
	for i := range n {
		lis := bed.Listen(t)
		addrs = append(addrs, lis.Addr().String())
		bed.Serve(t, lis, greeter(fmt.Sprintf("t%d", i)), func() error { return nil })
	}
	return addrs
}

// greeter greets with a name.
func greeter(name string) func(grpc.ServiceRegistrar) {
	return func(r grpc.ServiceRegistrar) { hello.RegisterGreeterServer(r, named{task: name}) }
}

type named struct {
	hello.UnaryGreeterServer
	task string
}

func (n named) SayHello(context.Context, *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
	return wrapperspb.String(n.task), nil
}

// Join implements xds.Source.
func (s *stage) Join(context.Context, string, string) (xds.Feed, error) { return s, nil }

// Newest implements xds.Feed.
func (s *stage) Newest(time.Time) (*assignment.Assignment, <-chan struct{}, time.Duration, error) {
	return s.a, nil, 0, nil
}

func (s *stage) Terms() xds.Terms                       { return xds.Terms{Config: assignment.XDSConfig{}.OrDefaults()} }
func (s *stage) Holds(time.Time, assignment.Generation) {}
func (s *stage) Refuses(time.Time)                      {}
func (s *stage) Observes(time.Time)                     {}
func (s *stage) Leave(time.Time)                        {}

// At the most slices that there may be, each of 3,000 keys is answered by its owner.
func TestManySlices(t *testing.T) {
	t.Parallel()
	s := newStage(t, mostSlices, serveAll(t, stageTasks))
	if n := s.a.NumSlices(); n < mostSlices-1 {
		t.Fatalf("%d slices", n)
	}
	cc := dial(t, job, "go-0", []string{s.addr})
	// grpc-go fails calls if it has no routes after 15 s, which a busy machine may take.
	process.Eventually(t, time.Minute, "the client has routes", func() error {
		_, err := call(t.Context(), cc, "x")
		return err
	})
	var wg sync.WaitGroup
	const workers, keys = 8, 3000
	for w := range workers {
		wg.Go(func() {
			for i := w; i < keys; i += workers {
				key := fmt.Sprintf("user-%d", i)
				if task, err := call(t.Context(), cc, key); err != nil || !owns(s.a, task, key) {
					t.Errorf("%s is answered by %q, %v", key, task, err)
					return
				}
			}
		})
	}
	wg.Wait()
}
