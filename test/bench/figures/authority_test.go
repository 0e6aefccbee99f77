package figures

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/cputest"
	"github.com/slicer-project/slicer/assignment/waittest"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/deploy/plot"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/test/kit/bed"
)

const (
	// roleEnv has the test binary be a process of the experiment instead.
	roleEnv = "SLICER_TEST_AUTHORITY"

	methodAsk   = "/slicer.figures.Authority/Ask"
	methodServe = "/slicer.figures.Service/Serve"

	keys = 10_000
	// callWithin is what requests have in the figure.
	callWithin = 2 * time.Second
	// inFlight bounds the requests that are under way at once.
	inFlight = 512
)

// handler answers a string with a string.
type handler interface {
	answer(ctx context.Context, key string) (string, error)
}

func describe(method string) *grpc.ServiceDesc {
	service, name, _ := strings.Cut(method[1:], "/")
	return &grpc.ServiceDesc{
		ServiceName: service, HandlerType: (*handler)(nil),
		Methods: []grpc.MethodDesc{{MethodName: name, Handler: func(srv any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			var key wrapperspb.StringValue
			if err := decode(&key); err != nil {
				return nil, err
			}
			s, err := srv.(handler).answer(ctx, key.Value)
			return wrapperspb.String(s), err
		}}},
	}
}

func invoke(ctx context.Context, conn *grpc.ClientConn, method, key string) (string, error) {
	var out wrapperspb.StringValue
	err := conn.Invoke(ctx, method, wrapperspb.String(key), &out)
	return out.Value, err
}

// authority is a clerk that tells others where a key belongs.
type authority struct{ c *clerk.Clerk }

func (a authority) answer(_ context.Context, key string) (string, error) {
	r := a.c.Lookup(key)
	if r.Len() == 0 {
		return "", errors.New("no assignment yet")
	}
	return r.At(0).Address, nil
}

// roleMain is the authority's process: it gets the Distributor's address, prints
// its own, and ends with its input.
func roleMain(distributor string) int {
	if err := runAuthority(distributor); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func runAuthority(distributor string) error {
	c, err := clerk.New(clerk.Config{Job: "job", Distributors: []string{distributor}})
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := c.Ready(ctx); err != nil {
		return err
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s := grpc.NewServer()
	s.RegisterService(describe(methodAsk), authority{c})
	go s.Serve(lis)
	defer s.Stop()
	fmt.Println(lis.Addr())
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// backend is a server of the application: it confirms with the authority, if
// there is one, that a request is rightly here, and otherwise asks its slicelet.
type backend struct {
	address  string
	slicelet *slicelet.Slicelet
	ask      atomic.Pointer[grpc.ClientConn] // nil: no authority
	wrong    atomic.Int64
}

func (b *backend) answer(ctx context.Context, key string) (string, error) {
	mine := b.slicelet.Handle(key).Owned()
	if conn := b.ask.Load(); conn != nil {
		owner, err := invoke(ctx, conn, methodAsk, key)
		if err != nil {
			return "", err
		}
		mine = owner == b.address
	}
	if !mine {
		b.wrong.Add(1)
	}
	return "ok", nil
}

// arena is servers, clients' connections to them, and an authority in a process
// of its own.
type arena struct {
	clerk    *clerk.Clerk
	backends []*backend
	conns    map[string]*grpc.ClientConn
	ask      *grpc.ClientConn
	within   time.Duration // a request with all that it asks of others has to be answered
}

func startArena(tb testing.TB, servers int, within time.Duration) *arena {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), waittest.Patience)
	defer cancel()
	p := bed.Start(tb, bed.Config{})
	if err := p.PutJob(ctx, assignment.JobConfig{Name: "job", MaxReplicas: 1}.WithDefaults()); err != nil {
		tb.Fatal(err)
	}
	a := &arena{conns: map[string]*grpc.ClientConn{}, within: within}
	dial := func(addr string) *grpc.ClientConn {
		conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			tb.Fatal(err)
		}
		bed.CloseAtEnd(tb, conn.Close)
		return conn
	}
	for i := range servers {
		lis := bed.Listen(tb)
		b := &backend{address: lis.Addr().String()}
		var err error
		if b.slicelet, err = slicelet.New(slicelet.Config{Job: "job", Task: fmt.Sprintf("t%02d", i), Address: b.address, Distributors: p.Addrs()}); err != nil {
			tb.Fatal(err)
		}
		bed.Serve(tb, lis, func(r grpc.ServiceRegistrar) { r.RegisterService(describe(methodServe), b) }, b.slicelet.Close)
		a.backends = append(a.backends, b)
		a.conns[b.address] = dial(b.address)
	}
	for _, b := range a.backends {
		if err := b.slicelet.Ready(ctx); err != nil {
			tb.Fatal(err)
		}
	}
	var err error
	if a.clerk, err = clerk.New(clerk.Config{Job: "job", Distributors: p.Addrs()}); err != nil {
		tb.Fatal(err)
	}
	bed.CloseAtEnd(tb, a.clerk.Close)
	if err := a.clerk.Ready(ctx); err != nil {
		tb.Fatal(err)
	}
	a.ask = dial(a.startAuthority(tb, p.Addrs()[0]))
	return a
}

func (a *arena) startAuthority(tb testing.TB, distributor string) (addr string) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleEnv+"="+distributor, "GOMAXPROCS=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	bed.CloseAtEnd(tb, func() error { return errors.Join(in.Close(), cmd.Wait()) })
	if addr, err = bufio.NewReader(out).ReadString('\n'); err != nil {
		tb.Fatal(err)
	}
	return strings.TrimSpace(addr)
}

