package overload

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/clerkgrpc"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/slicelet/sliceletgrpc"
	"github.com/slicer-project/slicer/test/examples/greeter/hello"
	"github.com/slicer-project/slicer/test/kit/onecore"
)

var (
	phase  = flag.Duration("phase", 2*time.Second, "of BenchmarkRefusal, BenchmarkMemory, BenchmarkReplicas and BenchmarkHostile: how long each is measured at a time")
	rounds = flag.Int("rounds", 1, "of the same: how often each is measured, in turns")
)

// spec is what a server in a process of its own is to do.
type spec struct {
	Job, Task, Distributor string        // no slicelet if there is no job
	Burns                  time.Duration // CPU time of a request
	// Waits is how long a request keeps the server busy, on average, which it does without
	// CPU: one after the other, as if each burnt a core of its own.
	Waits time.Duration
	// Most is for how long a request may wait for that; one that would for longer is refused. 0 is
	// without limit.
	Most time.Duration
	Full bool // it has no room for anything
	// Member: it is a task of the job, but its server does not know Slicer.
	Member bool
	// ByAddress: a request is charged to the address that it comes from.
	ByAddress bool
}

const specEnv = "SLICER_BENCH_SPEC"

// A process with a spec in its environment is a server and nothing else.
func init() {
	text := os.Getenv(specEnv)
	if text == "" {
		return
	}
	var s spec
	err := json.Unmarshal([]byte(text), &s)
	if err == nil {
		err = s.serve()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// busied is a server whose requests take time.
type busied struct {
	hello.Greeter
	spec
	loops int

	mu    sync.Mutex
	until time.Time // it is busy with what it has begun
	busy  time.Duration
	rng   *rand.Rand
}

func (b *busied) SayHello(ctx context.Context, _ *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
	if b.loops > 0 {
		onecore.Burn(b.loops)
	}
	if b.Waits > 0 {
		end, ok := b.begin(time.Now())
		switch {
		case !ok && b.Job != "" && !b.Member:
			return nil, sliceletgrpc.Overloaded(ctx)
		case !ok:
			return nil, status.Error(codes.Unavailable, "too many wait")
		}
		time.Sleep(time.Until(end))
	}
	return wrapperspb.String(""), nil
}

// begin returns when a request will have been served that has come now, and false if there is
// no room for it.
func (b *busied) begin(now time.Time) (time.Time, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.Most > 0 && b.until.Sub(now) > b.Most {
		return time.Time{}, false
	}
	takes := time.Duration(b.rng.ExpFloat64() * float64(b.Waits))
	if b.until.Before(now) {
		b.until = now
	}
	b.until = b.until.Add(takes)
	b.busy += takes
	return b.until, true
}

// done is how long it has been busy.
func (b *busied) done() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.busy - max(time.Until(b.until), 0)
}

// utilization returns what says how busy it has been since it was asked last.
func (b *busied) utilization() func() float64 {
	at, was := time.Now(), time.Duration(0)
	return func() float64 {
		now, done := time.Now(), b.done()
		u := float64(done-was) / float64(now.Sub(at))
		at, was = now, done
		return u
	}
}

// serve prints the address, and with each line of input how long it has been busy, ns.
func (s spec) serve() error {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	b := &busied{spec: s, rng: rand.New(rand.NewPCG(uint64(os.Getpid()), 1))}
	if s.Burns > 0 {
		b.loops = onecore.Loops(s.Burns)
	}
	var opts []grpc.ServerOption
	if s.Job != "" {
		cfg := slicelet.Config{Job: s.Job, Task: s.Task, Address: lis.Addr().String(), Distributors: []string{s.Distributor}}
		if s.Full {
			cfg.Signals = []func() float64{func() float64 { return 1e9 }}
		}
		if s.ByAddress {
			cfg.Customer = func(ctx context.Context, _ string) string {
				if p, ok := peer.FromContext(ctx); ok {
					host, _, _ := net.SplitHostPort(p.Addr.String())
					return host
				}
				return ""
			}
		}
		sl, err := slicelet.New(cfg)
		if err != nil {
			return err
		}
		defer sl.Close()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := sl.Ready(ctx); err != nil {
			return err
		}
		grpcConfig := sliceletgrpc.Config{}
		if s.Waits > 0 {
			grpcConfig.Utilization = b.utilization()
		}
		if !s.Member {
			opts = sliceletgrpc.ServerOptions(sl, grpcConfig)
		}
	}
	server := grpc.NewServer(opts...)
	hello.RegisterGreeterServer(server, b)
	go func() {
		fmt.Println(lis.Addr())
		in := bufio.NewScanner(os.Stdin)
		for in.Scan() {
			fmt.Println(b.done().Nanoseconds())
		}
		server.Stop()
	}()
	return server.Serve(lis)
}

// start starts it as a process of its own.
func (s spec) start(b *testing.B, env ...string) *child {
	b.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		b.Fatal(err)
	}
	return &child{onecore.Start(b, append(env, specEnv+"="+string(text))...)}
}

