package overload

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/loadbalance/overload"
	"github.com/slicer-project/slicer/test/examples/greeter/hello"
	"github.com/slicer-project/slicer/test/kit/bed"
)

// patience is how long after its time a request is answered in time.
const patience = 500 * time.Millisecond

// load is requests that come at times that were drawn before, whatever becomes of them.
type load struct {
	stubs []hello.GreeterClient // take turns
	key   func(*rand.Rand) string
	mixed bool // of criticalities .2, .2, .5 and .1, from the least on, else as the job has it
	in    string
	times int // that a request is sent at most, whatever the answer, as long as it is not served; 0 for once
}

// anyKey is one of a thousand.
func anyKey(rng *rand.Rand) string { return strconv.Itoa(rng.IntN(1000)) }

// slot is what became of the requests of a part of a second. late is how many were sent later than
// tardy after their time.
type slot struct{ offered, served, refused, held, late int }

const tardy = 50 * time.Millisecond

func (s slot) share() float64 { return float64(s.served) / float64(max(s.offered, 1)) }

const slots = 4 // in a second

// outcome is what became of requests, by part of a second and criticality.
type outcome [][overload.CriticalPlus + 1]slot

// sum is all that is so critical or more.
func (o outcome) sum(least overload.Criticality) (all slot) {
	for i := range o {
		for _, s := range o[i][least:] {
			all.offered, all.served, all.refused, all.held, all.late = all.offered+s.offered, all.served+s.served, all.refused+s.refused, all.held+s.held, all.late+s.late
		}
	}
	return all
}

// back is after how many seconds 98 in 100 of what is so critical or more are served of each second.
func (o outcome) back(least overload.Criticality) float64 { return o.reaches(least, .98) }

// shares are those served of each second.
func (o outcome) shares(least overload.Criticality) (of []string) {
	for i := 0; i+slots <= len(o); i += slots {
		of = append(of, fmt.Sprintf("%.3f", o[i:i+slots].sum(least).share()))
	}
	return of
}

// reaches is after how many seconds such a share is served of each second.
func (o outcome) reaches(least overload.Criticality, share float64) float64 {
	for i := range o[:len(o)-slots+1] {
		if o[i:i+slots].sum(least).share() >= share {
			return float64(i) / slots
		}
	}
	return float64(len(o)) / slots
}

// offer offers so many requests a second for so long.
func (l *load) offer(seed uint64, rate float64, lasts time.Duration) outcome {
	out := make(outcome, max(int(lasts.Seconds()*slots), 1))
	var mu sync.Mutex
	n, begin := 0, time.Now()
	steady(seed, rate, lasts, func(rng *rand.Rand, at time.Time) func() {
		ctx, of := context.Background(), overload.Criticality(0)
		if l.mixed {
			of = []overload.Criticality{overload.Sheddable, overload.Sheddable, overload.SheddablePlus, overload.SheddablePlus, overload.Critical,
				overload.Critical, overload.Critical, overload.Critical, overload.Critical, overload.CriticalPlus}[rng.IntN(10)]
			ctx = overload.WithCohort(overload.WithCriticality(ctx, of), rng.IntN(overload.Cohorts))
		}
		if l.key != nil {
			ctx = clerk.WithKey(ctx, l.key(rng))
		}
		stub := l.stubs[n%len(l.stubs)]
		n++
		return func() {
			ctx, cancel := context.WithDeadline(ctx, at.Add(patience))
			defer cancel()
			tooLate := time.Since(at) > tardy
			var err error
			var server peer.Peer // none of a request that was not sent
			for range max(l.times, 1) {
				if _, err = stub.SayHello(ctx, wrapperspb.String(l.in), grpc.Peer(&server)); err == nil {
					break
				}
			}
			mu.Lock()
			defer mu.Unlock()
			s := &out[min(int(at.Sub(begin).Seconds()*slots), len(out)-1)][of]
			if s.offered++; tooLate {
				s.late++
			}
			switch code := status.Code(err); {
			case err == nil:
				s.served++
			case code != codes.ResourceExhausted && code != codes.Unavailable:
			case server.Addr == nil:
				s.held++
			default:
				s.refused++
			}
		}
	})
	return out
}

// wire counts the attempts that a client sends.
type wire struct{ attempts atomic.Int64 }

func (*wire) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (*wire) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (*wire) HandleConn(context.Context, stats.ConnStats)                       {}

func (w *wire) HandleRPC(_ context.Context, s stats.RPCStats) {
	if _, sent := s.(*stats.OutHeader); sent {
		w.attempts.Add(1)
	}
}

// stubsOf closes the connections with the benchmark.
func stubsOf(b *testing.B, conns []*grpc.ClientConn) (stubs []hello.GreeterClient) {
	for _, conn := range conns {
		b.Cleanup(func() { _ = conn.Close() })
		stubs = append(stubs, hello.NewGreeterClient(conn))
	}
	return stubs
}

// fleet are tasks of a job, each in a process of its own, which have equal parts of the servers'
// core.
type fleet struct {
	job     string
	servers []*child
	burns   bool // CPU time is what limits them
	limited bool // each has its part of the core, and no more
}

// ofCore is what all tasks of a fleet may have together of the servers' core: less than .9, so that
// other work on the machine does not take from it at once.
const ofCore = .7

