package distributor

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/distributor/fanout"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

const (
	assigner1 = "10.0.0.1:7100"
	assigner2 = "10.0.0.2:7100"
	server    = "10.0.1.1:7200"
)

// world is one Distributor with its surroundings.
type world struct {
	t  *testing.T
	n  *network
	d  *Distributor
	cc *grpc.ClientConn
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

// served starts a Distributor with one assigner, which is preferred and has an
// assignment of so many slices.
func served(t *testing.T, slices int) (*fakeAssigner, *assignment.Assignment, *world) {
	t.Helper()
	n := newNetwork()
	f := n.assigner(t, "a1", assigner1)
	a := firstOf(t, testJob, testStore, baseGen, slices)
	f.set(a)
	f.prefer(1, "a1")
	return f, a, newWorld(t, n, assigner1)
}

// newWorld starts a Distributor that knows the addresses.
func newWorld(t *testing.T, n *network, assigners ...string) *world {
	t.Helper()
	d, err := newDistributor(Config{ID: "d1", Assigners: assigners, DialOptions: n.dialOptions()}, n.lookup)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	n.serve(t, server, func(s *grpc.Server) { d.Register(s) }, ServerOptions()...)
	return &world{t: t, n: n, d: d, cc: n.connect(t, server)}
}

func (w *world) clerk(id string) *fakeSub { return subscribe(w.t, w.cc, clerkHello(id), nil) }

func same(t *testing.T, got, want *assignment.Assignment) {
	t.Helper()
	switch {
	case got == nil:
		t.Errorf("nothing is held, want generation %s", short(int64(want.Generation())))
	case got.Generation() != want.Generation() || got.Checksum() != want.Checksum() || got.DeltaSum() != want.DeltaSum():
		t.Errorf("generation %s is held, want %s", short(int64(got.Generation())), short(int64(want.Generation())))
	}
}

func TestWatchSendsWholeThenDeltas(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		f := n.assigner(t, "a1", assigner1)
		a := firstOf(t, testJob, testStore, baseGen, 2000)
		f.set(a)
		w := newWorld(t, n, assigner1)
		c := w.clerk("c1")
		same(t, c.holds(), a)
		for range 3 {
			a = after(t, a, 5)
			f.set(a)
			same(t, c.holds(), a)
		}
		late := subscribe(t, w.cc, holding(clerkHello("c2"), a), a)
		if k := late.kinds(); len(k) != 0 {
			t.Errorf("sent %v to one that holds the newest", k)
		}
		if k := c.kinds(); !slices.Equal(k, []string{"whole", "delta", "delta", "delta"}) {
			t.Errorf("updates were %v", k)
		}
		st := c.lastStatus()
		if !st.GetTakesReports() || st.GetLoadMetric() != "requests" || st.GetReportIntervalMs() != 1000 || st.GetRepeatMs() != 5000 {
			t.Errorf("status %v", st)
		}
	})
}

// Of a large job what deltas make is checked by their sum, by the Distributor and by its subscribers,
// and one that comes back with it is sent deltas.
func TestWatchOfALargeJob(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		f := n.assigner(t, "a1", assigner1)
		a := firstOf(t, testJob, testStore, baseGen, assignment.PartFrom)
		f.set(a)
		w := newWorld(t, n, assigner1)
		c := w.clerk("c1")
		same(t, c.holds(), a)
		for range 12 {
			a = after(t, a, 100)
			f.set(a)
			same(t, c.holds(), a)
		}
		synctest.Wait()
		for i, tr := range c.got {
			if (tr.DeltaSum != nil) != (i > 0) || i > 0 && tr.Base == 0 {
				t.Errorf("update %d: %v", i, tr)
			}
		}
		held := c.holds()
		c.close()
		a = after(t, a, 100)
		f.set(a)
		back := subscribe(t, w.cc, holding(clerkHello("c1"), held), held)
		same(t, back.holds(), a)
		if k := back.kinds(); !slices.Equal(k, []string{fanout.KindDelta}) {
			t.Errorf("sent %v to one that came back", k)
		}
	})
}