// request is one of a client's: with an authority it asks that first.
func (a *arena) request(ctx context.Context, key string, central bool) (err error) {
	ctx, cancel := context.WithTimeout(ctx, a.within)
	defer cancel()
	to := a.clerk.Lookup(key).At(0).Address
	if central {
		if to, err = invoke(ctx, a.ask, methodAsk, key); err != nil {
			return err
		}
	}
	conn := a.conns[to]
	if conn == nil {
		return fmt.Errorf("key %s belongs to %s, which is no server", key, to)
	}
	_, err = invoke(ctx, conn, methodServe, key)
	return err
}

// point is what became of one offered load.
type point struct {
	offered, served float64 // requests a second
	median, p99     time.Duration
	failed          int
	answered        int // whether or not in time
}

// offer offers load for a while, open loop: a request begins when it is due,
// whatever became of the ones before, and its latency counts from then.
func (a *arena) offer(perSecond float64, d time.Duration, central bool) point {
	for _, b := range a.backends {
		if b.ask.Store(nil); central {
			b.ask.Store(a.ask)
		}
	}
	rng := rand.New(rand.NewPCG(uint64(perSecond), 1))
	type work struct {
		key string
		due time.Time
	}
	todo := make(chan work, inFlight)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var took []time.Duration
	p := point{offered: perSecond}
	began := time.Now()
	end := began.Add(d)
	for range inFlight {
		wg.Go(func() {
			var mine []time.Duration
			failed, answered := 0, 0
			for w := range todo {
				if err := a.request(context.Background(), w.key, central); err != nil {
					failed++
					continue
				}
				answered++
				if now := time.Now(); now.Before(end) {
					mine = append(mine, now.Sub(w.due))
				}
			}
			mu.Lock()
			took, p.failed, p.answered = append(took, mine...), p.failed+failed, p.answered+answered
			mu.Unlock()
		})
	}
	for due := began; due.Before(end); due = due.Add(time.Duration(rng.ExpFloat64() * float64(time.Second) / perSecond)) {
		if wait := time.Until(due); wait > time.Millisecond {
			time.Sleep(wait)
		}
		if time.Now().After(end) {
			break // what cannot even begin in time is not served
		}
		todo <- work{fmt.Sprint("key-", rng.IntN(keys)), due}
	}
	close(todo)
	wg.Wait()
	slices.Sort(took)
	if p.served = float64(len(took)) / d.Seconds(); len(took) > 0 {
		p.median, p.p99 = quantile(took, .5), quantile(took, .99)
	}
	return p
}

// BenchmarkAuthority offers more and more load to 50 servers, with an authority
// that is asked by the client before each request and by the server during it,
// and with Slicer.
func BenchmarkAuthority(b *testing.B) {
	for b.Loop() {
		a := startArena(b, 50, callWithin)
		var curves [2][]point
		most := [2]float64{}
		for _, rate := range []float64{250, 500, 1000, 2000, 3000, 4000, 6000, 8000, 12000, 16000, 24000} {
			for i, central := range []bool{false, true} {
				before := cputest.Own()
				p := a.offer(rate, 5*time.Second, central)
				curves[i] = append(curves[i], p)
				most[i] = max(most[i], p.served)
				b.Logf("%-9s offered %6.0f/s: served %6.0f/s, median %8.2f ms, 99th percentile %8.2f ms, %d failed, CPU of clients, servers and Slicer %.0f us a request",
					[]string{"Slicer", "authority"}[i], p.offered, p.served, float64(p.median.Microseconds())/1000, float64(p.p99.Microseconds())/1000, p.failed,
					float64((cputest.Own()-before).Microseconds())/max(p.served*5, 1))
			}
		}
		b.ReportMetric(most[0], "req/s-slicer")
		b.ReportMetric(most[1], "req/s-authority")
		b.ReportMetric(most[0]/most[1], "slicer/authority")
		var rate, median plot.Panel
		for i, name := range []string{"Slicer", "central authority"} {
			var x, y, z []float64
			for _, p := range curves[i] {
				x, y, z = append(x, p.offered), append(y, p.served), append(z, float64(p.median.Microseconds())/1000)
			}
			rate.Series = append(rate.Series, plot.Series{Name: name, X: x, Y: y, Strong: i == 0})
			median.Series = append(median.Series, plot.Series{Name: name, X: x, Y: z, Strong: i == 0})
		}
		rate.YLabel, median.YLabel, median.XLabel = "served, requests/s", "median latency, ms", "offered load, requests/s"
		median.LogY = true
		draw(b, "figure14-authority.svg", plot.Figure{
			Title:  "Slicer against a central authority",
			Notes:  []string{"50 servers, clients, Slicer and the authority on one machine of 2 cores; compare Slicer paper, Figure 14"},
			Panels: []plot.Panel{rate, median},
		})
	}
}

func TestAuthority(t *testing.T) {
	a := startArena(t, 5, waittest.Patience)
	for _, central := range []bool{false, true} {
		if p := a.offer(50, time.Second, central); p.failed > 0 || p.answered == 0 {
			t.Errorf("central %v: %+v", central, p)
		}
	}
	for _, b := range a.backends {
		if n := b.wrong.Load(); n > 0 {
			t.Errorf("%d requests reached %s wrongly", n, b.address)
		}
	}
}
