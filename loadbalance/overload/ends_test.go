package overload

import (
	"cmp"
	"math/rand/v2"
	"testing"
	"time"
)

// slots is a server whose handlers wait for one of two slots, which each keeps busy for
// 40 ms, and that has CPU to spare: no request waits to be started.
type slots struct {
	heeds bool // a handler ends when its client has gone
	// sheds: it refuses when sixteen wait, which keeps a slot busy for costs.
	sheds bool
	costs time.Duration
	admit bool
	heavy *HeavyKeys
	// clients hold back what they are told to, and rate is what they ask for a second, nil for
	// what run says; by quarter of a second are what was asked and answered in time.
	clients       []TaskLevel
	rate          func(now time.Duration) float64
	asks, answers []int
	told          time.Duration // as core's
	reported      Level
	from          time.Duration // when run begins to count, after 5 s unless set
	hotFrom       time.Duration // when the hot key begins
	stall         time.Duration // each 3 s the process stands still for so long
	meter         *metered      // finds the heavy keys, nil if they are given
	// How many slots there are, and for how long each is busy, if not as said, and a deadline that
	// is not .4 s.
	slots           int
	takes, deadline time.Duration
	slow            func(now time.Duration) float64 // so many times as long are they busy
	attempts        int                             // as core's
	mixed           bool                            // of all criticalities, as usual

	pacer  Pacer
	limits *Limits
	asked  [Priorities]uint32
	seen   Seen

	waiting  []slotted
	busy     []slotted // when it ends is at
	now, due time.Duration
}

type slotted struct {
	began, at time.Duration
	hot, full bool
	client    *TaskLevel
}

// metered is what a task has counted in a window of a second, as package slicelet does.
type metered struct {
	began, lookAt        time.Duration
	all, hot, shed, held float64
}

// heavyKeys are those of the window until now.
func (m *metered) heavyKeys(now time.Duration, l *Limits) *HeavyKeys {
	secs := (now - m.began).Seconds()
	if secs <= 0 || m.shed == 0 && m.held == 0 {
		return nil
	}
	return l.HeavyKeys((m.all+m.held)/secs, (m.all-m.shed)/secs, []KeyRate{{1, m.hot / secs}})
}

// look is for a request that was refused.
func (s *slots) look() {
	m := s.meter
	if m == nil {
		return
	}
	m.shed++
	if s.now < m.lookAt || s.now < m.began+200*time.Millisecond || s.limits.Can() == 0 {
		return
	}
	m.lookAt = s.now + 200*time.Millisecond
	s.heed(m.heavyKeys(s.now, s.limits), false)
}

// heed takes the heavy keys of a window.
func (s *slots) heed(h *HeavyKeys, ended bool) {
	if was := s.heavy; h != nil {
		if s.heavy = h; was == nil && !ended {
			s.pacer.Reranked()
		}
	} else if ended && s.meter.shed == 0 && s.meter.held == 0 {
		s.heavy = nil
	}
}

const slotTakes = 40 * time.Millisecond

