package overload

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

// core is a server of one core that starts requests in the order in which they arrive, and
// that pays for taking each in, served or not.
type core struct {
	takes, intake time.Duration // of a request
	admit         bool
	pacer         Pacer
	limits        *Limits

	now, ticked, mark time.Duration
	computed, before  time.Duration // in all, and at the last Tick
	ticks             int
	others            *others // who take the CPU, nil if there are none
	queue             []queued
	seen              Seen
	asked             [Priorities]uint32

	clients []TaskLevel // that hold back what the core would refuse; none send all
	// tell: the control plane tells the clients each second what the level was a second
	// before. reported is that level.
	tell     bool
	told     time.Duration
	reported Level

	waits time.Duration // how long clients do, 0 for half a second
	after time.Duration // what arrives from then on counts, 0 for 1 s
	reads int           // what has arrived is seen when the queue is empty, or so many have been started; 0 is at once
	begun int           // since that was seen
	liar  *liar         // nil if there is none

	stalls  time.Duration // for how long the core is stopped, once in 5 s
	stalled time.Duration // when it was
	sleeps  time.Duration // for how long clients are, once in 5 s: they send then what was due

	attempts int      // how often clients send a request at most that is refused or held back, 0 for once
	again    []queued // will be sent again, from the next on
}

// roundTrip is how long after a refusal a request is sent again.
const roundTrip = time.Millisecond

func (c *core) settles() time.Duration  { return cmp.Or(c.after, time.Second) }
func (c *core) deadline() time.Duration { return cmp.Or(c.waits, 500*time.Millisecond) }

type queued struct {
	arrived   time.Duration
	computed  time.Duration // by then
	p         Priority
	from      *TaskLevel
	standsFor int
	lies      bool // it counts for nothing
	attempt   int
	again     time.Duration // when it is sent again
}

// outcome counts requests by criticality.
type outcome struct {
	asked, inTime, shed [CriticalPlus + 1]int
	held                int // by clients
	latencies           []time.Duration
	asks, answers       []int // by quarter of a second; answers: in time
}

func (o *outcome) of(counts [CriticalPlus + 1]int, of ...Criticality) (n int) {
	for _, c := range of {
		n += counts[c]
	}
	return n
}

var everything = []Criticality{Sheddable, SheddablePlus, Critical, CriticalPlus}

// drawn are labels of a criticality of which there is such a share, and of any cohort.
func drawn(rng *rand.Rand, mix [4]float64) (l Labels) {
	x := rng.Float64()
	for i, share := range mix {
		if l.Criticality = Sheddable + Criticality(i); x < share {
			break
		}
		x -= share
	}
	l.SetCohort(rng.IntN(Cohorts))
	return l
}

// run offers so many times what the core could do if requests cost nothing to take in, and
// counts what arrives after the first second, or c.after.
func (c *core) run(rng *rand.Rand, times float64, mix [4]float64, lasts time.Duration) *outcome {
	begin := c.now
	o := &outcome{asks: make([]int, lasts/quarter+1), answers: make([]int, lasts/quarter+1)}
	next, due := begin, begin
	draw := func() Priority { return drawn(rng, mix).Priority() }
	for c.now < begin+lasts {
		c.tick()
		if l := c.liar; l != nil && l.next <= c.now {
			c.take(o, queued{arrived: max(l.next, begin), p: l.p, standsFor: l.standsFor, lies: true}, false)
			l.next = max(l.next, begin) + time.Duration(rng.ExpFloat64()*float64(c.takes)/l.rate)
			continue
		}
		if len(c.again) > 0 && c.again[0].again <= c.now {
			q := c.again[0]
			c.again = c.again[1:]
			c.send(o, q, q.arrived-begin > c.settles())
			continue
		}
		if next > c.now {
			c.begun = 0
		}
		if next <= c.now && (len(c.queue) == 0 || c.begun == 0 || c.begun >= c.reads) {
			c.begun = 0
			at := next
			due += time.Duration(rng.ExpFloat64() * float64(c.takes) / times)
			next = max(due, due-due%stallEvery+c.sleeps)
			q, counts := queued{arrived: at, p: draw()}, at-begin > c.settles()
			if counts {
				o.asked[q.p.Criticality()]++
			}
			o.asks[(at-begin)/quarter]++
			if n := len(c.clients); n > 0 {
				q.from = &c.clients[rng.IntN(n)]
			}
			c.send(o, q, counts)
			continue
		}
		if len(c.queue) == 0 {
			was := c.now
			c.now = max(min(next, c.ticked+Tick), c.now)
			if c.liar != nil {
				c.now = min(c.now, c.liar.next)
			}
			if len(c.again) > 0 {
				c.now = min(c.now, c.again[0].again)
			}
			if c.others != nil && c.now == next {
				c.now += c.others.wake(c.now - was)
			}
			continue
		}
		c.serve(o, begin)
	}
	return o
}

