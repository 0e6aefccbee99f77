package distributor

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/distributor/fanout"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// node is one Distributor of several.
type node struct {
	d    *Distributor
	cc   *grpc.ClientConn
	reg  *prometheus.Registry
	said *lockedBuffer
	stop func()
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) count(s string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), s)
}

func tierAddress(id string) string { return "10.0.2." + id[1:] + ":7200" }

// node starts a Distributor, named d and a number: of the second tier if upstreams
// are given, else of the first.
func (n *network) node(t *testing.T, id string, upstreams ...string) *node {
	t.Helper()
	m := &node{reg: prometheus.NewRegistry(), said: &lockedBuffer{}}
	cfg := Config{ID: id, DialOptions: n.dialOptions(), Registerer: m.reg, Logger: slog.New(slog.NewTextHandler(m.said, nil))}
	for _, u := range upstreams {
		cfg.Upstreams = append(cfg.Upstreams, tierAddress(u))
	}
	if len(upstreams) == 0 {
		cfg.Assigners, cfg.ServeDistributors = []string{assigner1, assigner2}, true
	}
	var err error
	if m.d, err = newDistributor(cfg, n.lookup); err != nil {
		t.Fatal(err)
	}
	stop := n.serve(t, tierAddress(id), func(s *grpc.Server) { m.d.Register(s) }, ServerOptions()...)
	m.stop = func() { m.d.Close(); stop() }
	t.Cleanup(m.stop)
	m.cc = n.connect(t, tierAddress(id))
	return m
}