// run offers requests to it, of which the hot ones are for one key, and returns what share of
// both is answered in time after the first seconds, and what share of the slots' time these
// take.
func (s *slots) run(rng *rand.Rand, hot, others float64, lasts time.Duration) (hotServed, othersServed, good float64) {
	deadline, takes := cmp.Or(s.deadline, 400*time.Millisecond), cmp.Or(s.takes, slotTakes)
	s.limits = new(Limits)
	if s.from == 0 {
		s.from = 5 * time.Second
	}
	next := time.Duration(0)
	var offered, inTime [2]float64
	s.asks, s.answers = make([]int, lasts/quarter), make([]int, lasts/quarter)
	hear := func(q slotted) {
		if q.client != nil {
			q.client.Hear(s.now, s.limits.Level)
		}
	}
	end := func(q slotted) {
		hear(q)
		took := s.now - q.began
		if q.full {
			s.seen.Refused++
			return
		}
		if took <= deadline {
			s.answers[q.began/quarter]++
		}
		s.seen.Ended++
		s.seen.Worked += took
		if took > deadline {
			if s.seen.Missed++; took <= deadline+20*time.Millisecond {
				s.seen.GaveUp++
			}
		} else if q.began > s.from && q.began < lasts-time.Second {
			inTime[bit(q.hot)]++
		}
	}
	for ; s.now < lasts; s.now += time.Millisecond {
		if s.stall > 0 && s.now%(3*time.Second) == 0 && s.now > 0 {
			s.now += s.stall
			next += s.stall
		}
		if s.now >= s.due {
			s.seen.Over, s.seen.Asked, s.seen.UnderWay = max(Tick, s.now-s.due+Tick), &s.asked, len(s.waiting)+len(s.busy)
			s.due = s.now + Tick
			s.seen.HeavyKeys = s.heavy != nil
			s.limits = s.pacer.Tick(s.seen)
			if s.now >= s.told+time.Second {
				s.told = s.now
				for i := range s.clients {
					s.clients[i].Tell(s.now, s.reported)
				}
				s.reported = s.limits.Level.Coarse(s.reported)
			}
			s.seen, s.asked = Seen{}, [Priorities]uint32{}
		}
		if m := s.meter; m != nil && s.now >= m.began+time.Second {
			s.heed(m.heavyKeys(s.now, s.limits), true)
			*m = metered{began: s.now, lookAt: m.lookAt}
		}
		for i := 0; i < len(s.busy); i++ {
			if q := s.busy[i]; q.at <= s.now {
				end(q)
				s.busy = append(s.busy[:i], s.busy[i+1:]...)
				i--
			}
		}
		if s.rate != nil {
			others = s.rate(s.now)
		}
		hot := hot
		if s.now < s.hotFrom {
			hot = 0
		}
		for ; next <= s.now; next += time.Duration(rng.ExpFloat64() / (hot + others) * float64(time.Second)) {
			q := slotted{began: s.now, hot: rng.Float64() < hot/(hot+others)}
			if q.began > s.from && q.began < lasts-time.Second {
				offered[bit(q.hot)]++
			}
			l := Labels{Criticality: Critical}
			if s.mixed {
				l = drawn(rng, [4]float64{.2, .2, .5, .1})
			} else {
				l.SetCohort(rng.IntN(Cohorts))
			}
			p := l.Priority()
			if s.meter == nil {
				p = s.rank(p, q)
			}
			s.asks[s.now/quarter]++
			if n := len(s.clients); n > 0 {
				q.client = &s.clients[rng.IntN(n)]
			}
			own := p
			for range max(s.attempts, 1) {
				standsFor, ok := 0, true
				if q.client != nil {
					if standsFor, ok = q.client.Send(s.now, own); !ok {
						continue
					}
				}
				if s.meter != nil {
					p = s.rank(own, q)
					if s.meter.all++; q.hot {
						s.meter.hot++
					}
				}
				s.seen.Arrived[p.Criticality()-Sheddable]++
				s.asked[p]++
				held := false
				s.limits.StandIns(own, standsFor-1, func(at Priority, n int) {
					s.asked[s.rank(at, q)] += uint32(max(n, 0))
					held = true
				})
				if held && s.meter != nil && standsFor > 1 {
					if s.meter.held += float64(standsFor - 1); q.hot {
						s.meter.hot += float64(standsFor - 1)
					}
				}
				if standsFor > 0 {
					s.seen.Trials++
				}
				if !s.admit || s.limits.Admit(p, Queue{UnderWay: len(s.waiting) + len(s.busy)}, deadline) == Served {
					if q.full = s.sheds && len(s.waiting) >= 16; q.full && s.costs == 0 {
						end(q)
					} else {
						s.waiting = append(s.waiting, q)
					}
					break
				}
				s.seen.Shed++
				s.look()
				hear(q)
			}
		}
		if s.heeds {
			for len(s.waiting) > 0 && s.now-s.waiting[0].began > deadline {
				end(s.waiting[0])
				s.waiting = s.waiting[1:]
			}
		}
		for len(s.busy) < cmp.Or(s.slots, 2) && len(s.waiting) > 0 {
			q := s.waiting[0]
			s.waiting = s.waiting[1:]
			times := 1.
			if s.slow != nil {
				times = s.slow(s.now)
			}
			if q.at = s.now + time.Duration(times*float64(takes)); q.full {
				q.at = s.now + s.costs
			}
			s.busy = append(s.busy, q)
		}
	}
	return inTime[1] / max(offered[1], 1), inTime[0] / max(offered[0], 1), (inTime[0] + inTime[1]) / (lasts - s.from - time.Second).Seconds() / 50
}

