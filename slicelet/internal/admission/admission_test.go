package admission

import (
	"math"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/slicer-project/slicer/loadbalance/overload"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const top = overload.Priorities - 1

// full are limits by which all but the highest priority is refused.
func full() *overload.Limits {
	var p overload.Pacer
	asked := [overload.Priorities]uint32{}
	for i := range asked {
		asked[i] = 100
	}
	return p.Tick(overload.Seen{Over: overload.Tick, Asked: &asked, Signal: overload.Priorities})
}

// TestController: requests count by what becomes of them, and none is believed to wait for
// longer than it does.
func TestController(t *testing.T) {
	// Probes run when the test waits, and not beside it.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, func(t *testing.T) {
		c := New(Config{})
		admit := func(p overload.Priority, left time.Duration, serve bool, want overload.Verdict) {
			t.Helper()
			if v := c.Admit(time.Now(), p, false, left, serve); v != want {
				t.Errorf("priority %d with %v left: %s, want %s", p, left, v, want)
			}
		}
		admit(0, 0, false, overload.Served)
		admit(0, -1, false, overload.Late)
		admit(0, -1, true, overload.Served)
		if q := c.Queue(); q.Len != 2 {
			t.Errorf("%d wait", q.Len)
		}
		synctest.Wait()
		if q := c.Queue(); q != (overload.Queue{}) {
			t.Errorf("%+v waits, and all have begun", q)
		}
		c.limits.Store(full())
		admit(0, 0, false, overload.Shed)
		admit(0, 0, true, overload.Served)
		admit(top, 0, false, overload.Served)
		admit(top+9, 0, false, overload.Served)
		for _, want := range []struct {
			of overload.Criticality
			v  overload.Verdict
			n  uint64
		}{{overload.Sheddable, overload.Served, 1}, {overload.Sheddable, overload.Late, 2}, {overload.Sheddable, overload.Shed, 2}, {overload.CriticalPlus, overload.Served, 2}} {
			if n := c.Count(want.of, want.v); n != want.n {
				t.Errorf("%s %s: %d, want %d", want.of, want.v, n, want.n)
			}
		}
		// A refusal looks as well, or else one that waits no longer would count for ever.
		synctest.Wait()
		time.Sleep(2 * probeEvery)
		admit(0, 0, false, overload.Shed)
		synctest.Wait()
		if q := c.Queue(); q != (overload.Queue{}) {
			t.Errorf("%+v waits", q)
		}
		// When time has passed the limits are others, asked or not.
		time.Sleep(time.Hour)
		if l := c.Limits(); l.Level != (overload.Level{}) {
			t.Errorf("after an hour the level is %v", l.Level)
		}
		admit(0, 0, false, overload.Served)
		c.limits.Store(full())
		c.Close()
		admit(0, 0, false, overload.Served)
		c.Close()
	})
}

// TestSignals: the largest counts.
func TestSignals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		value := math.NaN()
		c := New(Config{Signals: []func() float64{func() float64 { return .5 }, func() float64 { return value }}})
		defer c.Close()
		for _, x := range []struct {
			value float64
			want  overload.Verdict
		}{{math.NaN(), overload.Served}, {1, overload.Served}, {2, overload.Shed}, {math.Inf(1), overload.Shed}, {0, overload.Served}} {
			value = x.value
			for range 2 { // what is asked for counts from the next Tick
				time.Sleep(overload.Tick)
				c.Admit(time.Now(), top, false, 0, true)
			}
			time.Sleep(overload.Tick)
			if v := c.Admit(time.Now(), 0, false, 0, true); v != overload.Served {
				t.Error("it is not served all the same")
			}
			if v := c.Admit(time.Now(), 0, false, 0, false); v != x.want {
				t.Errorf("signal %v: %s, want %s", x.value, v, x.want)
			}
			synctest.Wait()
		}
	})
}

// TestHeld: what clients hold back is asked for.
func TestHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := func(held int) float64 {
			c := New(Config{})
			defer c.Close()
			defer synctest.Wait()
			time.Sleep(overload.Tick)
			c.Admit(time.Now(), 0, held > 0, 0, false)
			c.Held(0, held)
			time.Sleep(overload.Tick)
			return c.Limits().Asked
		}
		for _, held := range []int{0, 1, 7} {
			if ratio := asked(held) / asked(0); math.Abs(ratio-float64(1+held)) > 1e-9 {
				t.Errorf("one that is sent and %d that are held back count for %v", held, ratio)
			}
		}
	})
}