func (m *node) metric(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	families, err := m.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var sum float64
	for _, f := range families {
		for _, s := range f.GetMetric() {
			var have []string
			for _, l := range s.GetLabel() {
				have = append(have, l.GetName()+"="+l.GetValue())
			}
			missing := func(l string) bool { return !slices.Contains(have, l) }
			if f.GetName() == "slicer_distributor_"+name && !slices.ContainsFunc(labels, missing) {
				sum += s.GetGauge().GetValue() + s.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// candidate is how the fake assigners say that there is one.
func candidateAt(id, address string) *slicerv1.Candidate {
	return &slicerv1.Candidate{AssignerId: id, Address: address}
}

// tieredAssigner is an assigner that is preferred for testJob and hears d2 alone.
func (n *network) tieredAssigner(t *testing.T) *fakeAssigner {
	f := newFakeAssigner(t, "a1")
	f.only = "d2"
	f.prefer(1, "a1", candidateAt("a1", assigner1))
	f.start(n, assigner1)
	return f
}

func TestSecondTierBringsAssignmentsDownAndReportsUp(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		f := n.tieredAssigner(t)
		a := firstOf(t, testJob, testStore, baseGen, 2000)
		f.set(a)
		d1, d2 := n.node(t, "d1"), n.node(t, "d2", "d1")
		time.Sleep(time.Second)
		if err := d2.d.Ready(); err != nil {
			t.Fatal(err)
		}
		// What tells the assigner that none is connected there.
		tell(t, f, "hello d2", "reports web complete", "acks web empty")
		above := subscribe(t, d1.cc, clerkHello("above"), nil)
		clerk := subscribe(t, d2.cc, clerkHello("c1"), nil)
		task := subscribe(t, d2.cc, sliceletHello("s1", 1), nil)
		time.Sleep(time.Second)
		same(t, clerk.holds(), a)
		b := after(t, a, 20)
		f.set(b)
		time.Sleep(time.Second)
		for _, s := range []*fakeSub{above, clerk, task} {
			same(t, s.holds(), b)
			if got := s.kinds(); !slices.Equal(got, []string{fanout.KindWhole, fanout.KindDelta}) {
				t.Errorf("assignments came as %v", got)
			}
		}
		for _, d := range []*node{d1, d2} {
			for _, kind := range []string{fanout.KindWhole, fanout.KindDelta} {
				if got := d.metric(t, "encodes_total", "kind="+kind); got != 1 {
					t.Errorf("%s: %v encodings, %s, want 1", d.d.cfg.ID, got, kind)
				}
			}
		}
		task.report(running(2))
		time.Sleep(time.Second)
		told := f.told()
		for _, want := range []string{"reports web s1/1#2 running", "acks web min g1 clerks 1 slicelets 1"} {
			if !slices.Contains(told, want) {
				t.Errorf("the assigner was not told %q, but %q", want, told)
			}
		}
		if slices.ContainsFunc(told, func(s string) bool { return strings.HasPrefix(s, "want") }) {
			t.Errorf("the assigner was asked for assignments: %q", told)
		}
		// The assigner hears of d2 itself that it lives.
		f.hear()
		time.Sleep(10 * time.Second)
		if got := len(f.hear()); got < 10 {
			t.Errorf("%d signs of life in 10 s, want one each second at least", got)
		}
		// What the assigner says comes down: a status through the first tier's own, an
		// index and a refusal straight.
		f.status(&slicerv1.JobStatus{Job: testJob, ConvergedGeneration: int64(b.Generation()), LoadMetric: "cpu"})
		time.Sleep(time.Second)
		if s := clerk.lastStatus(); s.GetConvergedGeneration() != int64(b.Generation()) || s.GetLoadMetric() != "cpu" {
			t.Errorf("the status is %v", s)
		}
		f.say(&slicerv1.AttachResponse{Message: &slicerv1.AttachResponse_ClientIndexes{ClientIndexes: &slicerv1.ClientIndexes{
			Job: testJob, Indexes: []*slicerv1.ClientIndex{{ClientId: "c1", Index: 7}}}}})
		if s := clerk.lastStatus(); s.GetClientIndex() != 7 {
			t.Errorf("the status is %v", s)
		}
		f.say(&slicerv1.AttachResponse{Message: &slicerv1.AttachResponse_RefuseTask{RefuseTask: &slicerv1.RefuseTask{
			Job: testJob, Task: "s1", Incarnation: 1, Code: uint32(codes.AlreadyExists), Message: "taken"}}})
		time.Sleep(time.Second)
		if got := task.ended(); got != codes.AlreadyExists {
			t.Errorf("the refused task's stream: %s", got)
		}
		// Nothing is wanted any more when there is no subscriber.
		clerk.close()
		time.Sleep(2 * idleFor)
		if got := d1.metric(t, "subscribers", "role=observer"); got != 0 {
			t.Errorf("%v observers at the first tier, want 0", got)
		}
	})
}

func TestSecondTierOutlivesThoseAbove(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		f := n.tieredAssigner(t)
		a := firstOf(t, testJob, testStore, baseGen, 200)
		f.set(a)
		upstreams := map[string]*node{"d1": n.node(t, "d1"), "d3": n.node(t, "d3")}
		d2 := n.node(t, "d2", "d1", "d3")
		clerk := subscribe(t, d2.cc, clerkHello("c1"), nil)
		task := subscribe(t, d2.cc, sliceletHello("s1", 1), nil)
		time.Sleep(time.Second)
		same(t, clerk.holds(), a)
		if got := d2.metric(t, "upstreams"); got != 2 {
			t.Errorf("attached to %v distributors of the first tier, want 2", got)
		}
		// The one that is asked dies: the other is, and reports go through it.
		asked := fanout.StandIn([]string{"d1", "d3"}, testJob)
		upstreams[asked].stop()
		f.told()
		b := after(t, a, 2)
		f.set(b)
		time.Sleep(2 * retryMax)
		same(t, clerk.holds(), b)
		task.report(running(2))
		time.Sleep(time.Second)
		if told := f.told(); !slices.Contains(told, "reports web s1/1#2 running") {
			t.Errorf("the assigner was told %q", told)
		}
		// All assigners die: one that starts now still gets what the first tier holds.
		f.stop()
		time.Sleep(time.Second)
		d4 := n.node(t, "d4", "d1", "d3")
		late := subscribe(t, d4.cc, clerkHello("late"), nil)
		time.Sleep(time.Second)
		same(t, late.holds(), b)
		// The first tier dies as well: the second serves what it holds.
		for _, m := range upstreams {
			m.stop()
		}
		time.Sleep(time.Minute)
		later := subscribe(t, d2.cc, clerkHello("later"), nil)
		time.Sleep(time.Second)
		same(t, later.holds(), b)
		if got := clerk.ended(); got != codes.OK {
			t.Errorf("the clerk's stream has ended: %s", got)
		}
		// All return, with something newer.
		f.start(n, assigner1)
		n.node(t, "d1")
		c := after(t, b, 2)
		f.set(c)
		time.Sleep(3 * retryMax)
		same(t, clerk.holds(), c)
		same(t, late.holds(), c)
	})
}