// rank is the priority by which a request is admitted.
func (s *slots) rank(p Priority, q slotted) Priority {
	if q.hot {
		return s.heavy.Rank(p, 1)
	}
	return s.heavy.Rank(p, 2)
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestHandlersFull: where handlers wait for something else than the CPU, and one key asks for
// ten times what there is, requests are answered in time nearly as fast as that allows, and
// those of other keys nearly all: whether handlers queue without bound, or shed, dearly or not.
func TestHandlersFull(t *testing.T) {
	for name, kind := range map[string]slots{
		"end with their request": {heeds: true}, "do not": {}, "shed": {heeds: true, sheds: true}, "shed dearly": {heeds: true, sheds: true, costs: 4 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			run := func(admit bool, hot, others float64) (float64, float64, float64) {
				s := kind
				s.admit = admit
				if hot > 0 {
					s.heavy = NewHeavyKeys(hot+others, 50, []KeyRate{{1, hot}})
				}
				return s.run(rand.New(rand.NewPCG(5, 5)), hot, others, 65*time.Second)
			}
			hot, others, good := run(true, 500, 25)
			hotWithout, othersWithout, goodWithout := run(false, 500, 25)
			t.Logf("of the hot key %.3f are answered in time (without admission %.3f), of others %.3f (%.3f); of what the slots can do %.2f (%.2f)",
				hot, hotWithout, others, othersWithout, good, goodWithout)
			if good < .9 || others < .95 {
				t.Error("too few")
			}
			if othersWithout > .5 {
				t.Error("without admission others do well too, so this tests nothing")
			}
			if _, others, _ := run(true, 0, 40); others < .999 {
				t.Errorf("of .8 of what it can do %.4f are answered in time", others)
			}
		})
	}
}

// TestHotKey: one key begins to ask for ten times what handlers can do, clients heed levels, and
// the task finds out by itself which key it is. Those beside it go on being served, also if the
// process stands still now and then.
func TestHotKey(t *testing.T) {
	for name, kind := range map[string]slots{
		"end with their request": {heeds: true}, "do not": {}, "shed": {heeds: true, sheds: true}, "shed dearly": {heeds: true, sheds: true, costs: 4 * time.Millisecond},
	} {
		for _, clients := range []int{0, 1} {
			for _, stall := range []time.Duration{0, 300 * time.Millisecond} {
				least, hot, seeds := 1., 0., []uint64{8, 12, 20, 30, 35}
				for _, seed := range seeds {
					s := kind
					s.admit, s.meter, s.clients, s.stall = true, new(metered), make([]TaskLevel, clients), stall
					s.hotFrom, s.from = 3*time.Second+time.Duration(seed)*25*time.Millisecond, 9*time.Second
					h, others, _ := s.run(rand.New(rand.NewPCG(seed, 7)), 500, 12, 22*time.Second)
					least, hot = min(least, others), hot+h*500/float64(len(seeds))
				}
				t.Logf("%s, %d clients, stands still for %v: beside it %.3f at least, of the hot key %.1f/s", name, clients, stall, least, hot)
				if least < .93 {
					t.Error("want .93 beside it")
				}
				if stall == 0 && hot < 35 {
					t.Error("want 35/s of the hot key")
				}
			}
		}
	}
}

// TestHandlersQuickAgain: handlers take five or ten times as long for a while, and one key asks for much.
// From the third second after that on as much is answered as can be, though clients hold back so much
// that handlers wait for nothing, whatever they can do.
func TestHandlersQuickAgain(t *testing.T) {
	const from, until, lasts, seeds = 10 * time.Second, 25 * time.Second, 40 * time.Second, 10
	for _, clients := range []int{0, 1, 8} {
		for _, times := range []float64{5, 10} {
			for _, hot := range []float64{30, 60, 120} {
				least, mean := 1., 0.
				for seed := range uint64(seeds) {
					s := &slots{admit: true, heeds: true, mixed: true, meter: new(metered), clients: make([]TaskLevel, clients), slots: 4, takes: 80 * time.Millisecond,
						deadline: time.Second, from: until + 3*time.Second, slow: func(now time.Duration) float64 {
							if now < from || now >= until {
								return 1
							}
							return times
						}}
					_, _, good := s.run(rand.New(rand.NewPCG(seed, 9)), hot, 15, lasts)
					good /= min(1, (hot+15)/50)
					least, mean = min(least, good), mean+good/seeds
				}
				t.Logf("%d clients, %vx, hot %v/s: %.2f of what can be, at least %.2f", clients, times, hot, mean, least)
				if least < .8 {
					t.Error("that is too little")
				}
			}
		}
	}
}

