package xds

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/cputest"
	"github.com/slicer-project/slicer/distributor/xds"
	"github.com/slicer-project/slicer/test/kit/bed"
	"github.com/slicer-project/slicer/test/kit/process"
)

const (
	numClients = 200
	numTasks   = 10
	jobName    = "web"
	every      = time.Second
	// clientsEnv has the address of the Distributor in the clients' process.
	clientsEnv = "SLICER_BENCH_XDS"
)

func TestMain(m *testing.M) {
	if addr := os.Getenv(clientsEnv); addr != "" {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		runClients(ctx, addr)
		return
	}
	os.Exit(m.Run())
}

// runClients runs all clients until ctx is done.
func runClients(ctx context.Context, addr string) {
	var wg sync.WaitGroup
	for i := range numClients {
		wg.Go(func() {
			if err := runClient(ctx, addr, i); err != nil && ctx.Err() == nil {
				fmt.Fprintf(os.Stderr, "client %d: %v\n", i, err)
				os.Exit(1)
			}
		})
	}
	wg.Wait()
}

const typePrefix = "type.googleapis.com/envoy.config."

// runClient asks for what gRPC asks for, and accepts what it gets.
func runClient(ctx context.Context, addr string, i int) error {
	cc, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer cc.Close()
	s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(cc).StreamAggregatedResources(ctx)
	if err != nil {
		return err
	}
	names := map[string][]string{
		"listener.v3.Listener": {jobName}, "route.v3.RouteConfiguration": {jobName},
		"cluster.v3.Cluster": {jobName + "/any"}, "endpoint.v3.ClusterLoadAssignment": {jobName + "/any"},
	}
	for t := range numTasks {
		for _, of := range []string{"own", "task"} {
			names["cluster.v3.Cluster"] = append(names["cluster.v3.Cluster"], fmt.Sprintf("%s/%s:t%d.%x", jobName, of, t, t+1))
		}
	}
	for of, list := range names {
		err := s.Send(&discoveryv3.DiscoveryRequest{Node: &corev3.Node{Id: fmt.Sprintf("client-%d", i)}, TypeUrl: typePrefix + of, ResourceNames: list})
		if err != nil {
			return err
		}
	}
	for {
		m, err := s.Recv()
		if err != nil {
			return err
		}
		err = s.Send(&discoveryv3.DiscoveryRequest{
			TypeUrl: m.TypeUrl, VersionInfo: m.VersionInfo, ResponseNonce: m.Nonce, ResourceNames: names[strings.TrimPrefix(m.TypeUrl, typePrefix)],
		})
		if err != nil && err != io.EOF {
			return err
		}
	}
}

// source is a job that changes when it is told to, and notes when clients hold what.
type source struct {
	mu      sync.Mutex
	newest  *assignment.Assignment
	changed chan struct{}
	joined  int
	held    map[assignment.Generation][]time.Time
}

// feed is one client's.
type feed struct{ *source }

func (s *source) Join(context.Context, string, string) (xds.Feed, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.joined++
	return feed{s}, nil
}

func (f feed) Newest(time.Time) (*assignment.Assignment, <-chan struct{}, time.Duration, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.newest, f.changed, 0, nil
}

func (f feed) Holds(now time.Time, g assignment.Generation) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held[g] = append(f.held[g], now)
}

func (feed) Terms() xds.Terms   { return xds.Terms{Config: assignment.XDSConfig{}.OrDefaults()} }
func (feed) Refuses(time.Time)  {}
func (feed) Observes(time.Time) {}
func (f feed) Leave(time.Time)  {}

func (s *source) set(a *assignment.Assignment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newest = a
	close(s.changed)
	s.changed = make(chan struct{})
}

// holding are when clients came to hold a generation.
func (s *source) holding(g assignment.Generation) []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.held[g])
}