func TestTiersThatLeadNowhereAreRefused(t *testing.T) {
	for _, test := range []struct {
		name  string
		nodes map[string][]string
		stuck string
		want  string
	}{
		{"of itself", map[string][]string{"d5": {"d5"}}, "d5", "cannot be upstream of itself"},
		{"of each other", map[string][]string{"d6": {"d7"}, "d7": {"d6"}}, "d6", "is of the second tier itself"},
		{"a third tier", map[string][]string{"d2": {"d1"}, "d8": {"d2"}}, "d8", "is of the second tier itself"},
		{"an assigner", map[string][]string{"d10": {"d9"}}, "d10", "unknown service slicer.v1.RelayService"},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				n := newNetwork()
				f := n.tieredAssigner(t)
				f.set(firstOf(t, testJob, testStore, baseGen, 20))
				n.node(t, "d1")
				n.serve(t, tierAddress("d9"), func(s *grpc.Server) { slicerv1.RegisterAssignerServiceServer(s, f) })
				nodes := make(map[string]*node)
				for id, up := range test.nodes {
					nodes[id] = n.node(t, id, up...)
				}
				time.Sleep(time.Minute)
				m := nodes[test.stuck]
				if got := m.said.count(test.want); got != 1 {
					t.Errorf("said %d times %q: %s", got, test.want, m.said.b.String())
				}
				err := m.d.Ready()
				if err == nil || !strings.Contains(err.Error(), "no distributor of the first tier has been reached") || !strings.Contains(err.Error(), test.want) {
					t.Errorf("ready: %v", err)
				}
				c := subscribe(t, m.cc, clerkHello("c1"), nil)
				time.Sleep(2 * fanout.Patience)
				if got := c.ended(); got != codes.Unavailable {
					t.Errorf("a clerk's stream: %s, want Unavailable", got)
				}
			})
		})
	}
}

func TestSecondTierAsksForBases(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		f := n.tieredAssigner(t)
		a := firstOf(t, testJob, testStore, baseGen, 2000)
		b := after(t, a, 20)
		f.past = map[int64]*assignment.Assignment{int64(a.Generation()): a}
		f.know(testJob)
		n.node(t, "d1")
		d2 := n.node(t, "d2", "d1")
		time.Sleep(time.Second)
		// They come back to a Distributor that has restarted, below another that has.
		var subs []*fakeSub
		for i := range 2 * fanout.BaseHolders {
			subs = append(subs, subscribe(t, d2.cc, holding(clerkHello(fmt.Sprint("c", i)), a), a))
		}
		synctest.Wait()
		f.set(b)
		for _, s := range subs {
			same(t, s.holds(), b)
			if got := s.kinds(); !slices.Equal(got, []string{fanout.KindDelta}) {
				t.Errorf("sent %v, want a delta", got)
			}
		}
	})
}

func TestSecondTierLearnsOfJobs(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		f := n.tieredAssigner(t)
		n.node(t, "d1")
		d2 := n.node(t, "d2", "d1")
		time.Sleep(time.Second)
		if got := subscribe(t, d2.cc, clerkHello("c1"), nil); true {
			time.Sleep(time.Second)
			if got.ended() != codes.NotFound {
				t.Errorf("the stream of a job that there is not: %s", got.ended())
			}
		}
		f.know(testJob)
		time.Sleep(2 * fanout.UnknownFor)
		c := subscribe(t, d2.cc, clerkHello("c2"), nil)
		time.Sleep(4 * fanout.UnknownFor)
		if c.ended() != codes.OK || c.lastStatus() == nil {
			t.Fatalf("the stream of a job without an assignment: %s", c.ended())
		}
		a := firstOf(t, testJob, testStore, baseGen, 20)
		f.set(a)
		same(t, c.holds(), a)
		// What does not decode is asked for anew, whole.
		junk := new(wire.Assembler)
		if err := junk.Add(&slicerv1.Chunk{Data: []byte("junk")}); err != nil {
			t.Fatal(err)
		}
		d2.d.upstreams["d1"].assemblers[testJob] = junk
		b := after(t, a, 1)
		f.set(b)
		time.Sleep(fanout.AskAgainMax)
		same(t, c.holds(), b)
	})
}

