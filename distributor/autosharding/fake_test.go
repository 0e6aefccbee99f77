package autosharding

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/distributor/autosharding/autoshardingtest"
)

const baseGen = 1_700_000_000_000

// makeAssignment deals slices out at random: to one task each, or with replicas to
// one to three.
func makeAssignment(t testing.TB, g assignment.Generation, tasks, slices int, replicas bool) *assignment.Assignment {
	t.Helper()
	return makeIn(t, 7, g, tasks, slices, replicas)
}

// makeIn makes one of a store.
func makeIn(t testing.TB, store uint64, g assignment.Generation, tasks, slices int, replicas bool) *assignment.Assignment {
	t.Helper()
	rnd := rand.New(rand.NewPCG(uint64(g), uint64(slices)))
	table := make([]assignment.Task, tasks)
	for i := range table {
		table[i] = assignment.Task{
			Name: fmt.Sprintf("web-%d", i), Incarnation: uint64(i + 1), Address: fmt.Sprintf("10.%d.%d.%d:8080", i>>16, i>>8&255, i&255),
			Index: uint32(i), Weight: 1, State: assignment.TaskRunning,
		}
	}
	p := assignment.Placement{}
	for _, start := range assignment.Equal(slices) {
		n := 1
		if replicas {
			n = min(1+rnd.IntN(3), tasks)
		}
		var owners []uint32
		for i, first := 0, rnd.IntN(tasks); i < n; i++ {
			owners = append(owners, uint32((first+i)%tasks))
		}
		p.Add(start, owners...)
	}
	a, err := assignment.Successor(nil, assignment.Header{Job: "web", StoreID: store, Generation: g}, table, p)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// fakeSource serves one job from memory and writes down what it hears.
type fakeSource struct {
	mu      sync.Mutex
	newest  *assignment.Assignment
	changed chan struct{}
	err     error // of Join and Newest
	heard   []string
	reports []*Report
	// measured: tasks have measured load themselves.
	measured bool
}

func newFakeSource() *fakeSource { return &fakeSource{changed: make(chan struct{})} }

func (f *fakeSource) set(a *assignment.Assignment, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.newest, f.err = a, err
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *fakeSource) note(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.heard = append(f.heard, fmt.Sprintf(format, args...))
}

func (f *fakeSource) hear() string {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	s := strings.Join(f.heard, "; ")
	f.heard = nil
	return s
}

func (f *fakeSource) Join(_ context.Context, job, name string, held assignment.Generation) (Feed, error) {
	f.note("%s joins %s at %d", name, job, max(held-baseGen, 0))
	f.mu.Lock()
	defer f.mu.Unlock()
	return fakeFeed{f, name}, f.err
}

type fakeFeed struct {
	*fakeSource
	name string
}

func (f fakeFeed) Newest(time.Time) (*assignment.Assignment, <-chan struct{}, time.Duration, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.newest, f.changed, 0, f.err
}

func (f fakeFeed) Metric() string { return "requests" }
func (f fakeFeed) Unmeasured() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.measured
}
func (f fakeFeed) Holds(_ time.Time, g assignment.Generation) {
	f.note("%s holds %d", f.name, g-baseGen)
}
func (f fakeFeed) Refuses(time.Time) { f.note("%s refuses", f.name) }
func (f fakeFeed) Leave(time.Time)   { f.note("%s leaves", f.name) }
func (f fakeFeed) Report(_ time.Time, r *Report) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reports = append(f.reports, r)
}

// bench is a Service behind a server in memory.
type stand struct {
	t   testing.TB
	f   *fakeSource
	s   *Service
	reg *prometheus.Registry
	log *strings.Builder
	cc  *grpc.ClientConn
}

func newStand(t testing.TB, cfg Config, opts ...grpc.DialOption) *stand {
	t.Helper()
	st := &stand{t: t, f: newFakeSource(), reg: prometheus.NewRegistry(), log: new(strings.Builder)}
	cfg.Source, cfg.Registerer = st.f, st.reg
	cfg.Logger = slog.New(slog.NewTextHandler(st.log, nil))
	var err error
	if st.s, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	lis := bufconn.Listen(64 << 10)
	server := grpc.NewServer()
	st.s.Register(server)
	done := make(chan struct{})
	go func() {
		defer close(done)
		server.Serve(lis)
	}()
	opts = append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }),
	}, opts...)
	if st.cc, err = grpc.NewClient("passthrough:///server", opts...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		st.s.Close()
		st.cc.Close()
		server.Stop()
		<-done
	})
	return st
}

func (st *stand) watch(uuid string, latest assignment.Generation, opts ...grpc.CallOption) *autoshardingtest.Client {
	st.t.Helper()
	c, err := autoshardingtest.Watch(context.Background(), st.cc, "web", uuid, int64(latest), opts...)
	if err != nil {
		st.t.Fatal(err)
	}
	st.t.Cleanup(c.Close)
	return c
}

func (st *stand) next(c *autoshardingtest.Client) *autoshardingtest.Assignment {
	st.t.Helper()
	a, err := c.Next()
	if err != nil {
		st.t.Fatal(err)
	}
	return a
}

// ends waits until the stream ends, and checks how.
func (st *stand) ends(c *autoshardingtest.Client, code codes.Code, says string) {
	st.t.Helper()
	for {
		_, err := c.Next()
		if err == nil {
			continue
		}
		if status.Code(err) != code || !strings.Contains(err.Error(), says) {
			st.t.Errorf("the stream ends with %v, want %s and %q", err, code, says)
		}
		return
	}
}

// metric is the value of a metric, over all labels.
func (st *stand) metric(name string) (sum float64) {
	families, err := st.reg.Gather()
	if err != nil {
		st.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "slicer_distributor_autosharding_"+name {
			for _, m := range f.Metric {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// inBubble runs a test on virtual time, in a year in which the tests' generations
// are not from the future.
func inBubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.UnixMilli(baseGen)))
		f(t)
	})
}
