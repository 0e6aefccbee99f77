package slicelet

import (
	"fmt"
	"math"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/loadbalance/overload"
	"github.com/slicer-project/slicer/slicelet/internal/admission"
)

// bench is a recorder with a clock and a CPU clock of its own.
type bench struct {
	t   *testing.T
	m   *meter
	r   *recorder
	now time.Time
	cpu time.Duration
	v   *view
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, m: newMeter(), now: time.Unix(1e9, 0), v: emptyView()}
	b.r = newRecorder(b.m, admission.New(admission.Config{}), func() (time.Duration, bool) { return b.cpu, true }, b.now)
	return b
}

// own makes slices of these ranges the task's, given as eighths of the keyspace.
func (b *bench) own(gen assignment.Generation, eighths ...[2]int) {
	b.t.Helper()
	var p assignment.Placement
	at := 0
	for _, e := range eighths {
		if e[0] > at {
			p.Add(eighth(at), 1)
		}
		p.Add(eighth(e[0]), 0)
		at = e[1]
	}
	if at < 8 {
		p.Add(eighth(at), 1)
	}
	b.follow(gen, p)
}

// follow makes an assignment of two tasks the newest, of which this one is number 0.
func (b *bench) follow(gen assignment.Generation, p assignment.Placement) {
	b.t.Helper()
	tasks := []assignment.Task{
		{Name: "me", Incarnation: 1, Address: "me:1", Weight: 1, State: assignment.TaskRunning},
		{Name: "other", Incarnation: 1, Address: "other:1", Index: 1, Weight: 1, State: assignment.TaskRunning},
	}
	a, err := assignment.Successor(nil, assignment.Header{Job: "job", StoreID: 1, Generation: gen}, tasks, p)
	if err != nil {
		b.t.Fatal(err)
	}
	b.v = b.v.next(stateOf(a), nil, me)
	b.r.follow(b.v, b.now)
}

func eighth(i int) assignment.SliceKey { return assignment.KeyspaceEnd / 8 * assignment.SliceKey(i) }

func (b *bench) requests(k assignment.SliceKey, n int) {
	for range n {
		b.m.request(k, b.v.own, b.v.own.find(k), b.v.own.find(k) >= 0)
	}
}

// shed refuses n requests that were counted before, each of which is so much demand.
func (b *bench) shed(k assignment.SliceKey, n int, demand float64) {
	for range n {
		b.m.shed(k, b.v.own, b.v.own.find(k), demand > 0)
		if demand > 1 {
			b.m.held(k, b.v.own, b.v.own.find(k), demand-1)
		}
	}
}

func (b *bench) pass(d time.Duration) { b.now = b.now.Add(d) }

func (b *bench) measure(metric string) *assignment.Load {
	b.t.Helper()
	l := b.r.measure(metric, b.now)
	// Whatever is reported must be fit to be sent.
	if _, err := wire.LoadFromProto(wire.LoadToProto(l)); err != nil {
		b.t.Fatal(err)
	}
	return l
}

func rateOf(l *assignment.Load, k assignment.SliceKey) float64 {
	for i, s := range l.Ranges {
		if s.Contains(k) {
			return l.Rate[i]
		}
	}
	return math.NaN()
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-6*math.Max(1, math.Abs(b)) }

// TestSharedFromNowOn: a task that has had a key alone is measured by what comes for it from when
// another has it too, and what came before counts in the total alone.
func TestSharedFromNowOn(t *testing.T) {
	for _, also := range []bool{false, true} { // the slice becomes narrower besides
		b := newBench(t)
		b.own(1, [2]int{0, 8})
		b.measureNothing()
		k, beside := eighth(2)+1, eighth(2)+2
		b.requests(k, 60)
		b.requests(beside, 20)
		b.pass(400 * time.Millisecond)
		var p assignment.Placement
		if also {
			p.Add(0, 0)
		}
		p.Add(eighth(2)*assignment.SliceKey(bit(also)), 0, 1)
		b.follow(2, p)
		b.requests(k, 30)
		b.requests(beside, 15)
		b.pass(600 * time.Millisecond)
		l := b.measure(assignment.LoadRequests)
		if !near(rateOf(l, k), 75) || !near(l.Total, 125) {
			t.Errorf("narrower %t: %v of %v, want 75 of 125", also, rateOf(l, k), l.Total)
		}
		// The sketch does not tell what came before from what came then: the shares of both.
		if h := l.Hot; len(h) != 2 || h[0].Key != k || !near(h[0].Rate, 54) || !near(h[1].Rate, 21) {
			t.Errorf("narrower %t: hot keys %v, want one of 54 and one of 21", also, h)
		}
		b.requests(k, 50)
		b.pass(time.Second)
		if l := b.measure(assignment.LoadRequests); !near(rateOf(l, k), 50) || !near(l.Total, 50) {
			t.Errorf("narrower %t: then %v of %v, want 50 of 50", also, rateOf(l, k), l.Total)
		}
		b.requests(k, 50)
		b.pass(600 * time.Millisecond)
		b.own(3, [2]int{0, 8})
		b.pass(400 * time.Millisecond)
		if l := b.measure(assignment.LoadRequests); len(l.Ranges) != 0 || !near(l.Total, 50) {
			t.Errorf("narrower %t: alone again for less than half of the window: %v of %v", also, l.Ranges, l.Total)
		}
	}
}

