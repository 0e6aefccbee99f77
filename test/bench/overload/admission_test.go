package overload

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/clerkgrpc"
	"github.com/slicer-project/slicer/loadbalance/overload"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/slicelet/sliceletgrpc"
	"github.com/slicer-project/slicer/test/examples/greeter/hello"
	"github.com/slicer-project/slicer/test/kit/bed"
)

var (
	cell  = flag.Duration("cell", 6*time.Second, "how long each load is offered")
	turns = flag.Int("turns", 2, "how often each server is measured")
)

const (
	serverEnv = "SLICER_BENCH_SERVER" // kind, CPU time of a request, Distributor
	patience  = 500 * time.Millisecond
)

// burner is a server whose requests take CPU time.
type burner struct {
	hello.Greeter
	loops int
}

var sink uint64

func burn(loops int) {
	x := uint64(1)
	for range loops {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	sink = x
}

// calibrate finds out how many loops take so long on an idle core.
func calibrate(takes time.Duration) int {
	const loops = 1 << 20
	best := time.Hour
	for range 20 {
		begin := time.Now()
		burn(loops)
		best = min(best, time.Since(begin))
	}
	return int(float64(loops) * float64(takes) / float64(best))
}

func (b *burner) SayHello(_ context.Context, in *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
	burn(b.loops)
	return in, nil
}

// serveAlone is the process of a server: it prints its address, and ends with its input.
func serveAlone(spec string) error {
	fields := strings.Split(spec, ",")
	kind, distributor := fields[0], fields[2]
	takes, err := time.ParseDuration(fields[1])
	if err != nil {
		return err
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	b := &burner{loops: calibrate(takes)}
	var opts []grpc.ServerOption
	switch kind {
	case "slicer", "levels":
		s, err := slicelet.New(slicelet.Config{Job: kind, Task: "burner", Address: lis.Addr().String(), Distributors: []string{distributor}})
		if err != nil {
			return err
		}
		defer s.Close()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.Ready(ctx); err != nil {
			return err
		}
		opts = sliceletgrpc.ServerOptions(s, sliceletgrpc.Config{})
	case "limit":
		room := make(chan struct{}, 16)
		opts = append(opts, grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			select {
			case room <- struct{}{}:
				defer func() { <-room }()
				return handler(ctx, req)
			default:
				return nil, status.Error(codes.ResourceExhausted, "16 are under way")
			}
		}))
	}
	server := grpc.NewServer(opts...)
	hello.RegisterGreeterServer(server, b)
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); server.Stop() }()
	fmt.Println(lis.Addr())
	return server.Serve(lis)
}

// process is such a server, on one core.
type process struct {
	cmd   *exec.Cmd
	stdin io.Closer
	addr  string
}

// onCore is a command that runs on one core, where that can be had.
func onCore(n int, args ...string) *exec.Cmd {
	if taskset, err := exec.LookPath("taskset"); err == nil && runtime.NumCPU() > 1 {
		args = append([]string{taskset, "-c", strconv.Itoa(n)}, args...)
	}
	return exec.Command(args[0], args[1:]...)
}

func startProcess(b *testing.B, kind string, takes time.Duration, distributor string) *process {
	b.Helper()
	p := &process{cmd: onCore(1, os.Args[0])}
	p.cmd.Env = append(os.Environ(), "GOMAXPROCS=1", fmt.Sprintf("%s=%s,%s,%s", serverEnv, kind, takes, distributor))
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		p.stdin, err = p.cmd.StdinPipe()
	}
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(p.end)
	if p.addr, err = bufio.NewReader(out).ReadString('\n'); err != nil {
		b.Fatal("the server has not said its address: ", err)
	}
	p.addr = strings.TrimSpace(p.addr)
	return p
}

func (p *process) end() {
	_ = p.stdin.Close()
	_ = p.cmd.Wait()
}

// cpu is what the process has used.
func (p *process) cpu(b *testing.B) time.Duration {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		b.Fatal(err)
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	user, err := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	if err := errors.Join(err, err2); err != nil {
		b.Fatal(err)
	}
	return time.Duration(user+system) * (time.Second / 100)
}