func TestWatchStandsOnWhatIsHeld(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		f := n.assigner(t, "a1", assigner1)
		first := firstOf(t, testJob, testStore, baseGen, 500)
		f.set(first)
		w := newWorld(t, n, assigner1)
		w.clerk("c0").holds()
		second := after(t, first, 3)
		f.set(second)
		synctest.Wait()
		for _, c := range []struct {
			name  string
			hello *slicerv1.Hello
			base  *assignment.Assignment
			kinds []string
		}{
			{"a base that is held", holding(clerkHello("c1"), first), first, []string{"delta"}},
			{"a base with another checksum", func() *slicerv1.Hello { h := holding(clerkHello("c2"), first); h.Checksum++; return h }(), first, []string{"whole"}},
			{"the newest with another checksum", func() *slicerv1.Hello { h := holding(clerkHello("c3"), second); h.Checksum++; return h }(), second, []string{"whole"}},
			{"an unknown base", func() *slicerv1.Hello { h := holding(clerkHello("c4"), first); h.Generation -= 100; return h }(), nil, []string{"whole"}},
			{"another store", func() *slicerv1.Hello { h := holding(clerkHello("c5"), first); h.StoreId++; return h }(), nil, []string{"whole"}},
		} {
			s := subscribe(t, w.cc, c.hello, c.base)
			same(t, s.holds(), second)
			if k := s.kinds(); !slices.Equal(k, c.kinds) {
				t.Errorf("%s: updates were %v, want %v", c.name, k, c.kinds)
			}
		}
	})
}

func TestWatchSkipsToTheNewest(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		f := n.assigner(t, "a1", assigner1)
		a := firstOf(t, testJob, testStore, baseGen, 100)
		f.set(a)
		w := newWorld(t, n, assigner1)
		slow, quick := w.clerk("slow"), w.clerk("quick")
		slow.mu.Lock()
		slow.silent = true
		slow.mu.Unlock()
		synctest.Wait()
		slow.ack(a.Generation(), "")
		for range 5 {
			a = after(t, a, 2)
			f.set(a)
			synctest.Wait()
		}
		if got := len(slow.kinds()); got != 2 {
			t.Errorf("one that does not acknowledge was sent %d assignments, want 2", got)
		}
		same(t, quick.holds(), a)
		held := slow.holds()
		slow.mu.Lock()
		slow.silent = false
		slow.mu.Unlock()
		slow.ack(held.Generation(), "")
		same(t, slow.holds(), a)
		if k := slow.kinds(); !slices.Equal(k, []string{"whole", "delta", "delta"}) {
			t.Errorf("updates were %v", k)
		}
	})
}

func TestWatchRefusalBringsTheWhole(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		f := n.assigner(t, "a1", assigner1)
		a := firstOf(t, testJob, testStore, baseGen, 100)
		f.set(a)
		w := newWorld(t, n, assigner1)
		c := w.clerk("c1")
		synctest.Wait()
		c.mu.Lock()
		c.refuse = 1
		c.mu.Unlock()
		a = after(t, a, 2)
		f.set(a)
		same(t, c.holds(), a)
		if k := c.kinds(); !slices.Equal(k, []string{"whole", "delta", "whole"}) {
			t.Errorf("updates were %v", k)
		}
		// A subscriber that refuses the whole is not sent it again and again.
		picky := subscribe(t, w.cc, clerkHello("c2"), nil, func(s *fakeSub) { s.refuse = fanout.MaxRefusals })
		if picky.holds() != nil || len(picky.kinds()) != fanout.MaxRefusals {
			t.Errorf("updates were %v", picky.kinds())
		}
		a = after(t, a, 2)
		f.set(a)
		same(t, picky.holds(), a)
	})
}

func TestWatchNeverGoesBack(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		f := n.assigner(t, "a1", assigner1)
		f.prefer(1, "a1")
		first := firstOf(t, testJob, testStore, baseGen, 100)
		second := after(t, first, 1)
		third := after(t, second, 1)
		f.set(first)
		w := newWorld(t, n, assigner1)
		w.clerk("c0").holds()
		f.told()
		claims := subscribe(t, w.cc, holding(clerkHello("c1"), second), second)
		same(t, claims.holds(), second)
		if told := f.told(); slices.ContainsFunc(told, func(s string) bool { return strings.HasPrefix(s, "want") }) {
			t.Errorf("the assigner was told %q of what a clerk claims", told)
		}
		for name, c := range map[string]struct{ has, gets *assignment.Assignment }{
			// The assigners say that the job is in the store that is served here.
			"another store": {firstOf(t, testJob, testStore+1, baseGen+7, 10), first},
			"tomorrow":      {firstOf(t, testJob, testStore, baseGen+23*3600*1000, 10), nil},
		} {
			if c.gets == nil {
				c.gets = c.has
			}
			foreign := subscribe(t, w.cc, holding(sliceletHello("t-"+name[:1], 1), c.has), c.has)
			same(t, foreign.holds(), c.gets)
			if told := f.told(); slices.ContainsFunc(told, func(s string) bool { return strings.HasPrefix(s, "want") }) {
				t.Errorf("the assigner was told %q of what a slicelet holds of %s", told, name)
			}
		}
		ahead := subscribe(t, w.cc, holding(sliceletHello("t1", 1), second), second)
		same(t, ahead.holds(), second)
		if told := f.told(); !slices.Contains(told, "want web from g0 reported g1") {
			t.Errorf("the assigner was told %q", told)
		}
		if k := ahead.kinds(); len(k) != 0 {
			t.Errorf("updates were %v", k)
		}
		f.set(third)
		same(t, ahead.holds(), third)
		if k := ahead.kinds(); !slices.Equal(k, []string{"whole"}) {
			t.Errorf("updates were %v", k)
		}
	})
}