// TestOrder: what one processor has started says nothing of what waits on another.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Config{})
		defer c.Close()
		time.Sleep(time.Second)
		at := time.Since(c.epoch)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.admitted.Store(30)
		c.probeAt.Store(int64(at + time.Hour))
		var probes []*probe
		for i := range 3 {
			probes = append(probes, c.awaitLocked(int64(10*(i+1)), at+time.Duration(i)*time.Millisecond, false))
		}
		for _, x := range []struct {
			ran   int
			after time.Duration
			len   int
			first time.Duration // when it was admitted, before now
			busy  time.Duration
		}{{2, 5 * time.Millisecond, 30, 5 * time.Millisecond, 0}, {0, 10 * time.Millisecond, 20, 9 * time.Millisecond, 10 * time.Millisecond}, {1, 20 * time.Millisecond, 0, 0, 20 * time.Millisecond}} {
			now := at + x.after
			c.ranLocked(probes[x.ran], now)
			if q := c.queue(now); q.Len != x.len || q.First != x.first || c.seen.Busy != x.busy {
				t.Errorf("after probe %d: %+v, busy for %v; want %+v", x.ran, q, c.seen.Busy, x)
			}
		}
		if c.seen.Starts != 30 {
			t.Errorf("%d starts", c.seen.Starts)
		}
	})
}

// TestTaken: while others have the CPU, requests that wait say nothing of how much the process
// can do, and how long they wait does not count.
func TestTaken(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	for _, x := range []struct {
		known              bool
		first, least, most time.Duration // most: that each takes
	}{{true, 3 * time.Millisecond, 50 * time.Microsecond, 100 * time.Microsecond}, {false, 600 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond}} {
		used := time.Second
		c := New(Config{CPU: func() (time.Duration, bool) { return used, x.known }})
		c.tick(time.Second)
		c.mu.Lock()
		c.admitted.Store(30)
		p := c.awaitLocked(30, time.Second, false)
		c.mu.Unlock()
		at := time.Second
		for range 2 { // they wait in all of two Ticks
			at += 300 * time.Millisecond
			used += 3 * time.Millisecond // on two processors
			c.tick(at)
		}
		if q := c.queue(at); q.Len != 30 || q.First != x.first {
			t.Errorf("CPU time known %v: %+v waits, want 30, %v", x.known, q, x.first)
		}
		c.mu.Lock()
		c.ranLocked(p, at)
		c.mu.Unlock()
		c.tick(at + overload.Tick)
		if each := c.limits.Load().Spacing; each < x.least || each > x.most {
			t.Errorf("CPU time known %v: each takes %v, want %v to %v", x.known, each, x.least, x.most)
		}
		c.Close()
	}
}

// TestReadings: the CPU time is read seldom for probes that run at once, and often while one waits.
func TestReadings(t *testing.T) {
	var used time.Duration
	read := 0
	c := New(Config{CPU: func() (time.Duration, bool) { used += time.Millisecond; read++; return used, true }})
	defer c.Close()
	at := time.Duration(0)
	start := func() *probe {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.awaitLocked(c.admitted.Add(1), at, false)
	}
	run := func(p *probe) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.ranLocked(p, at)
	}
	for range 100 {
		at += probeEvery
		run(start())
	}
	if read != 10 {
		t.Errorf("read %d times for probes of 100 ms", read)
	}
	p := start()
	for range 50 {
		at += cpuEvery / 2
		c.queue(at)
	}
	if run(p); read < 30 || read > 35 {
		t.Errorf("read %d times while one waits for 25 ms", read-10)
	}
}

// TestGrown: when many more wait than at the last Tick there is one at once.
func TestGrown(t *testing.T) {
	c := New(Config{})
	defer c.Close()
	at := 10 * time.Second
	c.tickAt.Store(int64(at))
	c.tickIfDue(at)
	for i, x := range []struct {
		more int // wait
		wait time.Duration
		want bool
	}{{5, 10 * time.Millisecond, false}, {500, time.Millisecond, true}, {5, overload.EarlyTick, false}, {500, time.Microsecond, true}, {500, overload.EarlyTick / 2, false}, {0, overload.EarlyTick, true}} {
		c.admitted.Add(int64(x.more))
		at += x.wait
		c.first.at.Store(int64(at))
		if early := c.limits.Load().Grown(c.queue(at)) && c.tickEarly(at); early != x.want || early != (c.ticked == at) {
			t.Errorf("%d: %d wait, %v later: there is a Tick %v, want %v", i, c.queue(at).Len, x.wait, early, x.want)
		}
	}
}