// settle waits until the process has done what nothing waits for any more: an unprotected
// server works on for long after a load, and would take the core from the next one.
func (p *process) settle(b *testing.B) {
	b.Helper()
	for before := p.cpu(b); ; {
		time.Sleep(300 * time.Millisecond)
		now := p.cpu(b)
		if now-before < 30*time.Millisecond {
			return
		}
		before = now
	}
}

// result is what was offered and what came of it, by criticality.
type result struct {
	offered, inTime, refused [overload.CriticalPlus + 1]int
	latencies                []time.Duration
	latenciesPlus            []time.Duration // of critical_plus
	late                     []time.Duration // that requests were sent after their time
	cpu                      time.Duration
}

func (r *result) good() (n int) {
	for _, k := range r.inTime {
		n += k
	}
	return n
}

func (r *result) share(c overload.Criticality) float64 {
	return float64(r.inTime[c]) / float64(max(r.offered[c], 1))
}

func (r *result) report(b *testing.B, good, cpu float64) {
	all, refused := 0, 0
	for c := range r.offered {
		all, refused = all+r.offered[c], refused+r.refused[c]
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(good, "good/CPU")
	b.ReportMetric(cpu, "CPU/CPU")
	b.ReportMetric(float64(refused)/float64(all), "refused")
	b.ReportMetric(p99(r.latencies), "p99-ms")
	b.ReportMetric(p99(r.latenciesPlus), "critical_plus-p99-ms")
	b.ReportMetric(p99(r.late), "load-late-p99-ms")
	b.ReportMetric(float64(r.refused[overload.Critical]+r.refused[overload.CriticalPlus]), "critical-refused")
	for c := overload.Sheddable; c <= overload.CriticalPlus; c++ {
		b.ReportMetric(r.share(c), c.String())
	}
}

// p99 in milliseconds, 0 of none.
func p99(of []time.Duration) float64 {
	if len(of) == 0 {
		return 0
	}
	slices.Sort(of)
	return float64(of[len(of)*99/100].Microseconds()) / 1000
}

// offer sends requests at times that were drawn before, whatever becomes of them.
func (p *process) offer(b *testing.B, dial func() (*grpc.ClientConn, error), seed uint64, rate float64, lasts time.Duration) *result {
	b.Helper()
	rng := rand.New(rand.NewPCG(seed, 7))
	type request struct {
		at time.Duration
		l  overload.Labels
	}
	var all []request
	for at := time.Duration(0); at < lasts; at += time.Duration(rng.ExpFloat64() / rate * float64(time.Second)) {
		l := overload.Labels{Criticality: overload.Sheddable}
		switch x := rng.Float64(); {
		case x < .1:
			l.Criticality = overload.CriticalPlus
		case x < .6:
			l.Criticality = overload.Critical
		case x < .8:
			l.Criticality = overload.SheddablePlus
		}
		l.SetCohort(rng.IntN(overload.Cohorts))
		all = append(all, request{at, l})
	}
	const conns = 8
	var stubs []hello.GreeterClient
	for range conns {
		conn, err := dial()
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
		stub := hello.NewGreeterClient(conn)
		if _, err := stub.SayHello(context.Background(), wrapperspb.String("first")); err != nil && status.Code(err) != codes.ResourceExhausted {
			b.Fatal(err)
		}
		stubs = append(stubs, stub)
	}
	r := new(result)
	var mu sync.Mutex
	var wg sync.WaitGroup
	before := p.cpu(b)
	begin := time.Now()
	for i, q := range all {
		if wait := q.at - time.Since(begin); wait > 0 {
			time.Sleep(wait)
		}
		wg.Go(func() {
			ctx, cancel := context.WithDeadline(context.Background(), begin.Add(q.at+patience))
			defer cancel()
			late := time.Since(begin) - q.at
			ctx = overload.WithLabels(ctx, q.l)
			_, err := stubs[i%conns].SayHello(ctx, wrapperspb.String("x"))
			took := time.Since(begin.Add(q.at))
			mu.Lock()
			defer mu.Unlock()
			r.offered[q.l.Criticality]++
			r.late = append(r.late, late)
			switch {
			case err == nil && took <= patience:
				r.inTime[q.l.Criticality]++
				r.latencies = append(r.latencies, took)
				if q.l.Criticality == overload.CriticalPlus {
					r.latenciesPlus = append(r.latenciesPlus, took)
				}
			case status.Code(err) == codes.ResourceExhausted, status.Code(err) == codes.Unavailable:
				r.refused[q.l.Criticality]++
			}
		})
	}
	wg.Wait()
	r.cpu = p.cpu(b) - before
	p.settle(b)
	return r
}

// dialPlain dials as a client does that does not know Slicer, but for the headers.
func (p *process) dialPlain() (*grpc.ClientConn, error) {
	label := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		l := overload.LabelsOf(ctx)
		cohort, _ := l.Cohort()
		ctx = metadata.AppendToOutgoingContext(ctx, sliceletgrpc.CriticalityHeader, l.Criticality.String(), sliceletgrpc.CohortHeader, strconv.Itoa(cohort))
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	return grpc.NewClient(p.addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry(), grpc.WithUnaryInterceptor(label))
}

// dialSlicer is that of a client of the job.
func dialSlicer(job string, distributors []string) (*grpc.ClientConn, error) {
	opts := clerkgrpc.DialOptions(clerkgrpc.Config{Clerk: clerk.Config{Distributors: distributors}, Keyless: clerkgrpc.AnyTask})
	return grpc.NewClient("slicer:///"+job, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry())...)
}