func (c *core) tick() {
	if c.stalls > 0 && c.now >= c.stalled+stallEvery {
		c.stalled = c.now
		c.now += c.stalls
	}
	early := c.limits != nil && c.now >= c.ticked+EarlyTick && c.limits.Grown(c.waiting())
	if c.limits == nil {
		c.limits = c.pacer.Tick(Seen{Over: Tick})
	}
	if early || c.now >= c.ticked+Tick {
		c.ticks++
		if len(c.queue) > 0 {
			c.seen.Busy += c.now - c.mark
			c.mark = c.now
		}
		c.seen.Waiting = len(c.queue)
		c.seen.Over, c.seen.Computed, c.seen.Asked, c.seen.Clients = c.now-c.ticked, c.computed-c.before, &c.asked, len(c.clients)
		c.ticked, c.before = c.now, c.computed
		c.limits = c.pacer.Tick(c.seen)
		c.seen, c.asked = Seen{}, [Priorities]uint32{}
		if c.tell && c.now >= c.told+time.Second {
			c.told = c.now
			for i := range c.clients {
				c.clients[i].Tell(c.now, c.reported)
			}
			c.reported = c.limits.Level.Coarse(c.reported)
		}
	}
}

func (c *core) waiting() Queue {
	if len(c.queue) == 0 {
		return Queue{}
	}
	return Queue{Len: len(c.queue), First: c.computed - c.queue[0].computed}
}

// stallEvery is how often the core or its clients are stopped.
const stallEvery = 5 * time.Second

// quarter is of a second.
const quarter = 250 * time.Millisecond

// send is what a client does, until it has sent a request, or has tried often enough.
func (c *core) send(o *outcome, q queued, counts bool) {
	for ; q.attempt < max(c.attempts, 1); q.attempt++ {
		sent := true
		if q.from != nil {
			q.standsFor, sent = q.from.Send(c.now, q.p)
		}
		if sent {
			c.take(o, q, counts)
			return
		}
	}
	if counts {
		o.held++
	}
}

// refuse answers, and the client sends the request again.
func (c *core) refuse(q queued) {
	c.answer(q)
	if q.attempt++; q.attempt < c.attempts && !q.lies {
		q.again = c.now + roundTrip
		c.again = append(c.again, q)
	}
}

func (c *core) take(o *outcome, q queued, counts bool) {
	c.compute(c.intake)
	c.seen.Arrived[q.p.Criticality()-Sheddable]++
	c.asked[q.p]++
	c.limits.StandIns(q.p, q.standsFor-1, func(at Priority, n int) { c.asked[at] += uint32(max(n, 0)) })
	if q.standsFor > 0 {
		c.seen.Trials++
	}
	crit := q.p.Criticality()
	if c.admit && c.limits.Admit(q.p, c.waiting(), q.arrived+c.deadline()-c.now) != Served {
		if counts {
			o.shed[crit]++
		}
		c.refuse(q)
		return
	}
	if len(c.queue) == 0 {
		c.mark = c.now
	}
	q.computed = c.computed
	c.queue = append(c.queue, q)
}

func (c *core) serve(o *outcome, begin time.Duration) {
	q := c.queue[0]
	c.queue = c.queue[1:]
	c.seen.Busy += c.now - c.mark
	c.mark = c.now
	c.seen.Starts++
	c.begun++
	if c.now > q.arrived+c.deadline() { // the handler finds that its context has ended
		return
	}
	if c.admit && c.limits.Outdated(q.p, c.waiting()) {
		c.compute(c.intake)
		c.seen.Outdated++
		if q.arrived-begin > c.settles() && !q.lies {
			o.shed[q.p.Criticality()]++
		}
		c.refuse(q)
		return
	}
	c.compute(c.takes)
	c.answer(q)
	took := c.now - q.arrived
	if took <= c.deadline() && q.arrived >= begin && !q.lies && len(o.answers) > 0 {
		o.answers[(q.arrived-begin)/quarter]++
	}
	if took <= c.deadline() && q.arrived-begin > c.settles() && !q.lies {
		o.inTime[q.p.Criticality()]++
		o.latencies = append(o.latencies, took)
	}
}

// answer tells a client the level.
func (c *core) answer(q queued) {
	if q.from != nil {
		q.from.Hear(c.now, c.limits.Level)
	}
}

func p99(of []time.Duration) time.Duration {
	if len(of) == 0 {
		return 0
	}
	of = slices.Clone(of)
	slices.Sort(of)
	return of[len(of)*99/100]
}
