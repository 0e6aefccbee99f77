package overload

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// TestPacer: whatever is offered, a server serves nearly all that it can, the most critical
// first, at nearly the latency that it has at the rate that it is provisioned for; without
// admission it serves nothing in time.
func TestPacer(t *testing.T) {
	usual := [4]float64{.2, .2, .5, .1}
	const lasts = 21 * time.Second
	for _, takes := range []time.Duration{2 * time.Millisecond, 5 * time.Millisecond} {
		intake := takes * 3 / 100
		first := core{takes: takes, intake: intake, admit: true}
		atOne := p99(first.run(rand.New(rand.NewPCG(1, 10)), 1, usual, lasts).latencies)
		for _, times := range []float64{.5, .8, 1, 1.5, 3, 10} {
			t.Run(fmt.Sprint(takes, " ", times, "x"), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(1, uint64(times*10)))
				with := core{takes: takes, intake: intake, admit: true}
				o := with.run(rng, times, usual, lasts)
				without := core{takes: takes, intake: intake}
				n := without.run(rand.New(rand.NewPCG(1, uint64(times*10))), times, usual, lasts)
				can := math.Min(times, 1-.03*times) * float64(lasts-time.Second) / float64(takes)
				good := float64(o.of(o.inTime, everything...)) / can
				served := func(c Criticality) float64 { return float64(o.inTime[c]) / float64(o.asked[c]) }
				slow := p99(o.latencies)
				t.Logf("served in time %.2f of what it can (without admission %.2f), by criticality %.2f %.2f %.2f %.2f, p99 %v", good,
					float64(n.of(n.inTime, everything...))/can, served(Sheddable), served(SheddablePlus), served(Critical), served(CriticalPlus), slow)
				if good < .9 {
					t.Errorf("served %.2f of what it can", good)
				}
				for c := Sheddable; c < CriticalPlus; c++ {
					if served(c) > served(c+1)+.02 {
						t.Errorf("of %s %.2f are served, of %s %.2f", c, served(c), c+1, served(c+1))
					}
				}
				switch {
				case times <= .8:
					if n := o.of(o.shed, everything...); float64(n) > .003*float64(o.of(o.asked, everything...)) || o.of(o.shed, Critical, CriticalPlus) > 0 {
						t.Errorf("%d are refused, of them %d critical", n, o.of(o.shed, Critical, CriticalPlus))
					}
				case times > 1 && times <= 3 && served(CriticalPlus) < .98:
					t.Errorf("of critical_plus %.2f are served", served(CriticalPlus))
				case times > 1 && slow > 2*atOne:
					t.Errorf("p99 %v, and at 1x %v", slow, atOne)
				}
				if times >= 3 && float64(n.of(n.inTime, everything...)) > .1*can {
					t.Error("the server without admission does well too, so this tests nothing")
				}
			})
		}
	}
}

// TestPacerBatches: where requests are read in batches, as gRPC's readers do beside a handler
// that never waits, they wait no longer at three and ten times the load than at once it, and for far
// less time where clients do not hold back what is too much.
func TestPacerBatches(t *testing.T) {
	run := func(takes time.Duration, times float64, clients int) *outcome {
		c := core{takes: takes, intake: 40 * time.Microsecond, admit: true, reads: 61, clients: make([]TaskLevel, clients)}
		return c.run(rand.New(rand.NewPCG(5, 5)), times, [4]float64{.2, .2, .5, .1}, time.Minute)
	}
	for _, x := range []struct {
		takes   time.Duration
		clients int
		most    float64 // p99, of that at 1x
		plus    float64
	}{{2 * time.Millisecond, 0, .6, .99}, {2 * time.Millisecond, 8, 1, .99}, {5 * time.Millisecond, 0, .8, .99}, {5 * time.Millisecond, 8, .96, .99}} {
		atOne := p99(run(x.takes, 1, x.clients).latencies)
		for _, times := range []float64{3, 10} {
			o := run(x.takes, times, x.clients)
			plus := float64(o.inTime[CriticalPlus]) / float64(o.asked[CriticalPlus])
			t.Logf("%v, %d clients that hold back, %vx: p99 %v, at 1x %v; of critical_plus %.3f are served", x.takes, x.clients, times, p99(o.latencies), atOne, plus)
			if float64(p99(o.latencies)) > x.most*float64(atOne) || times == 3 && plus < x.plus {
				t.Error("that is too long, or too few")
			}
		}
	}
}

