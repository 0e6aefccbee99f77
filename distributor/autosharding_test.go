package distributor

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/distributor/autosharding/autoshardingtest"
	"github.com/slicer-project/slicer/distributor/fanout"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// foreign is a client of the auto-sharding protocol that takes what it gets.
type foreign struct {
	t    *testing.T
	c    *autoshardingtest.Client
	done chan struct{}

	mu     sync.Mutex
	silent bool
	remark string // with which it accepts
	refuse string // if not empty, why it refuses
	got    []*autoshardingtest.Assignment
	err    error
}

func (w *world) foreign(uuid string, latest assignment.Generation) *foreign {
	w.t.Helper()
	return w.foreignOf(testJob, uuid, latest)
}

func (w *world) foreignOf(job, uuid string, latest assignment.Generation) *foreign {
	w.t.Helper()
	c, err := autoshardingtest.Watch(context.Background(), w.cc, job, uuid, int64(latest))
	if err != nil {
		w.t.Fatal(err)
	}
	f := &foreign{t: w.t, c: c, done: make(chan struct{})}
	go f.run()
	w.t.Cleanup(f.close)
	return f
}

func (f *foreign) close() {
	f.c.Close()
	<-f.done
}

func (f *foreign) run() {
	defer close(f.done)
	for {
		a, err := f.c.Next()
		f.mu.Lock()
		if err != nil {
			f.err = err
			f.mu.Unlock()
			return
		}
		f.got = append(f.got, a)
		switch {
		case f.refuse != "":
			f.c.Nack(a.Generation, f.refuse)
		case !f.silent:
			f.c.Ack(a.Generation, f.remark)
		}
		f.mu.Unlock()
	}
}

func (f *foreign) refuses(why string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuse = why
}

// generations are those that it was sent after everything has settled.
func (f *foreign) generations() (gs []string) {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.got {
		gs = append(gs, short(a.Generation))
	}
	return gs
}

func (f *foreign) last() *autoshardingtest.Assignment {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.got) == 0 {
		f.t.Fatal("nothing was sent")
	}
	return f.got[len(f.got)-1]
}

func (f *foreign) ended() codes.Code {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	return status.Code(f.err)
}

// wantTaken checks that a client that fills what it got finds the owners of a.
func wantTaken(t *testing.T, got *autoshardingtest.Assignment, a *assignment.Assignment) {
	t.Helper()
	filled, _, err := got.Fill()
	if err != nil {
		t.Fatal(err)
	}
	for s, r := range a.All() {
		for _, k := range []assignment.SliceKey{s.Start, s.End - 1} {
			var names, want []string
			for _, e := range autoshardingtest.Lookup(filled, k.String()).Endpoints {
				names = append(names, got.Endpoints[e])
			}
			for task := range r.All() {
				want = append(want, task.Address)
			}
			if !slices.Equal(names, want) {
				t.Fatalf("key %s: endpoints %q, want %q", k, names, want)
			}
		}
	}
}

func TestForeignClientFollows(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		f := n.assigner(t, "a1", assigner1)
		f.prefer(1, "a1")
		a := firstOf(t, testJob, testStore, baseGen, 200)
		f.set(a)
		w := newWorld(t, n, assigner1)
		c := w.foreign("u1", 0)
		wantTaken(t, c.last(), a)
		for range 3 {
			a = after(t, a, 5)
			f.set(a)
			wantTaken(t, c.last(), a)
		}
		if got := c.generations(); !slices.Equal(got, []string{"g0", "g1", "g2", "g3"}) {
			t.Errorf("sent %v", got)
		}
		// A client that has it, or something newer, is sent nothing until there is something
		// newer.
		known, ahead := w.foreign("u2", a.Generation()), w.foreign("u3", a.Generation()+5)
		time.Sleep(time.Minute)
		if got := append(known.generations(), ahead.generations()...); len(got) != 0 {
			t.Errorf("sent %v to clients that have it", got)
		}
		if told := f.told(); slices.ContainsFunc(told, func(s string) bool { return strings.Contains(s, "reported g") }) {
			t.Errorf("the assigner was told of a generation that only a client claims: %q", told)
		}
		a = after(t, a, 1)
		f.set(a)
		if got := append(known.generations(), ahead.generations()...); !slices.Equal(got, []string{"g4"}) {
			t.Errorf("sent %v, want g4 to the one that is behind it", got)
		}
		h := a.Header()
		h.Previous, h.Generation = a.Generation(), a.Generation()+10
		next, err := assignment.New(h, testTasks(10), assignment.Columns{Starts: []assignment.SliceKey{0}, Owners: []uint32{1}})
		if err != nil {
			t.Fatal(err)
		}
		f.set(next)
		for _, c := range []*foreign{c, known, ahead} {
			wantTaken(t, c.last(), next)
		}
	})
}