// TestHandlersRecover: where clients hold back what handlers would be too full for, the flood
// leaves these nothing to wait for, and from the third second after it on nearly all of each is
// answered; with fifty clients that ask once in two seconds from the fourth on.
func TestHandlersRecover(t *testing.T) {
	const flood, lasts = 20, 40 // s
	for _, heeds := range []bool{true, false} {
		for _, clients := range []int{1, 4, 50} {
			for _, after := range []float64{10, 25, 40} {
				var asks, answers, all [lasts]int
				for seed := range uint64(10) {
					s := &slots{heeds: heeds, admit: true, clients: make([]TaskLevel, clients), rate: func(now time.Duration) float64 {
						if now < flood*time.Second {
							return 500
						}
						return after
					}}
					s.run(rand.New(rand.NewPCG(seed, uint64(clients))), 0, 0, lasts*time.Second)
					for i, n := range s.asks {
						asks[i/4] += n
						answers[i/4] += s.answers[i]
					}
					for i := range all {
						all[i] += 50
					}
				}
				good := 0.
				for i := 5; i < flood-1; i++ {
					good += float64(answers[i]) / float64(all[i]) / (flood - 6)
				}
				t.Logf("heeds %t, %d clients, then %v a second: %.2f of what the slots can do; by second %v of %v",
					heeds, clients, after, good, answers[flood:flood+6], asks[flood:flood+6])
				if good < .9 {
					t.Error("too few in the flood")
				}
				from := flood + 2
				if clients == 50 {
					from++
				}
				for i := from; i < lasts-1; i++ {
					if float64(answers[i]) < .98*float64(asks[i]) {
						t.Errorf("of %d in second %d only %d", asks[i], i-flood, answers[i])
					}
				}
			}
		}
	}
}

// TestHandlersFullAtOnce: what handlers that were idle until just now can do is known as soon as
// they are full, so that what is light is not taken to be too much.
func TestHandlersFullAtOnce(t *testing.T) {
	var p Pacer
	var asked [Priorities]uint32
	for range 60 {
		p.Tick(Seen{Over: Tick})
	}
	asked[300] = 25
	var l *Limits
	for i := range 20 { // two slots of 40 ms; the first that have waited for too long end after 400 ms
		s := Seen{Over: Tick, Asked: &asked, Arrived: [CriticalPlus]int{Critical - Sheddable: 25}, Ended: 2 + i%2}
		if i >= 8 {
			s.Missed = s.Ended
		}
		l = p.Tick(s)
		if can := l.Can(); i < 8 && can != 0 || i > 8 && (can < 22 || can > 55) {
			t.Errorf("%d: %v can end in a second, want at least 22 of 50 as soon as many miss their deadlines", i, can)
		}
	}
	// Then they rank lower, all but few, and these are what clients are told not to hold back.
	p.Reranked()
	asked[256], asked[300] = 24, 1
	for range levelTicks {
		l = p.Tick(Seen{Over: Tick, Asked: &asked, Arrived: [CriticalPlus]int{Critical - Sheddable: 25}, Ended: 3, Missed: 3})
	}
	if l.Level.Below != 256 {
		t.Errorf("level %v, want 256", l.Level)
	}
}