func TestMeasureRequests(t *testing.T) {
	b := newBench(t)
	b.own(1, [2]int{0, 1}, [2]int{2, 3})
	b.measureNothing()
	b.requests(eighth(0)+5, 40)
	b.requests(eighth(2)+7, 10)
	b.requests(eighth(2)+eighth(1)/2, 10) // part 4
	b.requests(eighth(5), 6)              // not owned
	b.shed(eighth(0)+5, 1, 1)
	b.pass(2 * time.Second)
	l := b.measure(assignment.LoadRequests)
	if l.Generation != 1 || l.Window != 2*time.Second || len(l.Ranges) != 2 {
		t.Errorf("%+v", l)
	}
	if !near(rateOf(l, eighth(0)), 20) || !near(rateOf(l, eighth(2)), 10) {
		t.Errorf("rates %v", l.Rate)
	}
	if l.Parts != 8 || !near(l.PartRate[8], 5) || !near(l.PartRate[12], 5) {
		t.Errorf("part rates %v", l.PartRate)
	}
	if !near(l.Misrouted, 3) || !near(l.Shed, .5) || !near(l.Total, 33) {
		t.Errorf("misrouted %v, shed %v, total %v", l.Misrouted, l.Shed, l.Total)
	}
	if len(l.Hot) != 3 || l.Hot[0].Key != eighth(0)+5 || !near(l.Hot[0].Rate, 20) || l.Hot[0].Error != 0 {
		t.Errorf("hot keys %+v", l.Hot)
	}
	// The next window begins anew.
	b.pass(time.Second)
	if l := b.measure(assignment.LoadRequests); l.Total != 0 || rateOf(l, eighth(0)) != 0 || len(l.Hot) != 0 || l.Parts != 1 {
		t.Errorf("an idle second: %+v", l)
	}
	if _, n := b.r.newest(); n.requests != 66 || n.misrouted != 6 || n.shed != 1 {
		t.Errorf("counted %+v", n)
	}
}

// measureNothing: no time has passed, so there is nothing to say.
func (b *bench) measureNothing() {
	if l := b.r.measure(assignment.LoadRequests, b.now); l != nil {
		b.t.Errorf("measured %+v in no time", l)
	}
}

// TestMeasureDeparted: what was refused in a slice that departs within the window is no load of the task
// any more, and says nothing of what it can carry.
func TestMeasureDeparted(t *testing.T) {
	b := newBench(t)
	b.own(1, [2]int{0, 1}, [2]int{2, 3})
	b.requests(eighth(0)+5, 50)
	b.requests(eighth(2)+7, 50)
	b.shed(eighth(2)+7, 40, 3)
	b.pass(400 * time.Millisecond)
	b.own(2, [2]int{0, 1})
	b.requests(eighth(0)+5, 30)
	b.pass(600 * time.Millisecond)
	if l := b.measure(assignment.LoadRequests); !near(rateOf(l, eighth(0)), 80) || l.Unserved != 0 || !near(l.Total, 90) {
		t.Errorf("%v, in all %v, of which %v was not served; want 80, 90 and none", rateOf(l, eighth(0)), l.Total, l.Unserved)
	}
}