func TestForeignClientCountsAsClerk(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		f := n.assigner(t, "a1", assigner1)
		f.prefer(1, "a1")
		a := firstOf(t, testJob, testStore, baseGen, 10)
		f.set(a)
		w := newWorld(t, n, assigner1)
		c := w.foreign("u1", 0)
		settle := func(want string) {
			t.Helper()
			time.Sleep(time.Second)
			told := slices.DeleteFunc(f.told(), func(s string) bool {
				if strings.HasPrefix(s, "want") && !strings.HasSuffix(s, " reported 0") {
					t.Errorf("counts as reported by a slicelet: %s", s)
				}
				return !strings.HasPrefix(s, "acks")
			})
			if len(told) == 0 || told[len(told)-1] != want {
				t.Errorf("the assigner was told %q, want %q at last", told, want)
			}
		}
		settle("acks web min g0 clerks 1 slicelets 0")
		// A client that does not answer is waited for.
		c.mu.Lock()
		c.silent = true
		c.mu.Unlock()
		a = after(t, a, 1)
		f.set(a)
		settle(`acks web min g0 clerks 1 slicelets 0 late ["grpc-clerk u1"]`)
		c.c.Ack(int64(a.Generation()), "there is a gap")
		settle("acks web min g1 clerks 1 slicelets 0")
		// One that refuses is not, until it accepts again.
		c.mu.Lock()
		c.silent, c.refuse = false, "no thanks"
		c.mu.Unlock()
		w.clerk("c1")
		a = after(t, a, 1)
		f.set(a)
		settle("acks web min g2 clerks 1 slicelets 0")
		c.refuses("")
		a = after(t, a, 1)
		f.set(a)
		settle("acks web min g3 clerks 2 slicelets 0")
		if got := c.generations(); !slices.Equal(got, []string{"g0", "g1", "g2", "g3"}) {
			t.Errorf("sent %v: what was refused is not to be sent again", got)
		}
		c.close()
		settle("acks web min g3 clerks 1 slicelets 0")
	})
}

// A Distributor that has just started, or a store that is another now, does not
// take a client that has the newest for one that is behind.
func TestForeignClientHoldsAcrossRestarts(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		f := n.assigner(t, "a1", assigner1)
		f.prefer(1, "a1")
		f.know(testJob)
		a := firstOf(t, testJob, testStore, baseGen, 10)
		w := newWorld(t, n, assigner1)
		c := w.foreign("u1", a.Generation())
		synctest.Wait()
		f.set(a)
		time.Sleep(time.Second)
		told := f.told()
		if last := told[len(told)-1]; last != "acks web min g0 clerks 1 slicelets 0" {
			t.Errorf("the assigner was told %q", told)
		}
		if got := c.generations(); len(got) != 0 {
			t.Errorf("sent %v", got)
		}
	})
}

func TestForeignClientOfNobody(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		f := n.assigner(t, "a1", assigner1)
		w := newWorld(t, n, assigner1)
		if c := w.foreign("u1", 0); c.ended() != codes.NotFound {
			t.Errorf("a job that does not exist: %s", c.ended())
		}
		// The job comes to be: a client that asks later is served, and told when it goes.
		a := firstOf(t, testJob, testStore, baseGen, 10)
		f.set(a)
		time.Sleep(2 * time.Second)
		c := w.foreign("u2", 0)
		wantTaken(t, c.last(), a)
		f.status(&slicerv1.JobStatus{Job: testJob, Unknown: true})
		if c.ended() != codes.NotFound {
			t.Errorf("a job that has been deleted: %s", c.ended())
		}
		// A job without an assignment is waited for, one that is not known is not.
		f.know("web")
		f.mu.Lock()
		f.jobs[testJob] = nil
		f.mu.Unlock()
		time.Sleep(2 * time.Second)
		c = w.foreign("u3", 0)
		time.Sleep(time.Minute)
		if c.ended() != codes.OK {
			t.Errorf("a job without an assignment: %s", c.ended())
		}
		f.stop()
		time.Sleep(2 * fanout.Patience)
		if c.ended() != codes.Unavailable {
			t.Errorf("no assigner and no assignment: %s", c.ended())
		}
	})
}