// series is a job of n slices with random ends, of which one moves in each generation.
type series struct {
	tb     testing.TB
	rnd    *rand.Rand
	tasks  []assignment.Task
	starts []assignment.SliceKey
	owners []uint32
	last   *assignment.Assignment
}

func newSeries(tb testing.TB, n int) *series {
	s := &series{tb: tb, rnd: rand.New(rand.NewPCG(1, uint64(n))), starts: []assignment.SliceKey{0}}
	for i := range numTasks {
		s.tasks = append(s.tasks, assignment.Task{
			Name: fmt.Sprintf("t%d", i), Incarnation: uint64(i + 1), Address: fmt.Sprintf("10.0.0.%d:80", i), Index: uint32(i), Weight: 1, State: assignment.TaskRunning,
		})
	}
	for len(s.starts) < n {
		s.starts = append(s.starts, assignment.SliceKey(s.rnd.Uint64()>>1))
	}
	slices.Sort(s.starts)
	s.starts = slices.Compact(s.starts)
	for range s.starts {
		s.owners = append(s.owners, uint32(s.rnd.IntN(numTasks)))
	}
	return s
}

func (s *series) next() *assignment.Assignment {
	s.tb.Helper()
	i := s.rnd.IntN(len(s.owners))
	s.owners[i] = (s.owners[i] + 1 + uint32(s.rnd.IntN(numTasks-1))) % numTasks
	var p assignment.Placement
	for i, start := range s.starts {
		p.Add(start, s.owners[i])
	}
	h := assignment.Header{Job: jobName, StoreID: 1, Generation: assignment.Generation(time.Now().UnixMilli())}
	if s.last != nil {
		h.Generation = max(h.Generation, s.last.Generation()+1)
	}
	a, err := assignment.Successor(s.last, h, slices.Clone(s.tasks), p)
	if err != nil {
		s.tb.Fatal(err)
	}
	s.last = a
	return a
}

// BenchmarkClients: see the package's documentation.
func BenchmarkClients(b *testing.B) {
	for _, n := range []int{150, xds.MaxSlices} {
		b.Run(fmt.Sprintf("slices=%d", n), func(b *testing.B) { benchmarkClients(b, n) })
	}
}

func benchmarkClients(b *testing.B, n int) {
	jobs := newSeries(b, n)
	s := &source{changed: make(chan struct{}), held: make(map[assignment.Generation][]time.Time)}
	s.set(jobs.next())
	service, err := xds.New(xds.Config{Source: s})
	if err != nil {
		b.Fatal(err)
	}
	lis := bed.Listen(b)
	bed.Serve(b, lis, service.Register, service.Close)
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	process.Start(b, "clients", []string{clientsEnv + "=" + lis.Addr().String()}, self)
	allHold := func(g assignment.Generation) {
		b.Helper()
		process.Eventually(b, time.Minute, "all clients hold the assignment", func() error {
			if got := len(s.holding(g)); got < numClients {
				return fmt.Errorf("%d of %d", got, numClients)
			}
			return nil
		})
	}
	allHold(jobs.last.Generation())
	var took []time.Duration
	late := 0
	before := cputest.Own()
	for b.Loop() {
		a := jobs.next()
		began := time.Now()
		s.set(a)
		time.Sleep(time.Until(began.Add(every)))
		late += numClients - len(s.holding(a.Generation()))
		allHold(a.Generation())
		for _, at := range s.holding(a.Generation()) {
			took = append(took, at.Sub(began))
		}
	}
	cpu := cputest.Own() - before
	slices.Sort(took)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(cpu.Seconds()*1000/float64(b.N), "cpu_ms/change")
	b.ReportMetric(took[len(took)/2].Seconds()*1000, "median_ms")
	b.ReportMetric(took[len(took)-1].Seconds()*1000, "last_ms")
	b.ReportMetric(float64(cputest.OwnMost())/(1<<20), "MiB_rss")
	b.ReportMetric(float64(late)/float64(b.N), "late/change")
}