// TestPacerFlood: a flood of sheddable requests takes nothing from the critical.
func TestPacerFlood(t *testing.T) {
	c := core{takes: 2 * time.Millisecond, intake: 60 * time.Microsecond, admit: true}
	o := c.run(rand.New(rand.NewPCG(2, 2)), 10, [4]float64{.94, 0, .04, .02}, 31*time.Second)
	asked, served := o.of(o.asked, Critical, CriticalPlus), o.of(o.inTime, Critical, CriticalPlus)
	if float64(served) < .995*float64(asked) {
		t.Errorf("%d of %d critical requests are served", served, asked)
	}
	t.Logf("%d of %d critical requests and %d of %d sheddable ones are served", served, asked, o.inTime[Sheddable], o.asked[Sheddable])
}

// TestPacerStalls: a server at .8 of what it can do that is stopped for a moment now and then
// refuses next to nothing for that, and nothing that is critical.
func TestPacerStalls(t *testing.T) {
	c := core{takes: 2 * time.Millisecond, intake: 40 * time.Microsecond, admit: true, after: 1}
	rng := rand.New(rand.NewPCG(9, 9))
	asked, refused, critical := 0, 0, 0
	for range 60 {
		o := c.run(rng, .8, [4]float64{.2, .2, .5, .1}, time.Second)
		c.now += 40 * time.Millisecond
		asked, refused, critical = asked+o.of(o.asked, everything...), refused+o.of(o.shed, everything...), critical+o.of(o.shed, Critical, CriticalPlus)
	}
	t.Logf("of %d requests %d are refused, of them %d critical", asked, refused, critical)
	if float64(refused) > .003*float64(asked) || critical > 0 {
		t.Error("that is too many")
	}
}

// TestPacerPauses: a server at .8 of what it can do to which requests go on being sent while it is
// stopped for a moment now and then, or whose clients are stopped, refuses little for that, and clients hold back next to nothing: what arrives
// all at once then is what was to arrive before.
func TestPacerPauses(t *testing.T) {
	for _, x := range []struct {
		takes, stalls, sleeps time.Duration
		shed, critical        float64
	}{
		{takes: 2 * time.Millisecond},
		{takes: 2 * time.Millisecond, stalls: 40 * time.Millisecond, shed: .0003},
		{takes: 2 * time.Millisecond, stalls: 100 * time.Millisecond, shed: .0008, critical: .0001},
		{takes: 2 * time.Millisecond, stalls: 200 * time.Millisecond, shed: .013, critical: .003},
		{takes: 2 * time.Millisecond, sleeps: 200 * time.Millisecond, shed: .01, critical: .001},
		{takes: 5 * time.Millisecond},
		{takes: 5 * time.Millisecond, stalls: 100 * time.Millisecond, shed: .0003, critical: .0001},
		{takes: 5 * time.Millisecond, stalls: 200 * time.Millisecond, shed: .003, critical: .002},
		{takes: 5 * time.Millisecond, sleeps: 200 * time.Millisecond, shed: .001, critical: .0006},
	} {
		for _, clients := range []int{0, 8, 200} {
			c := core{takes: x.takes, intake: 40 * time.Microsecond, admit: true, reads: 61, clients: make([]TaskLevel, clients), stalls: x.stalls, sleeps: x.sleeps}
			o := c.run(rand.New(rand.NewPCG(9, 9)), .8, [4]float64{.2, .2, .5, .1}, 5*time.Minute)
			asked := float64(o.of(o.asked, everything...))
			shed, critical, held := float64(o.of(o.shed, everything...))/asked, float64(o.of(o.shed, Critical, CriticalPlus))/asked, float64(o.held)/asked
			t.Logf("%v, %d clients, stopped for %v, clients for %v: %.5f are refused, %.5f critical ones, %.5f held back", x.takes, clients, x.stalls, x.sleeps, shed, critical, held)
			if shed > x.shed+.0001 || critical > x.critical || held > .0002 {
				t.Error("that is too many")
			}
		}
	}
}

// TestPacerLate: that some requests were started becomes known a Tick later, when they have ended: that
// is not taken for requests that take longer. If few end, it is.
func TestPacerLate(t *testing.T) {
	for ended, most := range map[int]float64{10: 1.2, 4: 3} {
		var p Pacer
		var asked [Priorities]uint32
		asked[2*Cohorts] = 9 // of 10 that can be served
		tick := func(busy time.Duration, starts, ended int) *Limits {
			s := Seen{Over: Tick, Busy: busy, Computed: busy, Starts: starts, Ended: ended, Asked: &asked}
			s.Arrived[Critical-Sheddable] = 9
			return p.Tick(s)
		}
		for range 100 {
			tick(Tick*6/10, 6, 9)
		}
		ratio := tick(Tick, 4, ended).ratioOf(0)
		t.Logf("with 4 starts known and %d ends .9 of what can be done looks as %.2f", ended, ratio)
		if ratio > most || most > 2 && ratio < 1.8 {
			t.Error("want at most 1.2 if ten end, and at least 1.8 if four do")
		}
	}
}

