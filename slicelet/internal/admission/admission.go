// Package admission carries an overload.Pacer out: it counts the requests of a task that
// arrive, and finds out how long they wait until a goroutine begins to work on them.
//
// When a goroutine begins cannot be observed from outside: gRPC has a hook there, a
// stats.Handler, but that makes an RPC a tenth dearer. So with an admitted request, at most
// once a millisecond, a goroutine of our own is started, a probe, just before the request's.
// Go's scheduler runs the goroutines of one processor in the order in which they became
// ready, and steals from the front, so when a probe runs, all that were admitted before it
// have begun, whatever became of them since: a request that is cancelled, malformed, or
// whose message is late does not seem to wait. With several processors it counts when the
// probes before it have run, too.
package admission

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/slicer-project/slicer/loadbalance/overload"
)

// probeEvery is how often there is a probe.
const probeEvery = time.Millisecond

const (
	criticalities = int(overload.CriticalPlus) + 1
	verdicts      = int(overload.Shed) + 1
)

// End is how a handler ended.
type End uint8

const (
	InTime   End = iota
	GaveUp       // with the deadline of its request: it may have waited all the time
	Missed       // later
	Refused      // it had no room itself
	shed         // it did not begin: there was no room
	outdated     // of these: any more
	ends
)

// Controller decides about the requests of a task. It does nothing while none arrives: what
// is due is done when one does, as a timer would have to wait behind the requests. All
// methods are safe for concurrent use. Times are since epoch.
type Controller struct {
	epoch time.Time
	cfg   Config
	cpu   cpu

	demand demand

	underWay atomic.Int64 // handlers
	ends     [ends]atomic.Uint32
	worked   atomic.Int64 // time.Duration

	limits atomic.Pointer[overload.Limits]
	counts [criticalities][verdicts]atomic.Uint64

	admitted atomic.Int64 // requests
	started  atomic.Int64 // of these, as far as is known
	// first is the first request that may wait: when it was admitted, 0 if it is not known,
	// and what had been computed by then.
	first   struct{ at, computed atomic.Int64 }
	open    atomic.Int64 // probes that have not run
	probeAt atomic.Int64 // when the next probe is due
	tickAt  atomic.Int64 // when the next Tick is due

	mu     sync.Mutex
	pacer  overload.Pacer
	ticked time.Duration
	last   time.Duration // when started was found out
	behind bool          // then others were waiting
	seen   overload.Seen // since the last Tick; Asked and Over are left out
	probes []*probe      // from the first that has not run
	alive  int           // goroutines of probes
	closed bool

	running sync.WaitGroup
}

// demand is what was asked for since the last Tick (overload.Seen).
type demand struct {
	asked   [overload.Priorities]atomic.Uint32
	arrived [overload.CriticalPlus]atomic.Uint32
	trials  atomic.Uint32
}

// Config is what a Controller asks for. All may be left out.
type Config struct {
	// CPU is the CPU time of the process so far; false if it is not known. It is called at most
	// once a millisecond.
	CPU func() (time.Duration, bool)
	// Clients, HeavyKeys, and Signals, of which the largest counts, are called at each Tick
	// (overload.Seen). The first two may be nil.
	Clients   func() int
	HeavyKeys func() bool
	Signals   []func() float64
}

// New returns one that has seen nothing.
func New(cfg Config) *Controller {
	if cfg.Clients == nil {
		cfg.Clients = func() int { return 0 }
	}
	if cfg.HeavyKeys == nil {
		cfg.HeavyKeys = func() bool { return false }
	}
	c := &Controller{epoch: time.Now(), cfg: cfg, cpu: cpu{read: cfg.CPU}}
	c.cpu.at.Store(-int64(cpuLately)) // it has not been read
	c.limits.Store(new(overload.Limits))
	return c
}

// Close waits for what is under way. All requests are served from then on but those whose
// deadline has passed.
func (c *Controller) Close() {
	c.mu.Lock()
	c.closed = true
	c.limits.Store(new(overload.Limits))
	c.mu.Unlock()
	c.running.Wait()
	c.first.at.Store(0)
}

// Admit says what is to become of a request that arrives now, and whose deadline leaves it
// so much time, 0 for none; trial says that it is a trial request (overload.TaskLevel.Send).
// If serve is true it is served all the same, but counted as what would become of it. One
// that is served has to be given to a goroutine at once. It allocates at most once a
// millisecond.
func (c *Controller) Admit(now time.Time, p overload.Priority, trial bool, left time.Duration, serve bool) overload.Verdict {
	at := now.Sub(c.epoch)
	c.tickIfDue(at)
	p = min(p, overload.Priorities-1)
	l := c.limits.Load()
	if !l.Hopeless(left) { // which costs next to nothing, so that it is no demand
		c.demand.arrived[p.Criticality()-overload.Sheddable].Add(1)
		if c.demand.asked[p].Add(1); trial {
			c.demand.trials.Add(1)
		}
	}
	q := c.queue(at)
	if l.Grown(q) && c.tickEarly(at) {
		l = c.limits.Load()
	}
	v := l.Admit(p, q, left)
	if c.counts[p.Criticality()][v].Add(1); v == overload.Shed {
		c.ends[shed].Add(1)
	}
	if serve {
		v = overload.Served
	}
	switch {
	case v == overload.Served:
		if n := c.admitted.Add(1); due(&c.probeAt, at, probeEvery) {
			c.probe(n, at, false)
		}
	case c.open.Load() == 0 && due(&c.probeAt, at, probeEvery):
		c.probe(c.admitted.Load(), at, true) // that some wait must not be believed for ever
	}
	return v
}

