package overload

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// TestLevels: clients that hear a task's level hold back most of what it would refuse, so
// that it serves more, and send everything again soon after there is room.
func TestLevels(t *testing.T) {
	usual := [4]float64{.2, .2, .5, .1}
	const takes, lasts = 2 * time.Millisecond, 31 * time.Second
	for _, clients := range []int{1, 20, 2000, -2000} {
		for _, times := range []float64{.8, 1.5, 3, 10} {
			tell, clients := clients < 0, max(clients, -clients)
			t.Run(fmt.Sprintf("%d clients %vx told %v", clients, times, tell), func(t *testing.T) {
				run := func(clients int) (*core, *outcome, *rand.Rand) {
					rng := rand.New(rand.NewPCG(uint64(clients), uint64(times*10)))
					c := &core{takes: takes, intake: takes / 10, admit: true, clients: make([]TaskLevel, clients), tell: tell}
					return c, c.run(rng, times, usual, lasts), rng
				}
				c, o, rng := run(clients)
				_, alone, _ := run(0)
				served, aloneServed := o.of(o.inTime, everything...), alone.of(alone.inTime, everything...)
				can := float64(lasts-time.Second) / float64(takes)
				refused := float64(o.of(o.shed, everything...)) / float64(served)
				of := func(c Criticality) float64 { return float64(o.inTime[c]) / float64(o.asked[c]) }
				t.Logf("served %.2f (%.2f where clients send all) of what it can, critical_plus %.3f, critical %.3f; refused %.2f (%.2f) for each; p99 %v",
					float64(served)/can, float64(aloneServed)/can, of(CriticalPlus), of(Critical), refused,
					float64(alone.of(alone.shed, everything...))/float64(max(aloneServed, 1)), p99(o.latencies))
				if times < 1 && (o.held > 0 || refused > .003) || times > 1 && (served < aloneServed || float64(served) < .82*can) ||
					times <= 3 && of(CriticalPlus) < .98 {
					t.Errorf("too few are served; %d were held back", o.held)
				}
				most := map[int]float64{1: .3, 20: .3, 2000: .65}[clients]
				if tell {
					most = .6
				}
				if refused > most {
					t.Errorf("%.2f are refused for each that is served, want at most %v", refused, most)
				}
				// Then there is room, and the first two seconds do not count, or ten for clients that
				// ask once in ten seconds and are not told.
				const half = .5
				first := map[int]time.Duration{1: 2, 20: 2, 2000: 10}[clients]
				if tell {
					first = 4
				}
				c.run(rng, half, usual, first*time.Second)
				after := c.run(rng, half, usual, 11*time.Second)
				if asked, served := after.of(after.asked, everything...), after.of(after.inTime, everything...); float64(served) < .98*float64(asked) {
					t.Errorf("after it %d of %d are served; %d are held back", served, asked, after.held)
				}
			})
		}
	}
}

// TestTaskLevel: what is held back is counted, by criticality, and the trial request that is
// due stands for it; a level that is not confirmed is forgotten.
func TestTaskLevel(t *testing.T) {
	var l TaskLevel
	const second = time.Second
	low, high := Priority(3), Priority(Priorities-1)
	send := func(now time.Duration, p Priority, standsFor int, ok bool) {
		t.Helper()
		if n, sent := l.Send(now, p); n != standsFor || sent != ok {
			t.Errorf("at %v a request of priority %d stands for %d and is sent: %v; want %d, %v", now, p, n, sent, standsFor, ok)
		}
	}
	send(0, 0, 0, true)
	l.Hear(0, Level{Below: Priorities - 1, Pause: 2 * second})
	send(0, low, 0, false)
	send(0, low, 0, false)
	send(0, 2*Cohorts, 0, false)
	send(0, high, 0, true)
	send(3*second, low, 3, true)
	send(3*second, low, 0, false)
	if !l.Holds(3999*time.Millisecond, low) || l.Holds(4*second, low) || l.Holds(3*second, high) {
		t.Error("it holds what it should not, or not what it should")
	}
	l.Hear(3*second, Level{Below: 5, Pause: time.Hour})
	send(13*second, 5, 0, true)
	send(13*second-1, 4, 2, true)
	send(13*second, 4, 0, true) // it was heard 10 s ago
	l.Hear(23*second, Level{Below: 5, Pause: 0})
	send(23*second, 4, 0, false)
	l.Hear(23*second, Level{})
	send(23*second, 4, 0, true)
	for range 2 * MostStandsFor {
		l.Hear(24*second, Level{Below: 5, Pause: second})
		l.Send(24*second, 0)
	}
	send(26*second-1, 0, MostStandsFor, true)
}