func TestWatchAnotherStore(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		f := n.assigner(t, "a1", assigner1)
		old := firstOf(t, testJob, testStore, baseGen, 100)
		f.set(old)
		w := newWorld(t, n, assigner1)
		c := w.clerk("c1")
		same(t, c.holds(), old)
		other := firstOf(t, testJob, testStore+1, baseGen+50, 100)
		f.set(other)
		same(t, c.holds(), old) // this assigner is not known to be preferred
		f.prefer(1, "a1")
		same(t, c.holds(), other)
		if k := c.kinds(); !slices.Equal(k, []string{"whole", "whole"}) {
			t.Errorf("updates were %v", k)
		}
		// One that comes from the old store with a higher number waits for a still
		// higher one, or for word that the job's store is the new one.
		far := firstOf(t, testJob, testStore, baseGen+100, 100)
		from := subscribe(t, w.cc, holding(clerkHello("c2"), far), far)
		same(t, from.holds(), far)
		if told := f.told(); slices.ContainsFunc(told, func(s string) bool { return strings.Contains(s, "reported g100") }) {
			t.Errorf("the assigner was told %q", told)
		}
		f.moveTo(testStore + 1)
		same(t, from.holds(), other)
		other = firstOf(t, testJob, testStore+1, baseGen+101, 100)
		f.set(other)
		same(t, c.holds(), other)
		same(t, from.holds(), other)
	})
}

func TestWatchUnknownJob(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		f := n.assigner(t, "a1", assigner1)
		w := newWorld(t, n, assigner1)
		if c := w.clerk("c1"); c.ended() != codes.NotFound {
			t.Errorf("an unknown job: %v", c.err)
		}
		sl := subscribe(t, w.cc, sliceletHello("s1", 1), nil)
		if sl.ended() != codes.NotFound {
			t.Errorf("a slicelet of an unknown job: %v", sl.err)
		}
		f.know(testJob)
		time.Sleep(fanout.UnknownFor)
		c := w.clerk("c2")
		if time.Sleep(time.Minute); c.ended() != codes.OK {
			t.Errorf("a job without an assignment: %v", c.err)
		}
		a := firstOf(t, testJob, testStore, baseGen, 10)
		f.set(a)
		same(t, c.holds(), a)
		f.status(&slicerv1.JobStatus{Job: testJob, Unknown: true})
		if c.ended() != codes.NotFound {
			t.Errorf("a deleted job: %v", c.err)
		}
	})
}

func TestWatchNobodyKnows(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		w := newWorld(t, n, assigner1)
		c := w.clerk("c1")
		time.Sleep(fanout.Patience - time.Millisecond)
		if c.ended() != codes.OK {
			t.Errorf("ended early: %v", c.err)
		}
		time.Sleep(2 * time.Millisecond)
		if c.ended() != codes.Unavailable {
			t.Errorf("no assigner: %v", c.err)
		}
		f := n.assigner(t, "a1", assigner1)
		f.mu.Lock()
		f.mute = true
		f.mu.Unlock()
		time.Sleep(retryMax)
		c = w.clerk("c2")
		time.Sleep(fanout.Patience + time.Millisecond)
		if c.ended() != codes.Unavailable {
			t.Errorf("a mute assigner: %v", c.err)
		}
	})
}

// A message of a later version is ignored, and what comes after it is not.
func TestWatchIgnoresUnknownMessages(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f, a, w := served(t, 10)
		later := new(slicerv1.WatchRequest)
		later.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 1000, protowire.VarintType), 1))
		for _, h := range []*slicerv1.Hello{clerkHello("x"), sliceletHello("y", 1)} {
			s := subscribe(t, w.cc, h, nil)
			s.send(later)
			same(t, s.holds(), a)
			s.send(later)
			a = after(t, a, 1)
			f.set(a)
			same(t, s.holds(), a) // the acknowledgement of the one before was taken
			if s.ended() != codes.OK {
				t.Errorf("%s: %v", h.ClientId, s.err)
			}
		}
	})
}