// TestPacerFloodBegins: what floods in of one criticality is not taken for more of another, so as
// soon as the queue of its first moment is gone all that is critical is served.
func TestPacerFloodBegins(t *testing.T) {
	asked, served := 0, 0
	for seed := range uint64(20) {
		c := core{takes: 2 * time.Millisecond, intake: 40 * time.Microsecond, admit: true, after: 600 * time.Millisecond}
		rng := rand.New(rand.NewPCG(seed, 6))
		c.run(rng, .6, [4]float64{0, 0, .83, .17}, 5*time.Second)
		o := c.run(rng, 10, [4]float64{.94, 0, .05, .01}, 2100*time.Millisecond)
		asked, served = asked+o.of(o.asked, Critical, CriticalPlus), served+o.of(o.inTime, Critical, CriticalPlus)
	}
	t.Logf("%d of %d critical requests are served", served, asked)
	if float64(served) < .98*float64(asked) {
		t.Error("that is too few")
	}
}

// TestPacerFloodStarts: of the first minute of a flood next to nothing that is critical is lost,
// though nothing is known of it in the first milliseconds, also where requests are read in batches.
func TestPacerFloodStarts(t *testing.T) {
	for _, x := range []struct {
		takes   time.Duration
		reads   int
		seconds float64 // of what is critical, lost
	}{{2 * time.Millisecond, 0, .1}, {5 * time.Millisecond, 0, .15}, {2 * time.Millisecond, 61, .25}, {5 * time.Millisecond, 61, .25}} {
		lost, ticks := 0, 0
		const seeds = 20
		for seed := range uint64(seeds) {
			c := core{takes: x.takes, intake: 40 * time.Microsecond, admit: true, after: 1, reads: x.reads}
			rng := rand.New(rand.NewPCG(seed, 6))
			c.run(rng, .6, [4]float64{0, 0, .83, .17}, 5*time.Second)
			ticks -= c.ticks
			o := c.run(rng, 10, [4]float64{.94, 0, .05, .01}, 2*time.Second)
			ticks += c.ticks
			lost += o.of(o.asked, Critical, CriticalPlus) - o.of(o.inTime, Critical, CriticalPlus)
		}
		seconds := float64(lost) / seeds / (.6 / x.takes.Seconds())
		t.Logf("%v, batches of %d: what is lost is asked for in %.2f s, with %d Ticks", x.takes, x.reads, seconds, ticks/seeds)
		if seconds > x.seconds {
			t.Error("that is too much")
		}
	}
}

// TestPacerBurst: after a third of a second the queue of a sudden load is gone. A burst that
// takes less than grace lets requests wait is served.
func TestPacerBurst(t *testing.T) {
	usual := [4]float64{.2, .2, .5, .1}
	rng := rand.New(rand.NewPCG(4, 4))
	for _, takes := range []time.Duration{500 * time.Microsecond, 2 * time.Millisecond, 5 * time.Millisecond} {
		c := core{takes: takes, admit: true}
		atOne := p99(c.run(rng, 1, usual, 20*time.Second).latencies)
		c.run(rng, .2, usual, 5*time.Second)
		c.after = 350 * time.Millisecond
		o := c.run(rng, 10, usual, 1350*time.Millisecond)
		t.Logf("%v: p99 %v of %d, and at 1x %v", takes, p99(o.latencies), len(o.latencies), atOne)
		if p99(o.latencies) > 2*atOne {
			t.Errorf("requests that take %v: p99 %v a third of a second after the load has risen from .2x to 10x, at 1x %v", takes, p99(o.latencies), atOne)
		}
		c.after = 0
		c.run(rng, .2, usual, 5*time.Second)
		n := int(150 * time.Millisecond / takes)
		o = new(outcome)
		for range n {
			c.take(o, queued{arrived: c.now, p: Labels{Criticality: Critical}.Priority()}, true)
		}
		for len(c.queue) > 0 {
			c.tick()
			c.serve(o, c.now-time.Minute)
		}
		if o.shed[Critical] > 0 {
			t.Errorf("of a burst of %d requests that take %v, %d are refused", n, takes, o.shed[Critical])
		}
	}
}

// TestPacerRecovers: when an overload is over, nothing is refused any more.
func TestPacerRecovers(t *testing.T) {
	c := core{takes: 2 * time.Millisecond, intake: 60 * time.Microsecond, admit: true}
	rng := rand.New(rand.NewPCG(3, 3))
	usual := [4]float64{.2, .2, .5, .1}
	c.run(rng, 5, usual, 30*time.Second)
	o := c.run(rng, .5, usual, 10*time.Second) // of which the first second does not count
	if n := o.of(o.shed, everything...); n > 0 || o.of(o.inTime, everything...) != o.of(o.asked, everything...) {
		t.Errorf("of %d requests %d are refused, %d served", o.of(o.asked, everything...), n, o.of(o.inTime, everything...))
	}
	if c.limits.Level != (Level{}) {
		t.Errorf("the level is %v", c.limits.Level)
	}
}