// TestTaskLevelFell: a client that holds back far less than before sends a trial request before it is
// due; by chance it hardly ever does.
func TestTaskLevelFell(t *testing.T) {
	const pause = 10 * time.Second
	trials, soon := 0, 0
	const seeds = 100
	for seed := range uint64(seeds) {
		rng := rand.New(rand.NewPCG(seed, 11))
		var l TaskLevel
		now, next := time.Duration(0), time.Duration(0)
		phase := func(rate float64, until time.Duration) (first time.Duration) {
			for now += time.Duration(rng.ExpFloat64() / rate * float64(time.Second)); now < until; now += time.Duration(rng.ExpFloat64() / rate * float64(time.Second)) {
				if next <= now {
					next = now + time.Second
					l.Tell(now, Level{Below: 300, Pause: pause})
				}
				if _, ok := l.Send(now, 299); ok {
					trials++
					first = cmp.Or(first, now)
				}
			}
			now = until
			return first
		}
		phase(10, 300*time.Second)
		before := trials
		if first := phase(1, 310*time.Second); first > 0 && first < 304*time.Second {
			soon++
		}
		trials = before
	}
	t.Logf("seeds 0 to %d: %d trial requests in 300 s, and within 4 s after there is less to hold back of %d clients", seeds-1, trials/seeds, soon)
	if trials > 45*seeds || soon < 75 {
		t.Error("want at most 45, and at least 75")
	}
}

// TestTaskLevelTold: what the control plane tells counts where nothing was heard, for 10 s, and
// that it tells nothing ends what was heard, but not what was heard just now.
func TestTaskLevelTold(t *testing.T) {
	const second = time.Second
	var l TaskLevel
	below := func(now time.Duration, want Priority) {
		t.Helper()
		if got := l.now(now).Below; got != want || want > 0 && (!l.Holds(now, want-1) || l.Holds(now, want)) {
			t.Errorf("at %v it holds back what is below %d, want %d", now, got, want)
		}
	}
	l.Tell(0, Level{})
	below(0, 0)
	l.Tell(0, Level{Below: 100, Pause: 30 * second})
	below(0, 100)
	below(10*second-1, 100)
	below(10*second, 0)
	l.Tell(20*second, Level{Below: 100, Pause: 30 * second})
	l.Hear(20*second, Level{Below: 200, Pause: second})
	if below(20*second, 200); l.Below() != 200 {
		t.Errorf("at most %d", l.Below())
	}
	below(22*second, 100) // what was heard is too old
	l.Hear(23*second, Level{Below: 50, Pause: 5 * second})
	l.Tell(24*second, Level{})
	below(25*second, 50)
	l.Tell(26*second, Level{})
	below(26*second, 0)
	l.Hear(27*second, Level{})
	l.Tell(29*second, Level{Below: 100, Pause: second})
	below(29*second, 0)
	l.Tell(30*second, Level{Below: 100, Pause: second})
	below(30*second, 100)
	// One trial request in 15 to 45 s for one that is told, and in 5 to 15 s for another.
	for _, told := range []bool{false, true} {
		l, n := TaskLevel{}, 0
		for now := second; now < 301*second; now += second / 10 {
			if now%(2*second) == 0 && told {
				l.Tell(now, Level{Below: 9, Pause: MostPause})
			}
			if standsFor, ok := l.Send(now, 3); ok && standsFor == 0 {
				n++
			} else if !ok {
				continue
			} else if n++; !told {
				l.Hear(now, Level{Below: 9, Pause: MostPause})
			}
			l.Hear(now, Level{Below: 9, Pause: MostPause})
		}
		if least, most := map[bool]int{false: 20, true: 7}[told], map[bool]int{false: 60, true: 22}[told]; n < least || n > most {
			t.Errorf("told %v: %d were sent in 300 s", told, n)
		}
	}
}

// TestCoarse: a level that is near the one that is told changes nothing, and what is told is
// never above it.
func TestCoarse(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var told Level
	changes, below := 0, 300
	for range 10_000 {
		below = min(max(below+rng.IntN(3)-1, 290), 310)
		l := Level{Priority(below), time.Second + time.Duration(rng.IntN(1000))*time.Millisecond}
		was := told
		if told = l.Coarse(told); told != was {
			changes++
		}
		if told.Below > l.Below || told.Below+coarse < l.Below || told.Pause < l.Pause || told.Pause > 8*l.Pause {
			t.Fatalf("%+v is told as %+v", l, told)
		}
	}
	if changes > 800 {
		t.Errorf("%d changes", changes)
	}
	if l := (Level{}).Coarse(told); l != (Level{}) {
		t.Errorf("none is told as %+v", l)
	}
	if l := (Level{3, time.Second}).Coarse(Level{}); l != (Level{}) {
		t.Errorf("next to none is told as %+v", l)
	}
}

// FuzzParseLevel: whatever a header says, the level is in range, and what a level prints is
// that level.
func FuzzParseLevel(f *testing.F) {
	for _, s := range []string{"", "0;0", "511;1000", "512;99999", "5", "5;", ";5", "-1;20", "70000;1", "3;4294967296", "3;20;4"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		l := ParseLevel(s)
		if l != (Level{}) && (l.Below == 0 || l.Below >= Priorities || l.Pause < LeastPause || l.Pause > MostPause) {
			t.Errorf("%q: %+v", s, l)
		}
		if again := ParseLevel(l.String()); again != l {
			t.Errorf("%+v prints as %q, which is %+v", l, l, again)
		}
	})
}
