package onecore

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/loadbalance/overload"
	"github.com/slicer-project/slicer/slicelet/sliceletgrpc"
	"github.com/slicer-project/slicer/test/examples/greeter/hello"
)

// patience is how long after its time a request is answered in time.
const patience = 500 * time.Millisecond

// result is what was offered and what came of it, by criticality.
type result struct {
	offered, inTime, refused [overload.CriticalPlus + 1]int
	held                     int // of the refused, by the client
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

// sample is what a table shows of it. good and used are those of the same server at the least
// load and of the one without admission.
func (r *result) sample(perCPU, least float64, used time.Duration) sample {
	s := sample{perCPU: perCPU, good: perCPU / least, cpu: r.cpu.Seconds() / used.Seconds(), p99: p99(r.latencies), p99Plus: p99(r.latenciesPlus)}
	all, refused := 0, 0
	for c := range r.offered {
		all, refused = all+r.offered[c], refused+r.refused[c]
		s.served[c] = r.share(overload.Criticality(c))
	}
	s.refused, s.held = float64(refused-r.held)/float64(all), float64(r.held)/float64(all)
	return s
}

// report reports what no table shows.
func (r *result) report(b *testing.B) {
	b.ReportMetric(p99(r.late), "load-late-p99-ms")
	b.ReportMetric(float64(r.refused[overload.Critical]+r.refused[overload.CriticalPlus]), "critical-refused")
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
func (p *process) offer(tb testing.TB, dial func(Place) (*grpc.ClientConn, error), seed uint64, rate float64, mix [4]float64, lasts time.Duration) *result {
	tb.Helper()
	rng := rand.New(rand.NewPCG(seed, 7))
	type request struct {
		at time.Duration
		l  overload.Labels
	}
	var all []request
	for at := time.Duration(0); at < lasts; at += time.Duration(rng.ExpFloat64() / rate * float64(time.Second)) {
		var l overload.Labels
		x := rng.Float64()
		for i, share := range mix {
			if l.Criticality = overload.Sheddable + overload.Criticality(i); x < share {
				break
			}
			x -= share
		}
		l.SetCohort(rng.IntN(overload.Cohorts))
		all = append(all, request{at, l})
	}
	const conns = 8
	var stubs []hello.GreeterClient
	for range conns {
		conn, err := dial(p.place)
		if err != nil {
			tb.Fatal(err)
		}
		defer conn.Close()
		stub := hello.NewGreeterClient(conn)
		if _, err := stub.SayHello(context.Background(), wrapperspb.String("first")); err != nil && status.Code(err) != codes.ResourceExhausted {
			tb.Fatal(err)
		}
		stubs = append(stubs, stub)
	}
	r := new(result)
	var mu sync.Mutex
	var wg sync.WaitGroup
	before := p.CPU(tb)
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
			var server peer.Peer // none if the request was not sent
			_, err := stubs[i%conns].SayHello(ctx, wrapperspb.String("x"), grpc.Peer(&server))
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
				if r.refused[q.l.Criticality]++; server.Addr == nil {
					r.held++
				}
			}
		})
	}
	wg.Wait()
	r.cpu = p.CPU(tb) - before
	p.settle(tb)
	return r
}

// dialPlain dials as a client does that does not know Slicer, but for the headers.
func dialPlain(p Place) (*grpc.ClientConn, error) {
	return grpc.NewClient(p.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry(), Labelled())
}

// Labelled has a client that does not know Slicer send criticality and cohort as headers.
func Labelled() grpc.DialOption {
	return grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		l := overload.LabelsOf(ctx)
		cohort, _ := l.Cohort()
		ctx = metadata.AppendToOutgoingContext(ctx, sliceletgrpc.CriticalityHeader, l.Criticality.String(), sliceletgrpc.CohortHeader, strconv.Itoa(cohort))
		return invoke(ctx, method, req, reply, cc, opts...)
	})
}