// startFleet starts the tasks of a job, whose keys all have as many owners as it says at least. A
// job without admission is none: its servers do not know Slicer.
func startFleet(b *testing.B, n int, s spec, plane *bed.Plane, job assignment.JobConfig) *fleet {
	b.Helper()
	if job.Overload.Admission != 0 {
		if err := plane.PutJob(b.Context(), job.WithDefaults()); err != nil {
			b.Fatal(err)
		}
		s.Job, s.Distributor = job.Name, plane.Addrs()[0]
	}
	f := &fleet{job: job.Name, burns: s.Burns > 0, limited: true}
	for i := range n {
		s.Task = "task-" + strconv.Itoa(i)
		f.servers = append(f.servers, s.start(b))
	}
	for i := range n {
		f.limited = f.limited && f.limit(b, i, 1)
	}
	if !f.limited {
		b.Log("no cgroup with a CPU quota can be made: the servers share a core as they can")
	}
	if s.Job != "" {
		awaitReplicas(b, plane, job.Name, n, max(job.MinReplicas, 1))
	}
	return f
}

// limit lets a task have a share of its part of the core.
func (f *fleet) limit(b *testing.B, i int, share float64) bool {
	b.Helper()
	return f.servers[i].Limit(b, share*ofCore/float64(len(f.servers)))
}

// stop ends the tasks before the benchmark does, so that the next ones have the core to themselves.
func (f *fleet) stop() {
	for _, c := range f.servers {
		c.Stop()
	}
}

func (f *fleet) cpu(b *testing.B) (sum time.Duration) {
	for _, c := range f.servers {
		sum += c.CPU(b)
	}
	return sum
}

// using notes, when it is called again, what share of its part of the core the fleet has used
// meanwhile.
func (f *fleet) using(b *testing.B, all *measured) (end func()) {
	at, before := time.Now(), f.cpu(b)
	return func() { all.add(b, part, (f.cpu(b)-before).Seconds()/(ofCore*time.Since(at).Seconds())) }
}

// calm offers half of what servers can do, notes what they make of it, and returns the CPU time
// that an answer has cost.
func (f *fleet) calm(b *testing.B, l load, all *measured, rate float64) time.Duration {
	b.Helper()
	// Until connections and weights are there, each server has begun to serve, and none has far more
	// keys than others, as the first that joined has.
	for good, n := 0, 0; good < 3 && n < 60; n++ {
		if good++; l.offer(1, rate, time.Second).sum(0).share() < .99 {
			good = 0
		}
	}
	before := f.cpu(b)
	s := l.offer(2, rate, min(2**phase, 4*time.Second)).sum(0)
	used := f.cpu(b) - before
	if f.burns {
		all.add(b, calmAnswers, float64(s.served)/used.Seconds())
	}
	all.add(b, calmServed, s.share())
	return used / time.Duration(max(s.served, 1))
}

// can is calm for servers whose requests take so much CPU time, and returns how many they can
// serve a second, with all that a request costs besides.
func (f *fleet) can(b *testing.B, l load, all *measured, takes time.Duration) float64 {
	b.Helper()
	return ofCore / f.calm(b, l, all, .5*ofCore/takes.Seconds()).Seconds()
}

// measured is what was measured of the same in several turns.
type measured struct{ figures }

// What figures of servers at half of what they can do are called: answers in time for each
// CPU-second, and what share was served.
const calmAnswers, calmServed = "calm-answers/CPU-s", "calm-served"

const (
	// late is what share of the requests of a turn was sent later than tardy after its time.
	late = "late"
	// part is what a fleet that was asked for more than it can do used of its part of the core.
	part = "CPU/part"
)

// addLate reports how late the load was.
func (m *measured) addLate(b *testing.B, s slot) {
	m.add(b, late, float64(s.late)/float64(max(s.offered, 1)))
}

// add reports a figure of a turn.
func (m *measured) add(b *testing.B, name string, v float64) {
	if m.figures == nil {
		m.figures = figures{}
	}
	m.figures.add(name, v)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(v, name)
}

// void says why what was measured says nothing, if that is so: the machine was not quiet.
func (m *measured) void() string {
	if v := m.figures[calmAnswers]; len(v) > 0 {
		if by := (slices.Max(v) - slices.Min(v)) / m.median(calmAnswers); by > .15 {
			return fmt.Sprintf("at half of what the servers can do answers for each CPU-second differ by %.2f of their median", by)
		}
	}
	if v := m.figures[calmServed]; len(v) > 0 && slices.Min(v) < .99 {
		return fmt.Sprintf("of half of what the servers can do %.3f was served", slices.Min(v))
	}
	if v := m.figures[late]; len(v) > 0 && slices.Max(v) > .01 {
		return fmt.Sprintf("the load was late with %.3f of the requests", slices.Max(v))
	}
	if v := m.figures[part]; len(v) > 0 && slices.Min(v) < .9 {
		return fmt.Sprintf("the servers used %.2f of their part of the core", slices.Min(v))
	}
	return ""
}

// bar is what a figure is to be.
type bar struct {
	name        string
	least, most float64 // 0: no such bound
}

// judge says medians, and fails the benchmark where one is not within its bar, unless what was
// measured is void.
func (m *measured) judge(b *testing.B, of string, bars ...bar) {
	b.Helper()
	void := m.void()
	if void != "" {
		fmt.Printf("%s: void, since %s\n", of, void)
	}
	for _, name := range slices.Sorted(maps.Keys(m.figures)) {
		v := m.figures[name]
		said := fmt.Sprintf("%s: %s %.4g (%.4g to %.4g of %d)", of, name, m.median(name), slices.Min(v), slices.Max(v), len(v))
		bad := false
		for _, x := range bars {
			if x.name == name && x.least > 0 {
				said += fmt.Sprintf(", at least %g", x.least)
				bad = bad || m.median(name) < x.least
			}
			if x.name == name && x.most > 0 {
				said += fmt.Sprintf(", at most %g", x.most)
				bad = bad || m.median(name) > x.most
			}
		}
		if fmt.Println(said); bad && void == "" {
			b.Errorf("%s: %s misses its bar", of, name)
		}
	}
}