// TestMeasureDemand: what was refused is load, in every metric, with what trial requests
// stand for, but not what is not critical, nor more than ten times what was served.
func TestMeasureDemand(t *testing.T) {
	for _, c := range []struct {
		metric    string
		demand    float64
		want      [2]float64 // of the slices
		hot, most float64    // of the key with most
	}{
		{assignment.LoadRequests, 1, [2]float64{50, 50}, 50, 100},
		{assignment.LoadRequests, 0, [2]float64{50, 10}, 50, 60},
		{assignment.LoadRequests, 5, [2]float64{50, 210}, 210, 260},
		{assignment.LoadRequests, 1e6, [2]float64{50, 10 + 9*60}, 10 + 9*60, 600},
		{assignment.LoadCPU, 1, [2]float64{.5, .5}, .5, 1},
		{assignment.LoadCPU, 0, [2]float64{.5, .1}, .5, .6},
		{assignment.LoadCustom, 1, [2]float64{100, 300}, 300, 400},
		{assignment.LoadCustom, 0, [2]float64{100, 60}, 100, 160},
	} {
		t.Run(fmt.Sprint(c.metric, " ", c.demand), func(t *testing.T) {
			b := newBench(t)
			b.own(1, [2]int{0, 1}, [2]int{2, 3})
			b.requests(eighth(0)+5, 50)
			b.requests(eighth(2)+7, 50)
			b.shed(eighth(2)+7, 40, c.demand)
			lay := b.v.own
			b.m.custom(eighth(0)+5, lay, lay.find(eighth(0)), 100)
			b.m.custom(eighth(2)+7, lay, lay.find(eighth(2)), 60)
			b.cpu += 600 * time.Millisecond
			b.pass(time.Second)
			l := b.measure(c.metric)
			if a, z := rateOf(l, eighth(0)), rateOf(l, eighth(2)); !near(a, c.want[0]) || !near(z, c.want[1]) || !near(l.Total, c.most) || !near(l.Shed, 40) {
				t.Errorf("rates %v and %v, in all %v, shed %v; want %v, %v", a, z, l.Total, l.Shed, c.want, c.most)
			}
			if c.metric != assignment.LoadCustom && (len(l.Hot) == 0 || !near(l.Hot[0].Rate, c.hot)) {
				t.Errorf("hot keys %+v, want %v", l.Hot, c.hot)
			}
		})
	}
	// A key that clients hold back is heavy by what it asks for, and others are not.
	h := newBench(t)
	h.own(1, [2]int{0, 1}, [2]int{2, 3})
	h.requests(eighth(0)+5, 10)
	h.requests(eighth(2)+7, 30)
	h.shed(eighth(2)+7, 10, 41)
	h.pass(time.Second)
	h.measure(assignment.LoadRequests)
	heavy, top := h.r.heavy.Load(), overload.Priority(2*overload.Cohorts)
	for at, want := range map[overload.Priority]overload.Priority{0: 0, 100: 0, 122: 0, 127: 127} { // .9 of 30 served, less 10, of 430
		if r := heavy.Rank(top+at, eighth(2)+7); r != top+want {
			t.Errorf("%d of the heavy key ranks as %d", at, r-top)
		}
		if r := heavy.Rank(top+at, eighth(0)+5); r != top+max(at, 1) {
			t.Errorf("%d of another key ranks as %d", at, r-top)
		}
	}
	// Nothing of a slice was served: it counts as the others on average.
	b := newBench(t)
	b.own(1, [2]int{0, 1}, [2]int{2, 3})
	b.requests(eighth(0)+5, 50)
	b.requests(eighth(2)+7, 20)
	b.shed(eighth(2)+7, 20, 1)
	b.cpu += 500 * time.Millisecond
	b.pass(time.Second)
	if l := b.measure(assignment.LoadCPU); !near(rateOf(l, eighth(2)), .2) || !near(l.Total, .7) {
		t.Errorf("%v of %v", rateOf(l, eighth(2)), l.Total)
	}
}

// TestHeavyAtOnce: as soon as handlers are known to be full a key that asks for too much is heavy,
// by what they can do and not by what was let in before.
func TestHeavyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.own(1, [2]int{0, 1}, [2]int{2, 3})
		b.requests(eighth(0)+5, 10)
		b.requests(eighth(2)+7, 300)
		b.shed(eighth(2)+7, 1, 1)
		b.pass(600 * time.Millisecond)
		if b.r.refused(b.now); b.r.heavy.Load() != nil {
			t.Error("a key is heavy although handlers are not full")
		}
		for range 60 { // 10 a second that end too late, of 500
			for range 25 {
				b.r.control.Admit(time.Now(), overload.Cohorts*2+5, false, time.Second, true)
			}
			b.r.control.Begin()
			b.r.control.End(admission.Missed, time.Second)
			time.Sleep(overload.Tick)
		}
		b.pass(lookEvery)
		b.r.refused(b.now)
		heavy := b.r.heavy.Load()
		if top := overload.Priority(2 * overload.Cohorts); heavy.Rank(top+120, eighth(2)+7) != top || heavy.Rank(top+120, eighth(0)+5) != top+120 {
			t.Errorf("heavy keys %+v, want one that keeps next to nothing", heavy)
		}
		b.r.control.Close()
	})
}