func TestSecondTierIsSeenAndPassesCallsOn(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		f := n.tieredAssigner(t)
		f.set(firstOf(t, testJob, testStore, baseGen, 20))
		d1, d2 := n.node(t, "d1"), n.node(t, "d2", "d1")
		time.Sleep(time.Second)
		r, err := slicerv1.NewAdminServiceClient(d2.cc).InspectJob(context.Background(), &slicerv1.InspectJobRequest{Job: testJob})
		if err != nil || r.AssignerId != "a1" {
			t.Errorf("inspect: %v, %v", r, err)
		}
		describe := func(m *node) *slicerv1.DescribeResponse {
			r, err := slicerv1.NewRelayServiceClient(m.cc).Describe(context.Background(), &slicerv1.DescribeRequest{})
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		if r := describe(d1); r.DistributorId != "d1" || r.Tier != 1 || len(r.Upstreams) != 0 || len(r.Downstreams) != 1 || r.Downstreams[0].Id != "d2" {
			t.Errorf("the first tier says %v", r)
		}
		if r := describe(d2); r.DistributorId != "d2" || r.Tier != 2 || len(r.Downstreams) != 0 || len(r.Upstreams) != 1 ||
			r.Upstreams[0].Id != "d1" || r.Upstreams[0].Address != tierAddress("d1") {
			t.Errorf("the second tier says %v", r)
		}
		for name, want := range map[string]float64{"tier": 2, "upstreams": 1, "assigners": 1, "downstreams": 0} {
			if got := d2.metric(t, name); got != want {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		}
		if got := d1.metric(t, "tier") + 10*d1.metric(t, "downstreams"); got != 11 {
			t.Errorf("the first tier's metrics say %v, want 11", got)
		}
		if problems, err := testutil.GatherAndLint(d2.reg); err != nil || len(problems) > 0 {
			t.Errorf("metrics: %v, %v", problems, err)
		}
		// An assigner that is not attached there, and a hello that is none.
		attach := func(assigner string, first *slicerv1.AttachRequest) codes.Code {
			return d2.attachTo(t, d1.cc, assigner, first)
		}
		if got := attach("a7", hello("d7")); got != codes.Unavailable {
			t.Errorf("to an assigner that is not there: %s", got)
		}
		for _, bad := range []*slicerv1.AttachRequest{hello(""), hello("a b"), hello("a/b"), fanout.WantRequest(&slicerv1.Want{Job: testJob})} {
			if got := attach("", bad); got != codes.InvalidArgument {
				t.Errorf("%v: %s", bad, got)
			}
		}
		synctest.Wait()
	})
}

// hello is what a Distributor begins a stream with.
func hello(id string) *slicerv1.AttachRequest {
	return &slicerv1.AttachRequest{Message: &slicerv1.AttachRequest_Hello{Hello: &slicerv1.DistributorHello{DistributorId: id}}}
}

// attachTo is how a stream to a Distributor, or with assigner through it, ends that
// begins so.
func (m *node) attachTo(t *testing.T, cc *grpc.ClientConn, assigner string, first *slicerv1.AttachRequest) codes.Code {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	l := &link{d: m.d, assigner: assigner}
	stream, err := l.open(ctx, cc)
	if err != nil {
		t.Fatal(err)
	}
	stream.Send(first)
	_, err = stream.Recv()
	return status.Code(err)
}

// No caller speaks with an assigner through a Distributor that was not told to serve
// others, or is sent assignments as if it were a Distributor.
func TestOthersAreServedOnlyByWhoWasToldTo(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		f := n.tieredAssigner(t)
		f.set(firstOf(t, testJob, testStore, baseGen, 20))
		d, err := newDistributor(Config{ID: "d1", Assigners: []string{assigner1}, DialOptions: n.dialOptions()}, n.lookup)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		n.serve(t, tierAddress("d1"), func(s *grpc.Server) { d.Register(s) }, ServerOptions()...)
		d2 := n.node(t, "d2", "d1")
		time.Sleep(time.Minute)
		cc := n.connect(t, tierAddress("d1"))
		for _, assigner := range []string{"a1", ""} {
			if got := d2.attachTo(t, cc, assigner, hello("d2")); got != codes.PermissionDenied {
				t.Errorf("to assigner %q: %s, want PermissionDenied", assigner, got)
			}
		}
		if told := f.told(); len(told) > 0 {
			t.Errorf("the assigner was told %q", told)
		}
		if got := d2.said.count("--serve-distributors"); got != 1 {
			t.Errorf("said %d times why: %s", got, d2.said.b.String())
		}
		if err := d2.d.Ready(); err == nil || !strings.Contains(err.Error(), "--serve-distributors") {
			t.Errorf("ready: %v", err)
		}
	})
}

func TestOfTwoStreamsBelowTheNewerCounts(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		n.tieredAssigner(t)
		d1 := n.node(t, "d1")
		// One name with two addresses of the same Distributor.
		n.setHost("first", "10.0.2.1", "10.0.2.7")
		n.serve(t, tierAddress("d7"), func(s *grpc.Server) { d1.d.Register(s) }, ServerOptions()...)
		d2, err := newDistributor(Config{ID: "d2", Upstreams: []string{"first:7200"}, DialOptions: n.dialOptions()}, n.lookup)
		if err != nil {
			t.Fatal(err)
		}
		defer d2.Close()
		time.Sleep(time.Minute)
		if got := d1.metric(t, "downstreams"); got != 1 {
			t.Errorf("%v streams, want 1", got)
		}
		if got := d1.said.count("distributor of the second tier attached"); got > 5 { // some, when both attach at one moment; by turns it would be dozens
			t.Errorf("attached %d times: the addresses take each other's place", got)
		}
	})
}