// Held counts requests that clients have not sent.
func (c *Controller) Held(p overload.Priority, n int) {
	c.demand.asked[min(p, overload.Priorities-1)].Add(uint32(max(n, 0)))
}

// Reranked takes that requests like those before have other priorities from now on.
func (c *Controller) Reranked() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pacer.Reranked()
}

// Outdated reports whether a request that was served, and that a handler is to begin with now, is to
// be refused after all (overload.Limits.Outdated), and counts it then as shed, too.
func (c *Controller) Outdated(now time.Time, p overload.Priority) bool {
	if p = min(p, overload.Priorities-1); !c.limits.Load().Outdated(p, c.queue(now.Sub(c.epoch))) {
		return false
	}
	c.ends[outdated].Add(1)
	c.ends[shed].Add(1)
	c.counts[p.Criticality()][overload.Shed].Add(1)
	return true
}

// Begin counts a handler that begins to work on a request that was served.
func (c *Controller) Begin() { c.underWay.Add(1) }

// End counts the end of one that took so long.
func (c *Controller) End(how End, took time.Duration) {
	c.underWay.Add(-1)
	if how = min(how, Refused); how != Refused {
		c.worked.Add(int64(took))
	}
	c.ends[how].Add(1)
}

// queue is what waits at a time.
func (c *Controller) queue(at time.Duration) (q overload.Queue) {
	q.Len, q.UnderWay = int(max(c.admitted.Load()-c.started.Load(), 0)), int(max(c.underWay.Load(), 0))
	if first := c.first.at.Load(); first > 0 {
		if q.First = max(at-time.Duration(first), 0); q.First > cpuEvery {
			if now, ok := c.cpu.computed(at, cpuEvery); ok {
				q.First = min(q.First, max(now-time.Duration(c.first.computed.Load()), 0))
			}
		}
	} else if c.open.Load() == 0 && int64(at) >= c.probeAt.Load() {
		q.Len = 0 // those that came after the last probe, which has long run
	}
	return q
}

// Queue is what waits to be started.
func (c *Controller) Queue() overload.Queue { return c.queue(time.Since(c.epoch)) }

// Limits are those in force now.
func (c *Controller) Limits() *overload.Limits {
	c.tickIfDue(time.Since(c.epoch))
	return c.limits.Load()
}

// InForce are the limits in force, which asking does not bring up to date.
func (c *Controller) InForce() *overload.Limits { return c.limits.Load() }

// Count is how many requests of a criticality met with a verdict.
func (c *Controller) Count(of overload.Criticality, v overload.Verdict) uint64 {
	return c.counts[of][v].Load()
}

func (c *Controller) tickIfDue(at time.Duration) {
	if due(&c.tickAt, at, overload.Tick) {
		c.tick(at)
	}
}

// tickEarly reports whether it was long enough since the last Tick for one that is early.
func (c *Controller) tickEarly(at time.Duration) bool {
	when := c.tickAt.Load()
	if int64(at) < when-int64(overload.Tick-overload.EarlyTick) || !c.tickAt.CompareAndSwap(when, int64(at+overload.Tick)) {
		return false
	}
	c.tick(at)
	return true
}

// due reports whether it is time for what is to be done so often, and takes it as done. One
// that is far ahead was set by a clock that has gone back since.
func due(next *atomic.Int64, at, every time.Duration) bool {
	when := next.Load()
	return (int64(at) >= when || when-int64(at) > int64(2*every)) && next.CompareAndSwap(when, int64(at+every))
}

// tick tells the Pacer.
func (c *Controller) tick(at time.Duration) {
	var asked [overload.Priorities]uint32
	for i := range asked {
		if c.demand.asked[i].Load() > 0 {
			asked[i] = c.demand.asked[i].Swap(0)
		}
	}
	full := 0.
	for _, signal := range c.cfg.Signals {
		if v := signal(); v > full { // which NaN is not
			full = v
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.waitedLocked(at)
	s := c.seen
	s.Signal, s.Clients = full, c.cfg.Clients()
	c.seen = overload.Seen{}
	s.Computed = c.cpu.since(at)
	s.Outdated = int(c.ends[outdated].Swap(0))
	s.Waiting = int(max(c.admitted.Load()-c.started.Load(), 0))
	s.Over, s.Asked, s.Trials = at-c.ticked, &asked, int(c.demand.trials.Swap(0))
	for i := range s.Arrived {
		s.Arrived[i] = int(c.demand.arrived[i].Swap(0))
	}
	s.GaveUp, s.Refused = int(c.ends[GaveUp].Swap(0)), int(c.ends[Refused].Swap(0))
	s.Missed = int(c.ends[Missed].Swap(0)) + s.GaveUp
	s.Worked = time.Duration(c.worked.Swap(0))
	s.Ended, s.Shed = int(c.ends[InTime].Swap(0))+s.Missed, int(c.ends[shed].Swap(0))
	s.UnderWay, s.HeavyKeys = int(max(c.underWay.Load(), 0)), c.cfg.HeavyKeys()
	c.ticked = at
	c.limits.Store(c.pacer.Tick(s))
}