// child is such a server.
type child struct{ *onecore.Process }

// busy is how long it has been busy.
func (c *child) busy(b *testing.B) time.Duration {
	b.Helper()
	ns, err := strconv.ParseInt(c.Ask(b, "busy"), 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return time.Duration(ns)
}

// plainConn knows nothing of Slicer.
func (c *child) plainConn(b *testing.B, opts ...grpc.DialOption) *grpc.ClientConn {
	b.Helper()
	conn, err := grpc.NewClient(c.Addr, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry())...)
	if err != nil {
		b.Fatal(err)
	}
	return conn
}

// jobConn is that of a client of a job, with a clerk of its own.
func jobConn(b *testing.B, job string, distributors []string, opts ...grpc.DialOption) *grpc.ClientConn {
	b.Helper()
	opts = append(clerkgrpc.DialOptions(clerkgrpc.Config{Clerk: clerk.Config{Distributors: distributors, Logger: slog.New(slog.DiscardHandler)}, Keyless: clerkgrpc.AnyTask}), opts...)
	conn, err := grpc.NewClient("slicer:///"+job, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry())...)
	if err != nil {
		b.Fatal(err)
	}
	return conn
}

// steady calls call at times that are drawn before, so many a second on average, whatever
// becomes of them, with when each was to be sent, and waits for all.
func steady(seed uint64, rate float64, lasts time.Duration, call func(rng *rand.Rand, at time.Time) (send func())) {
	rng := rand.New(rand.NewPCG(seed, 3))
	var calls sync.WaitGroup
	begin := time.Now()
	for at := time.Duration(0); at < lasts; at += time.Duration(rng.ExpFloat64() / rate * float64(time.Second)) {
		send := call(rng, begin.Add(at))
		if wait := at - time.Since(begin); wait > 0 {
			time.Sleep(wait)
		}
		calls.Go(send)
	}
	calls.Wait()
}

// figures are values of one name, of which the median is reported.
type figures map[string][]float64

func (f figures) add(name string, v float64) { f[name] = append(f[name], v) }

func (f figures) median(name string) float64 {
	v := slices.Sorted(slices.Values(f[name]))
	if len(v) == 0 {
		return 0
	}
	return v[len(v)/2]
}

// report reports medians and, where there are several, how far they are apart.
func (f figures) report(b *testing.B) {
	b.ReportMetric(0, "ns/op")
	for name, v := range f {
		b.ReportMetric(f.median(name), name)
		if len(v) > 1 {
			b.Logf("%s: %.4g to %.4g, median %.4g of %d", name, slices.Min(v), slices.Max(v), f.median(name), len(v))
		}
	}
}

// unit makes a name one that a benchmark may report.
func unit(parts ...string) string { return strings.ReplaceAll(strings.Join(parts, "-"), " ", "_") }