// TestMeasureCarriesOver: slices change within a window.
func TestMeasureCarriesOver(t *testing.T) {
	b := newBench(t)
	b.own(1, [2]int{0, 2}, [2]int{4, 5})
	b.requests(eighth(0)+5, 30)
	b.requests(eighth(1)+5, 60)
	b.requests(eighth(4)+5, 12)
	b.pass(700 * time.Millisecond)
	b.own(2, [2]int{0, 1}, [2]int{1, 2}, [2]int{6, 7}) // split; one gone, one come
	b.requests(eighth(0)+5, 10)
	b.requests(eighth(6)+5, 9)
	b.pass(300 * time.Millisecond)
	l := b.measure(assignment.LoadRequests)
	if l.Generation != 2 || !near(rateOf(l, eighth(0)), 40) || !near(rateOf(l, eighth(1)), 60) {
		t.Errorf("rates %v of %v", l.Rate, l.Ranges)
	}
	if !math.IsNaN(rateOf(l, eighth(6))) {
		t.Error("a slice that came just now has a rate")
	}
	if !near(l.Total, 121) {
		t.Errorf("total %v", l.Total)
	}
	for _, h := range l.Hot {
		if h.Key == eighth(4)+5 || h.Key == eighth(6)+5 {
			t.Errorf("hot key %s of a slice that is gone or new", h.Key)
		}
	}
	b.requests(eighth(6)+5, 9)
	b.pass(600 * time.Millisecond)
	b.own(3, [2]int{0, 2}, [2]int{6, 8}) // merged; one grows to twice its width
	b.requests(eighth(7)+5, 4)
	b.pass(400 * time.Millisecond)
	l = b.measure(assignment.LoadRequests)
	if !near(rateOf(l, eighth(0)), 0) || !math.IsNaN(rateOf(l, eighth(6))) {
		t.Errorf("rates %v of %v: half of a slice was not watched for long enough", l.Rate, l.Ranges)
	}
	// Only others' slices move: the layout stays.
	before := b.v.own
	b.own(4, [2]int{0, 2}, [2]int{6, 8})
	if b.v.own != before {
		t.Error("the layout changed although the slices did not")
	}
	b.requests(eighth(7)+5, 4)
	b.pass(time.Second)
	if l = b.measure(assignment.LoadRequests); l.Generation != 4 || !near(rateOf(l, eighth(7)), 4) {
		t.Errorf("%+v", l)
	}
}

func TestMeasureCPU(t *testing.T) {
	b := newBench(t)
	b.own(1, [2]int{0, 4})
	b.requests(eighth(0)+5, 30)
	b.requests(eighth(7), 10)
	b.cpu += 800 * time.Millisecond
	b.pass(2 * time.Second)
	l := b.measure(assignment.LoadCPU)
	if !near(l.Total, .4) || !near(rateOf(l, eighth(0)), .3) || !near(l.CPU, .4/float64(runtime.GOMAXPROCS(0))) || !near(l.Cores, .4) || (l.Memory > 1<<20) != (runtime.GOOS == "linux") || !near(l.Misrouted, 5) {
		t.Errorf("%+v", l)
	}
	if len(l.Hot) != 1 || !near(l.Hot[0].Rate, .3) {
		t.Errorf("hot %+v", l.Hot)
	}
	// Busy without requests.
	b.cpu += time.Second
	b.pass(time.Second)
	if l := b.measure(assignment.LoadCPU); !near(l.Total, 1) || rateOf(l, eighth(0)) != 0 {
		t.Errorf("%+v", l)
	}
}

// Where requests say how long they took, CPU is shared out by that.
func TestMeasureCPUByTime(t *testing.T) {
	b := newBench(t)
	b.own(1, [2]int{0, 4})
	b.requests(eighth(0)+5, 90)
	b.requests(eighth(2)+5, 1)
	took := func(k assignment.SliceKey, seconds float64) { b.m.took(k, b.v.own, b.v.own.find(k), seconds) }
	for range 90 {
		took(eighth(0)+5, .01)
	}
	took(eighth(2)+5, 8)
	took(eighth(7), 1.1)
	b.cpu += 2 * time.Second
	b.pass(time.Second)
	b.own(2, [2]int{0, 2}, [2]int{2, 4})
	b.pass(time.Second)
	l := b.measure(assignment.LoadCPU)
	if !near(l.Total, 1) || !near(rateOf(l, eighth(0)), .09) || !near(rateOf(l, eighth(2)), .8) {
		t.Errorf("%+v", l)
	}
	if len(l.Hot) != 2 || l.Hot[0].Key != eighth(2)+5 || !near(l.Hot[0].Rate, .8) || !near(l.Hot[1].Rate, .09) {
		t.Errorf("hot %+v", l.Hot)
	}
	// The next window, in which no times are known, is shared out by requests.
	b.requests(eighth(0)+5, 3)
	b.requests(eighth(2)+5, 1)
	b.cpu += 4 * time.Second
	b.pass(time.Second)
	if l := b.measure(assignment.LoadCPU); !near(rateOf(l, eighth(0)), 3) || !near(rateOf(l, eighth(2)), 1) {
		t.Errorf("%+v", l)
	}
}