// TestOutdated: what is let in before it is known that far too much is asked for is refused when a
// handler is to begin with it, and counts.
func TestOutdated(t *testing.T) {
	c := New(Config{})
	defer c.Close()
	var p overload.Pacer
	asked := [overload.Priorities]uint32{0: 900, top: 10}
	for range 20 {
		c.limits.Store(p.Tick(overload.Seen{Over: overload.Tick, Busy: overload.Tick, Starts: 25, Asked: &asked, Arrived: [overload.CriticalPlus]int{900, 0, 0, 10}}))
	}
	for _, x := range []struct {
		waiting int64
		p       overload.Priority
		want    bool
	}{{0, 0, false}, {1, 0, false}, {100, 0, true}, {100, top, false}} {
		c.admitted.Store(x.waiting)
		c.first.at.Store(1)
		if is := c.Outdated(c.epoch.Add(time.Second), x.p); is != x.want {
			t.Errorf("%d wait, priority %d: outdated %v, want %v", x.waiting, x.p, is, x.want)
		}
	}
	if n := c.Count(overload.Sheddable, overload.Shed); n != 1 {
		t.Errorf("%d are shed", n)
	}
}

// TestStale: what came after the last probe does not count as waiting for ever, and a time
// that is far ahead does not end probes and ticks.
func TestStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Config{})
		defer c.Close()
		for range 40 {
			c.Admit(time.Now(), 0, false, 0, false)
			synctest.Wait()
		}
		time.Sleep(time.Hour)
		if q := c.Queue(); q.Len != 0 {
			t.Errorf("after an hour %d wait", q.Len)
		}
		c.Admit(time.Now().Add(24*time.Hour), 0, false, 0, false)
		synctest.Wait()
		for range 5 {
			time.Sleep(time.Second)
			c.Admit(time.Now(), 0, false, 0, false)
			synctest.Wait()
		}
		if q := c.Queue(); q.Len != 0 {
			t.Errorf("after a time that was ahead %d wait", q.Len)
		}
	})
}

// TestHopeless: requests that nothing could answer in time are no demand.
func TestHopeless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Config{})
		defer c.Close()
		for i := range 2000 {
			time.Sleep(time.Millisecond)
			c.Admit(time.Now(), top, false, -1, false)
			if i%100 == 0 {
				c.Admit(time.Now(), 0, false, 0, false)
			}
			synctest.Wait()
		}
		if l := c.Limits(); l.Asked > 20 {
			t.Errorf("%.0f are asked for a second, and 10 could be done", l.Asked)
		}
	})
}

// TestControllerRace has many ask at once.
func TestControllerRace(t *testing.T) {
	c := New(Config{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 20_000 {
				if c.Admit(time.Now(), overload.Priority(i), false, 0, false) == overload.Served && i%16 == 0 {
					runtime.Gosched()
				}
				if i%1000 == 0 {
					c.Limits()
					c.Queue()
				}
			}
		})
	}
	wg.Wait()
	for c.Queue().Len > 0 {
		runtime.Gosched()
	}
	c.Close()
	if asked := sum(c); asked != 160_000 {
		t.Errorf("%d requests were counted", asked)
	}
}

func sum(c *Controller) (n uint64) {
	for of := overload.Sheddable; of <= overload.CriticalPlus; of++ {
		for v := overload.Served; v <= overload.Shed; v++ {
			n += c.Count(of, v)
		}
	}
	return n
}

// BenchmarkAdmit is what a request pays, besides its goroutine: 150 ns is the limit.
func BenchmarkAdmit(b *testing.B) {
	c := New(Config{})
	defer c.Close()
	b.ReportAllocs()
	i := overload.Priority(0)
	for b.Loop() {
		c.Admit(time.Now(), i%overload.Priorities, false, time.Second, true)
		i++
	}
}