func TestWatchBadInput(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		f := n.assigner(t, "a1", assigner1)
		a := firstOf(t, testJob, testStore, baseGen, 10)
		f.set(a)
		w := newWorld(t, n, assigner1)
		good := w.clerk("good")
		edit := func(h *slicerv1.Hello, f func(*slicerv1.Hello)) *slicerv1.Hello { f(h); return h }
		for name, c := range map[string]struct {
			hello *slicerv1.Hello
			code  codes.Code
		}{
			"job with a slash":      {edit(clerkHello("x"), func(h *slicerv1.Hello) { h.Job = "a/b" }), codes.InvalidArgument},
			"no job":                {edit(clerkHello("x"), func(h *slicerv1.Hello) { h.Job = "" }), codes.InvalidArgument},
			"no role":               {edit(clerkHello("x"), func(h *slicerv1.Hello) { h.Role = 0 }), codes.InvalidArgument},
			"role 9":                {edit(clerkHello("x"), func(h *slicerv1.Hello) { h.Role = 9 }), codes.InvalidArgument},
			"negative generation":   {edit(clerkHello("x"), func(h *slicerv1.Hello) { h.Generation = -1 }), codes.InvalidArgument},
			"generation of 2100":    {edit(clerkHello("x"), func(h *slicerv1.Hello) { h.Generation = 4102444800000 }), codes.InvalidArgument},
			"client id with a line": {clerkHello("x\ny"), codes.InvalidArgument},
			"slicelet, no task":     {edit(sliceletHello("x", 1), func(h *slicerv1.Hello) { h.Task = nil }), codes.InvalidArgument},
			"incarnation 0":         {sliceletHello("x", 0), codes.InvalidArgument},
			"state 77":              {edit(sliceletHello("x", 1), func(h *slicerv1.Hello) { h.Report.State = 77 }), codes.InvalidArgument},
			"age before birth":      {edit(sliceletHello("x", 1), func(h *slicerv1.Hello) { h.Report.AgeMs = -1 }), codes.InvalidArgument},
			"load without end": {edit(sliceletHello("x", 1), func(h *slicerv1.Hello) {
				h.Report.Load = &slicerv1.LoadReport{Rate: []float32{1}}
			}), codes.InvalidArgument},
			"huge report": {edit(sliceletHello("x", 1), func(h *slicerv1.Hello) {
				h.Report.Load = &slicerv1.LoadReport{HotKey: make([]uint64, fanout.MaxReport/8)}
			}), codes.ResourceExhausted},
			"huge message": {edit(sliceletHello("x", 1), func(h *slicerv1.Hello) {
				h.Report.Load = &slicerv1.LoadReport{HotKey: make([]uint64, fanout.MaxReport)}
			}), codes.ResourceExhausted},
		} {
			s := subscribe(t, w.cc, c.hello, nil)
			<-s.done
			if s.ended() != c.code || status.Convert(s.err).Message() == "" {
				t.Errorf("%s: %v, want %v", name, s.err, c.code)
			}
		}
		for name, m := range map[string]*slicerv1.WatchRequest{
			"second hello":     {Message: &slicerv1.WatchRequest_Hello{Hello: clerkHello("x")}},
			"clerk reports":    {Message: &slicerv1.WatchRequest_Report{Report: &slicerv1.Report{}}},
			"ack of the past":  {Message: &slicerv1.WatchRequest_Ack{Ack: &slicerv1.Ack{Generation: -5}}},
			"ack of next year": {Message: &slicerv1.WatchRequest_Ack{Ack: &slicerv1.Ack{Generation: baseGen * 2}}},
		} {
			s := w.clerk("x")
			s.send(m)
			if s.ended() != codes.InvalidArgument {
				t.Errorf("%s: %v", name, s.err)
			}
		}
		early, err := slicerv1.NewSubscriberServiceClient(w.cc).Watch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		early.Send(&slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Ack{Ack: &slicerv1.Ack{}}})
		if _, err := early.Recv(); status.Code(err) != codes.InvalidArgument {
			t.Errorf("a message before hello: %v", err)
		}
		mute, err := slicerv1.NewSubscriberServiceClient(w.cc).Watch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := mute.Recv(); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("no hello: %v", err)
		}
		a = after(t, a, 1)
		f.set(a)
		same(t, good.holds(), a)
	})
}