func TestMeasureCustom(t *testing.T) {
	b := newBench(t)
	b.own(1, [2]int{0, 4})
	b.requests(eighth(0)+5, 30)
	add := func(k assignment.SliceKey, load float64) { b.m.custom(k, b.v.own, b.v.own.find(k), load) }
	add(eighth(1)+5, 2.5)
	add(eighth(1)+5, 1e-3)
	add(eighth(2)+5, 7)
	add(eighth(7), 100)
	b.pass(500 * time.Millisecond)
	b.own(2, [2]int{0, 2}, [2]int{2, 4})
	b.pass(500 * time.Millisecond)
	l := b.measure(assignment.LoadCustom)
	if !near(l.Total, 109.501) || !near(rateOf(l, eighth(1)), 2.501) || !near(rateOf(l, eighth(3)), 7) {
		t.Errorf("%+v", l)
	}
	if len(l.Hot) != 2 || l.Hot[0].Key != eighth(2)+5 {
		t.Errorf("hot %+v", l.Hot)
	}
	// Departed in the middle, custom load still belongs to the total.
	add(eighth(2)+5, 7)
	b.pass(500 * time.Millisecond)
	b.own(3, [2]int{0, 2})
	b.pass(500 * time.Millisecond)
	if l := b.measure(assignment.LoadCustom); !near(l.Total, 7) || rateOf(l, 0) != 0 {
		t.Errorf("%+v", l)
	}
}

// Whichever stripe is taken, by the collector or a goroutine that was interrupted, a
// request is counted in another without a wait.
func TestMeterTakesAnotherStripe(t *testing.T) {
	lay := newLayout([]assignment.Slice{{Start: 0, End: assignment.KeyspaceEnd}})
	m := &meter{stripes: make([]stripe, 4), mask: 3}
	m.relay(lay)
	for free := range m.stripes {
		for i := range m.stripes {
			m.stripes[i].lock.Store(1)
		}
		m.stripes[free].release()
		m.request(eighth(1), lay, 0, true)
		if n := m.stripes[free].n.requests; n != 1 {
			t.Errorf("%d requests in stripe %d, want 1", n, free)
		}
	}
	for i := range m.stripes {
		m.stripes[i].release()
	}
	if got := m.take(); got.n.requests != 4 || got.cells[requests][lay.cell(0, eighth(1))] != 4 {
		t.Errorf("counted %+v, want 4", got.n)
	}
}

// Many goroutines count while slices change and reports are made: nothing is
// lost and nothing counted twice.
func TestMeterCountsAll(t *testing.T) {
	b := newBench(t)
	b.own(1, [2]int{0, 8})
	layouts := []*layout{b.v.own, newLayout([]assignment.Slice{{Start: 0, End: eighth(3)}}), newLayout(nil)}
	const goroutines, each = 16, 5000
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for i := range each {
				k, lay := eighth(i%8)+assignment.SliceKey(g), layouts[i%3]
				b.m.request(k, lay, lay.find(k), true)
				b.m.custom(k, lay, lay.find(k), 2)
			}
		})
	}
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	var n counts
	var got [2]float64
	collect := func() {
		t := b.m.take()
		n.add(t.n)
		for i := range got {
			got[i] += t.lost[i] + amount(t.cells[i])
		}
	}
	for round := 0; ; round++ {
		cells, _ := b.m.relay(layouts[round%3])
		for i := range got {
			got[i] += amount(cells[i])
		}
		collect()
		select {
		case <-done:
			collect()
			const want = goroutines * each
			if n.requests != want || got[requests] != want || got[custom] != 2*want {
				t.Errorf("counted %d requests, %v in cells, %v custom load; want %d, the same, and twice", n.requests, got[requests], got[custom], want)
			}
			return
		default:
		}
	}
}