// TestStoodStill: a process stood still while requests were under way, so that all of them end too
// late. Handlers are not full for that, neither of many such requests nor of one.
func TestStoodStill(t *testing.T) {
	for _, underWay := range []int{1, 20} {
		var p Pacer
		var asked [Priorities]uint32
		asked[300] = 1
		p.Tick(Seen{Over: Tick, Starts: underWay, Asked: &asked, UnderWay: underWay})
		for i := range 100 {
			s := Seen{Over: Tick, Starts: 1, Asked: &asked, Ended: 1, UnderWay: 1}
			if i == 0 {
				s.Over, s.Ended, s.Missed = 11*time.Second, underWay, underWay
			}
			if l := p.Tick(s); l.Each > 0 || l.Level.Below > 0 {
				t.Errorf("%d requests were under way: after %d ticks an end counts for %v, and priorities below %d are refused", underWay, i, l.Each, l.Level.Below)
				break
			}
		}
	}
}

// TestFullFromTheStart: a process has begun a moment before a flood. It starts more requests than a
// pool can do for which they wait, so that after two seconds all take ten times as long as the first
// ones, and end too late.
func TestFullFromTheStart(t *testing.T) {
	var p Pacer
	var asked [Priorities]uint32
	asked[300] = 40
	var l *Limits
	for i := range 160 {
		s := Seen{Over: Tick, Computed: Tick, Busy: Tick, Starts: 8, Waiting: 10, Asked: &asked, Ended: 5, UnderWay: min(10+2*i, 100)}
		if i < 5 {
			s = Seen{Over: Tick, Computed: Tick, Starts: 5, Asked: &asked, Ended: 5, UnderWay: 10}
		}
		if s.UnderWay == 100 {
			s.Missed = s.Ended
		}
		s.Worked = Tick * time.Duration(s.UnderWay)
		l = p.Tick(s)
	}
	if l.Each == 0 {
		t.Errorf("an end counts for nothing, where all are too late: requests start each %v, of %.0f a second", l.Spacing, l.Asked)
	}
}

// TestTakesOfFew: what handlers take that wait for nothing is known of a task of which little is asked
// for, though hardly ever one is under way when it looks: in a flood as many are under way as keep
// four slots busy.
func TestTakesOfFew(t *testing.T) {
	const takes = 92 * time.Millisecond
	var p Pacer
	var asked [Priorities]uint32
	asked[300] = 1
	for i := range 40 {
		p.Tick(Seen{Over: 500 * time.Millisecond, Asked: &asked, Ended: 1, UnderWay: max(1-i, 0), Worked: takes})
	}
	asked[300] = 10
	for range 60 {
		p.Tick(Seen{Over: Tick, Asked: &asked, Ended: 2, Missed: 2, UnderWay: 40, Worked: 2 * time.Second})
	}
	var l *Limits
	for i := range 60 {
		n := 1 + i%2
		l = p.Tick(Seen{Over: Tick, Asked: &asked, Ended: n, UnderWay: 3, Worked: time.Duration(n) * takes, Shed: 10 - n})
	}
	if v := l.Admit(300, Queue{UnderWay: 3}, time.Second); v != Served {
		t.Errorf("with 3 under way, each of which counts for %v, a request is %v", l.Each, v)
	}
}

// TestCPUFull: where requests wait to be started, what handlers end counts for nothing,
// however late, unless far more are under way than wait: then these wait for something else, too.
func TestCPUFull(t *testing.T) {
	for _, x := range []struct {
		spacing  time.Duration
		underWay int
		want     bool
	}{{2 * time.Millisecond, 2, false}, {20 * time.Microsecond, 2, true}, {2 * time.Millisecond, 8, false}, {2 * time.Millisecond, 200, true}} {
		var p Pacer
		var asked [Priorities]uint32
		asked[300] = 75
		var l *Limits
		for range 100 {
			l = p.Tick(Seen{Over: Tick, Busy: 10 * x.spacing, Starts: 10, Waiting: 5, Asked: &asked, Ended: 20, Missed: 10, UnderWay: x.underWay, Worked: Tick * time.Duration(x.underWay)})
		}
		if (l.Each > 0) != x.want {
			t.Errorf("requests start each %v and 1,500 a second are asked for, with %d under way: an end counts for %v", x.spacing, x.underWay, l.Each)
		}
	}
}