// TestPacerQuiet: a task that nothing is asked of refuses nothing, nor does one whose
// requests do not wait, however many they are.
func TestPacerQuiet(t *testing.T) {
	var p Pacer
	all := [Priorities]uint32{}
	for i := range all {
		all[i] = 1000
	}
	for _, s := range []Seen{{}, {Over: Tick}, {Over: Tick, Asked: &all}, {Over: -1, Busy: -1, Starts: -1}, {Over: time.Hour, Asked: &all, Starts: 1 << 40}} {
		l := p.Tick(s)
		for _, pr := range []Priority{0, Priorities / 2, Priorities - 1, Priorities, math.MaxUint16} {
			if v := l.Admit(pr, Queue{}, 0); v != Served || l.Level != (Level{}) || l.Pressure(pr, Queue{}) != 0 {
				t.Errorf("%+v: %v, level %d, pressure %v", s, v, l.Level, l.Pressure(pr, Queue{}))
			}
		}
	}
	if v := new(Limits).Admit(0, Queue{Len: 1000}, time.Millisecond); v != Served {
		t.Errorf("the zero limits: %v", v)
	}
	if v := new(Limits).Admit(0, Queue{Len: 100, First: time.Second}, 0); v != Late {
		t.Errorf("behind many, the first of which has waited for a second: %v", v)
	}
	if v := new(Limits).Admit(0, Queue{Len: 2, First: time.Minute}, 0); v != Served {
		t.Errorf("after a pause of the process: %v", v)
	}
	if v := new(Limits).Admit(0, Queue{}, -1); v != Late {
		t.Errorf("past its deadline: %v", v)
	}
}

// TestPacerSignal: where another signal says that the task is too full, the least critical
// are refused by how much it is.
func TestPacerSignal(t *testing.T) {
	var p Pacer
	all := [Priorities]uint32{}
	for i := range all {
		all[i] = 10
	}
	for _, c := range []struct {
		signal  float64
		refused int
	}{{.5, 0}, {1, 0}, {1.1, 47}, {2, 256}, {1e9, 512}, {math.Inf(1), 512}} {
		l := p.Tick(Seen{Over: Tick, Asked: &all, Signal: c.signal})
		refused := 0
		for pr := range Priority(Priorities) {
			v, pressure := l.Admit(pr, Queue{}, 0), l.Pressure(pr, Queue{})
			if v == Shed {
				refused++
			}
			if (v == Shed) != (int(pr) < c.refused) || pressure < 0 || pressure > 1 || v == Shed && pressure < 1 {
				t.Fatalf("signal %v, priority %d: %v, pressure %v", c.signal, pr, v, pressure)
			}
		}
		if refused > 0 && int(l.Level.Below) != refused-1 || refused == 0 && l.Level != (Level{}) {
			t.Errorf("signal %v: %d are refused, and the level is %v", c.signal, refused, l.Level)
		}
	}
}

func TestPriority(t *testing.T) {
	last := -1
	for c := Sheddable; c <= CriticalPlus; c++ {
		for cohort := Cohorts - 1; cohort >= 0; cohort-- {
			l := Labels{Criticality: c}
			l.SetCohort(cohort)
			if p := l.Priority(); int(p) != last+1 || p.Criticality() != c {
				t.Errorf("%s, cohort %d: %d after %d, which is %s", c, cohort, p, last, p.Criticality())
			}
			last++
		}
	}
	if p := (Labels{}).Priority(); last != Priorities-1 || p.Criticality() != Critical || Priority(math.MaxUint16).Criticality() != CriticalPlus {
		t.Errorf("%d priorities; what says nothing has %d", last+1, p)
	}
}

// BenchmarkAdmit is what each request costs.
func BenchmarkAdmit(b *testing.B) {
	c := core{takes: 2 * time.Millisecond, intake: 60 * time.Microsecond, admit: true}
	c.run(rand.New(rand.NewPCG(4, 4)), 3, [4]float64{.2, .2, .5, .1}, 5*time.Second)
	for i := range b.N {
		c.limits.Admit(Priority(i%Priorities), Queue{Len: i % 8}, time.Second)
	}
}

// BenchmarkTick is what a task pays 20 times a second.
func BenchmarkTick(b *testing.B) {
	var p Pacer
	all := [Priorities]uint32{}
	for i := range all {
		all[i] = uint32(i)
	}
	for b.Loop() {
		p.Tick(Seen{Over: Tick, Busy: 40 * time.Millisecond, Starts: 20, Asked: &all})
	}
}
