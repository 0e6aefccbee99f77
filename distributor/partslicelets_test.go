package distributor

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/porttest"
	"github.com/slicer-project/slicer/distributor/crowdtest"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"github.com/slicer-project/slicer/slicelet"
)

// incarnation waits until the assigner has been told of a task.
func (f *fakeAssigner) incarnation(task string) uint64 {
	told := func() uint64 {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, m := range f.heard {
			for _, r := range m.GetReports().GetReports() {
				if r.GetTask().GetName() == task {
					return r.GetTask().GetIncarnation()
				}
			}
		}
		return 0
	}
	for {
		if n := told(); n != 0 {
			return n
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// next makes the assignment that follows a, in which tasks have these incarnations, and some
// slices other owners.
func next(tb testing.TB, a *assignment.Assignment, incarnations map[string]uint64, moves int) *assignment.Assignment {
	tb.Helper()
	var tasks []assignment.Task
	for _, t := range a.Tasks() {
		t.Incarnation = cmp.Or(incarnations[t.Name], t.Incarnation)
		tasks = append(tasks, t)
	}
	c, h := a.Columns(), a.Header()
	p := assignment.Placement{Starts: slices.Clone(c.Starts), Offsets: slices.Clone(c.Offsets), Owners: slices.Clone(c.Owners)}
	for i := range moves {
		x := (uint64(h.Generation)<<20 + uint64(i)) * 0x9e3779b97f4a7c15
		at := int(x>>20) % len(p.Starts)
		if r := p.Range(at); len(r) == 1 {
			r[0] = uint32(x>>40) % uint32(len(tasks))
		}
	}
	h.Generation++
	b, err := assignment.Successor(a, h, tasks, p)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// older makes a server one that knows no parts: it does not see that a subscriber reads them.
type older struct{ grpc.ServerStream }

func (s older) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	switch m := m.(type) {
	case *slicerv1.WatchRequest:
		if h := m.GetHello(); h != nil {
			h.Parts = false
		}
	case *slicerv1.FetchRequest:
		m.Part = ""
	}
	return err
}

// toldMoves is a listener that remembers the newest change.
type toldMoves struct {
	mu   sync.Mutex
	last slicelet.Change
}

func (l *toldMoves) SlicesChanged(_ context.Context, c slicelet.Change) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = c
}

// Real slicelets, those that read parts and an older one that does not, with real Distributors, one
// of them older, over TCP: whichever serves, all own what the assignment says, and are told the
// same of others.
func TestSliceletsWithPartsAndWithout(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := newFakeAssigner(t, "a1")
	f.pref = &slicerv1.Preference{Revision: 1, Jobs: []*slicerv1.JobPreference{{Job: testJob, AssignerId: "a1"}}}
	serveTCP(t, l, func(s grpc.ServiceRegistrar) { slicerv1.RegisterAssignerServiceServer(s, f) })
	a := firstOf(t, testJob, testStore, baseGen, assignment.PartFrom)
	f.set(a)
	addresses, err := porttest.Free(2) // of one a second Distributor is to have the address
	if err != nil {
		t.Fatal(err)
	}
	var stops []func()
	for i, opts := range [][]grpc.ServerOption{nil, {grpc.ChainStreamInterceptor(func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) error {
		return h(srv, older{s})
	})}} {
		d, err := New(Config{ID: fmt.Sprint("d", i), Assigners: []string{l.Addr().String()}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		at, err := net.Listen("tcp", addresses[i])
		if err != nil {
			t.Fatal(err)
		}
		stops = append(stops, serveTCP(t, at, d.Register, append(ServerOptions(), opts...)...))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	type task struct {
		*slicelet.Slicelet
		told  *toldMoves
		parts func(at string) bool // whether it is to hold a part when served there
	}
	incarnations := map[string]uint64{}
	var tasks []task
	for i, whole := range []bool{false, true, false} {
		s, err := slicelet.New(slicelet.Config{Job: testJob, Task: a.Task(i).Name, Address: a.Task(i).Address, Distributors: addresses, WholeAssignment: whole})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		told := &toldMoves{}
		s.Listen(told)
		tasks = append(tasks, task{s, told, func(at string) bool { return !whole && at == addresses[0] }})
		incarnations[s.Task()] = f.incarnation(s.Task())
	}
	// settle waits until all hold a, and compares what they own and have been told.
	settle := func(before *assignment.Assignment, at string) {
		t.Helper()
		for _, s := range tasks {
			var own []assignment.Slice
			for x, r := range a.All() {
				for o := range r.All() {
					if o.Name == s.Task() {
						own = append(own, x)
					}
				}
			}
			// What it owns follows the assignment that it has a little later.
			for s.Assignment() == nil || s.Assignment().Generation() != a.Generation() || at != "" && (s.Assignment().Part() != "") != s.parts(at) || len(own) == 0 || !slices.Equal(s.Slices(), own) {
				if ctx.Err() != nil {
					t.Fatalf("%s holds %v, served by %s, and owns %d slices; want generation %d and %d slices", s.Task(), s.Assignment(), at, len(s.Slices()), a.Generation(), len(own))
				}
				time.Sleep(10 * time.Millisecond)
			}
			if err := s.AwaitListeners(ctx); err != nil {
				t.Fatal(err)
			}
			if before == nil {
				continue
			}
			s.told.mu.Lock()
			c := s.told.last
			s.told.mu.Unlock()
			if c.Generation != a.Generation() || len(c.Arrived) == 0 || len(c.Departed) == 0 {
				t.Errorf("%s was told of generation %d: %d ranges have come, %d have gone", s.Task(), c.Generation, len(c.Arrived), len(c.Departed))
			}
			for _, x := range c.Arrived {
				if want := before.Lookup(x.Start).At(0); len(x.From) != 1 || x.From[0] != want {
					t.Errorf("%s: %v has come from %v, want %v", s.Task(), x.Slice, x.From, want)
				}
			}
			for _, x := range c.Departed {
				if want := a.Lookup(x.Start).At(0); len(x.To) != 1 || x.To[0] != want {
					t.Errorf("%s: %v has gone to %v, want %v", s.Task(), x.Slice, x.To, want)
				}
			}
		}
	}
	step := func(moves int, told bool, at string) {
		t.Helper()
		before := a
		a = next(t, a, incarnations, moves)
		f.set(a)
		if !told {
			before = nil
		}
		settle(before, at)
	}
	step(0, false, "") // they own something from here on
	step(8000, true, "")
	stops[0]() // all are with the older one
	step(0, false, addresses[1])
	step(8000, true, addresses[1])
	at, err := net.Listen("tcp", addresses[0])
	if err != nil {
		t.Fatal(err)
	}
	d, err := New(Config{ID: "d2", Assigners: []string{l.Addr().String()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	serveTCP(t, at, d.Register, ServerOptions()...)
	stops[1]() // and with one that has just started, which knows nothing of what they hold
	step(0, false, addresses[0])
	step(8000, true, addresses[0])
}

func serveTCP(t testing.TB, l net.Listener, register func(grpc.ServiceRegistrar), opts ...grpc.ServerOption) (stop func()) {
	s := grpc.NewServer(opts...)
	register(s)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Serve(l)
	}()
	stop = func() { s.Stop(); <-done }
	t.Cleanup(stop)
	return stop
}

// BenchmarkSliceletMemory is what a slicelet of a job of 10^4 tasks x 100 slices that the balancer
// made has on its heap and stacks, its connection included: with its part, and beside it with the
// whole, as older ones hold it. The Distributor is a process of its own. It fails where the part
// takes more than 2 MB.
func BenchmarkSliceletMemory(b *testing.B) {
	f, assigner := loopbackAssigner(b)
	a := ofBalancer(b, 1_000_000)
	f.set(a)
	d := startProcess(b, "127.0.0.1:0", assigner, crowdtest.Slicer)
	const mb = 1e6
	used := func() float64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc + m.StackInuse)
	}
	measure := func(i int, whole bool) float64 {
		task := a.Task(i)
		s, err := slicelet.New(slicelet.Config{Job: testJob, Task: task.Name, Address: task.Address, Distributors: []string{d.address}, WholeAssignment: whole})
		if err != nil {
			b.Fatal(err)
		}
		a = next(b, a, map[string]uint64{task.Name: f.incarnation(task.Name)}, 0)
		f.set(a)
		for len(s.Slices()) == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		with := used()
		if n := len(s.Slices()); n < 20 {
			b.Fatalf("it owns %d slices", n)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		s = nil
		return (with - used()) / mb
	}
	var part, whole []float64
	for b.Loop() {
		part, whole = append(part, measure(len(part), false)), append(whole, measure(100+len(whole), true))
	}
	slices.Sort(part)
	slices.Sort(whole)
	b.ReportMetric(part[len(part)/2], "MB-part")
	b.ReportMetric(whole[len(whole)/2], "MB-whole")
	b.ReportMetric(0, "ns/op")
	if got := part[len(part)-1]; got > 2 {
		b.Errorf("%.2f MB with a part, 2 are allowed", got)
	}
}