func TestInspectShowsForeignClients(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		f := n.assigner(t, "a1", assigner1)
		f.prefer(1, "a1")
		a := firstOf(t, testJob, testStore, baseGen, 10)
		f.set(a)
		w := newWorld(t, n, assigner1)
		inspect := func() []*slicerv1.AutoshardingClients {
			t.Helper()
			synctest.Wait()
			r, err := slicerv1.NewAdminServiceClient(w.cc).InspectJob(t.Context(), &slicerv1.InspectJobRequest{Job: testJob})
			if err != nil {
				t.Fatal(err)
			}
			return r.Autosharding
		}
		if m := inspect(); m != nil {
			t.Errorf("no client has come: %v", m)
		}
		c, d := w.foreign("u1", 0), w.foreign("u2", 0)
		c.last()
		d.last()
		c.refuses("no usable slice \xe2\x80\xa6")
		d.mu.Lock()
		d.remark = "endpoint 10.0.0.9:80 is not known"
		d.mu.Unlock()
		f.set(after(t, a, 1))
		time.Sleep(3 * time.Second)
		m := inspect()
		if len(m) != 1 || m[0].DistributorId != "d1" || m[0].Clients != 2 || m[0].Refusing != 1 || m[0].Acks != 3 || m[0].Nacks != 1 ||
			m[0].LastNack != "no usable slice …" || m[0].LastNackAgeMs != 3000 ||
			m[0].Remarks != 1 || m[0].LastRemark != d.remark || m[0].LastRemarkAgeMs != 3000 {
			t.Errorf("inspect shows %v", m)
		}
		c.close()
		if m := inspect(); m[0].Clients != 1 || m[0].Refusing != 0 || m[0].Nacks != 1 {
			t.Errorf("after one has gone inspect shows %v", m)
		}
		d.close()
		time.Sleep(2 * idleFor)
		if m := inspect(); m != nil {
			t.Errorf("after the job was dropped inspect shows %v", m)
		}
	})
}

// What clients say to have sent goes up for tasks that measure nothing themselves,
// and for no others.
func TestForeignLoadFillsIn(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		f := n.assigner(t, "a1", assigner1)
		f.prefer(1, "a1")
		h := assignment.Header{Job: testJob, StoreID: testStore, Generation: baseGen}
		a, err := assignment.Successor(nil, h, testTasks(2), assignment.Placement{
			Starts: assignment.Equal(4), Owners: []uint32{0, 1, 0, 1}})
		if err != nil {
			t.Fatal(err)
		}
		f.set(a)
		w := newWorld(t, n, assigner1)
		blind, seeing := subscribe(t, w.cc, sliceletHello("task-0", 1), nil), subscribe(t, w.cc, sliceletHello("task-1", 2), nil)
		c := w.foreign("u1", 0)
		c.last()
		report := func(seq uint64) {
			load := func(total float32) *slicerv1.LoadReport {
				return &slicerv1.LoadReport{Generation: baseGen, WindowSeconds: 1, TotalRate: total, CpuUtilization: .25}
			}
			blind.report(&slicerv1.Report{Sequence: seq, State: slicerv1.TaskState_TASK_STATE_RUNNING, Load: load(0)})
			seeing.report(&slicerv1.Report{Sequence: seq, State: slicerv1.TaskState_TASK_STATE_RUNNING, Load: load(7)})
		}
		report(2)
		time.Sleep(time.Second)
		f.hear()
		at := time.Unix(1000, 0)
		c.c.Send(autoshardingtest.Report("requests", at, at.Add(10*time.Second),
			autoshardingtest.Load{Start: "", Load: 100}, autoshardingtest.Load{Start: a.Slice(1).Start.String(), Load: 50},
			autoshardingtest.Load{Start: a.Slice(2).Start.String(), Load: 300}, autoshardingtest.Load{Start: a.Slice(3).Start.String(), Load: 70}))
		synctest.Wait()
		time.Sleep(4 * time.Second)
		report(3)
		time.Sleep(2 * time.Second)
		loads := make(map[string]*assignment.Load)
		for _, m := range f.hear() {
			for _, r := range m.GetReports().GetReports() {
				l, err := wire.LoadFromProto(r.GetReport().GetLoad())
				if err != nil {
					t.Fatal(err)
				}
				loads[r.GetTask().GetName()] = l
			}
		}
		if l := loads["task-1"]; l == nil || l.Total != 7 || len(l.Ranges) != 0 {
			t.Errorf("a task that measures was reported with %+v", l)
		}
		l := loads["task-0"]
		if l == nil || len(l.Ranges) != 2 || l.CPU != .25 || l.Generation != baseGen {
			t.Fatalf("a task that does not measure was reported with %+v", l)
		}
		amount := l.Window.Seconds() * l.Total
		if share := l.Rate[1] / l.Rate[0]; amount < 399.9 || amount > 400.1 || share < 2.99 || share > 3.01 {
			t.Errorf("%v in all over %v, by slice %v, want 100 and 300", amount, l.Window, l.Rate)
		}
	})
}