// BenchmarkAdmission offers a server of one core more than it can do, in turns with a server
// without admission and one with a fixed limit; "levels" is one with admission whose clients
// link the library. Answers in time for each CPU-second are divided by those of the same
// server at .5x in the same turn; beside it is the CPU that it used, of what the one without
// admission used.
//
//	go test ./test/bench/overload -run '^$' -bench Admission -benchtime 1x -cell 60s -turns 5
func BenchmarkAdmission(b *testing.B) {
	if taskset, err := exec.LookPath("taskset"); err == nil && runtime.NumCPU() > 1 {
		// The load and the control plane take the other core.
		pin := func(cores string) {
			if out, err := exec.Command(taskset, "-a", "-c", "-p", cores, strconv.Itoa(os.Getpid())).CombinedOutput(); err != nil {
				b.Fatalf("%v: %s", err, out)
			}
		}
		pin("0")
		defer pin(fmt.Sprintf("0-%d", runtime.NumCPU()-1))
	}
	plane := bed.Start(b, bed.Config{})
	kinds := []string{"nothing", "limit", "slicer", "levels"}
	for _, kind := range kinds {
		cfg := assignment.JobConfig{Name: kind, Overload: assignment.OverloadConfig{Admission: assignment.AdmissionOn}}
		if err := plane.PutJob(b.Context(), cfg.WithDefaults()); err != nil {
			b.Fatal(err)
		}
	}
	for _, takes := range []time.Duration{2 * time.Millisecond, 5 * time.Millisecond} {
		for turn := range *turns {
			base := map[string]float64{}
			used := map[float64]time.Duration{}
			servers := map[string]*process{}
			for _, kind := range kinds {
				servers[kind] = startProcess(b, kind, takes, plane.Addrs()[0])
			}
			for _, times := range []float64{.5, .8, 1, 1.5, 3, 10} {
				for _, kind := range kinds {
					b.Run(fmt.Sprintf("takes=%v/load=%v/server=%s", takes, times, kind), func(b *testing.B) {
						dial := servers[kind].dialPlain
						if kind == "levels" {
							dial = func() (*grpc.ClientConn, error) { return dialSlicer(kind, plane.Addrs()) }
						}
						r := servers[kind].offer(b, dial, uint64(turn), times/takes.Seconds(), *cell)
						perCPU := float64(r.good()) / r.cpu.Seconds()
						if times == .5 {
							base[kind] = perCPU
						}
						if kind == "nothing" {
							used[times] = r.cpu
						}
						r.report(b, perCPU/base[kind], r.cpu.Seconds()/used[times].Seconds())
					})
				}
			}
			for _, p := range servers {
				p.end()
			}
		}
	}
}