// TestHandlersForget: handlers ended too late in a flood, and little is asked for since: soon none
// of it is refused, though what ended too late would be many for long of what ends now.
func TestHandlersForget(t *testing.T) {
	var p Pacer
	var asked [Priorities]uint32
	asked[300] = 25
	for range 60 {
		p.Tick(Seen{Over: Tick, Asked: &asked, Arrived: [CriticalPlus]int{Critical - Sheddable: 25}, Ended: 5, Missed: 5, GaveUp: 5})
	}
	asked[300] = 1
	const gap = time.Second / 3
	for now := gap; now < 30*time.Second; now += gap {
		l := p.Tick(Seen{Over: gap, Asked: &asked, Arrived: [CriticalPlus]int{Critical - Sheddable: 1}, Ended: 1, UnderWay: 1})
		if v := l.Admit(300, Queue{UnderWay: 3}, time.Second); v != Served && now > 10*time.Second {
			t.Errorf("%v after the flood a request is %v, with 3 under way of which each counts for %v", now, v, l.Each)
		}
	}
}

// TestHandlersSlow: where handlers take a large part of the time that a deadline leaves, and far too
// much is asked for, what they wait for is kept busy all the same: as many are under way as that
// takes, though less has ended.
func TestHandlersSlow(t *testing.T) {
	for _, clients := range []int{0, 4} {
		least, beside, can, seeds := 1., 1., 50., uint64(10)
		for seed := range seeds {
			s := &slots{
				slots: 10, takes: 200 * time.Millisecond, deadline: time.Second, heeds: true, admit: true, meter: new(metered),
				clients: make([]TaskLevel, clients), hotFrom: 10 * time.Second, from: 15 * time.Second,
			}
			_, others, good := s.run(rand.New(rand.NewPCG(seed, 9)), 500, 20, 40*time.Second)
			least, beside, can = min(least, good), min(beside, others), min(can, s.limits.Can())
		}
		t.Logf("%d clients, seeds 0 to %d: at least %.2f of what the slots can do, beside the hot key %.3f, and %.0f of 50/s taken for what can end",
			clients, seeds-1, least, beside, can)
		if least < .95 || beside < .95 || can < 40 {
			t.Error("too few")
		}
	}
}

// TestHandlersKeepTheirLevel: where somewhat more is asked for than handlers can do, that does not
// swing between too much and too little, so that next to all that they can do is done.
func TestHandlersKeepTheirLevel(t *testing.T) {
	for _, times := range []float64{1.2, 1.5} {
		for _, clients := range []int{0, 1, 20} {
			for _, heeds := range []bool{true, false} {
				good, seeds := 0., uint64(5)
				for seed := range seeds {
					s := &slots{heeds: heeds, admit: true, clients: make([]TaskLevel, clients), rate: func(time.Duration) float64 { return 50 * times }}
					_, _, g := s.run(rand.New(rand.NewPCG(seed, 11)), 0, 0, 45*time.Second)
					good += g / float64(seeds)
				}
				t.Logf("%v times, %d clients, heeds %t, seeds 0 to %d: %.3f of what the slots can do", times, clients, heeds, seeds-1, good)
				if good < .96 {
					t.Error("too few")
				}
			}
		}
	}
}

// TestHandlersGetMoreRoom: once what handlers wait for is four times as much, while far too much is
// asked for, it is used after ten seconds, although clients hold back what was too much before.
func TestHandlersGetMoreRoom(t *testing.T) {
	const from, lasts, within = 20, 40, 10 // s
	for _, times := range []float64{5, 10} {
		for _, clients := range []int{0, 1, 20} {
			var done [lasts]int
			seeds := 5
			for seed := range seeds {
				s := &slots{heeds: true, admit: true, clients: make([]TaskLevel, clients)}
				s.rate = func(now time.Duration) float64 {
					if now >= from*time.Second {
						s.slots = 8
					}
					return 50 * times
				}
				s.run(rand.New(rand.NewPCG(uint64(seed), 12)), 0, 0, lasts*time.Second)
				for i := range done {
					done[i] += sum(s.answers[4*i : 4*i+4])
				}
			}
			t.Logf("%v times, %d clients, seeds 0 to %d: by second %v of %d, once there are 8 slots of %d",
				times, clients, seeds-1, done[from-2:], 50*seeds, 200*seeds)
			if good := sum(done[from+within : lasts-1]); float64(good) < .95*float64(200*seeds*(lasts-1-from-within)) {
				t.Error("too few")
			}
		}
	}
}
