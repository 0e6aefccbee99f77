// Package admission carries an overload.Pacer out: it counts the requests of a task that
// arrive, and finds out how long they wait until a goroutine begins to work on them.
//
// When a goroutine begins cannot be observed from outside: gRPC has a hook there, a
// stats.Handler, but that makes an RPC a tenth dearer. So with an admitted request, at most
// once a millisecond, a goroutine of our own is started, a probe, just before the request's.
// Go's scheduler runs the goroutines of one processor in the order in which they became
// ready, and steals from the front, so when a probe runs, all that were admitted before it
// have begun, whatever became of them since: a request that is cancelled, malformed, or
// whose message is late does not seem to wait.
package admission

import (
	"runtime"
	"slices"
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

// Controller decides about the requests of a task. It does nothing while none arrives: what
// is due is done when one does, as a timer would have to wait behind the requests. All
// methods are safe for concurrent use. Times are since epoch.
type Controller struct {
	epoch   time.Time
	signals []func() float64

	asked  [overload.Priorities]atomic.Uint32
	limits atomic.Pointer[overload.Limits]
	counts [criticalities][verdicts]atomic.Uint64

	admitted atomic.Int64 // requests
	started  atomic.Int64 // of these, as far as is known
	first    atomic.Int64 // when the first that may wait was admitted, 0 if none
	probeAt  atomic.Int64 // when the next probe is due
	tickAt   atomic.Int64 // when the next Tick is due

	mu     sync.Mutex
	pacer  overload.Pacer
	ticked time.Duration
	last   time.Duration   // when started was found out
	behind bool            // then others were waiting
	seen   overload.Seen   // since the last Tick; Asked and Over are left out
	probes []time.Duration // that have not run, by when they were started
	alive  int             // goroutines of probes
	closed bool

	running sync.WaitGroup
}

// New returns one that has seen nothing. Signals are asked at each Tick; the largest counts
// (overload.Seen.Signal).
func New(signals ...func() float64) *Controller {
	c := &Controller{epoch: time.Now(), signals: signals}
	c.limits.Store(new(overload.Limits))
	return c
}

// Close waits for what is under way. All requests are served from then on.
func (c *Controller) Close() {
	c.mu.Lock()
	c.closed = true
	c.limits.Store(new(overload.Limits))
	c.mu.Unlock()
	c.running.Wait()
	c.first.Store(0)
}

// Admit says what is to become of a request that arrives now, and whose deadline leaves it
// so much time, 0 for none. If serve is true it is served all the same, but counted as what
// would become of it. One that is served has to be given to a goroutine at once. It
// allocates at most once a millisecond.
func (c *Controller) Admit(now time.Time, p overload.Priority, left time.Duration, serve bool) overload.Verdict {
	at := now.Sub(c.epoch)
	c.tickIfDue(at)
	p = min(p, overload.Priorities-1)
	c.asked[p].Add(1)
	v := c.limits.Load().Admit(p, c.queue(at), left)
	c.counts[p.Criticality()][v].Add(1)
	if serve {
		v = overload.Served
	}
	n := int64(0)
	if v == overload.Served {
		n = c.admitted.Add(1)
	} else {
		n = c.admitted.Load() // that some wait must not be believed for ever
	}
	if due := c.probeAt.Load(); int64(at) >= due && c.probeAt.CompareAndSwap(due, int64(at+probeEvery)) {
		c.probe(n, at)
	}
	return v
}

// queue is what waits at a time.
func (c *Controller) queue(at time.Duration) (q overload.Queue) {
	q.Len = int(max(c.admitted.Load()-c.started.Load(), 0))
	if first := c.first.Load(); first > 0 {
		q.First = max(at-time.Duration(first), 0)
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

// Count is how many requests of a criticality met with a verdict.
func (c *Controller) Count(of overload.Criticality, v overload.Verdict) uint64 {
	return c.counts[of][v].Load()
}

// probe finds out when the first n requests have been started, the last of which was
// admitted at that time.
func (c *Controller) probe(n int64, at time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.alive++
	c.probes = append(c.probes, at)
	c.first.Store(int64(c.probes[0]))
	c.running.Go(func() { c.follow(n, at) })
}

// follow is run when the first n requests have been started. The last one that runs goes on
// until all are that have been admitted.
func (c *Controller) follow(n int64, at time.Duration) {
	begun := at
	for {
		now := time.Since(c.epoch)
		c.mu.Lock()
		if before := c.started.Load(); n > before {
			from := begun
			if c.behind {
				from = c.last
			}
			c.seen.Busy += max(now-from, 0)
			c.seen.Starts += int(n - before)
			c.started.Store(n)
			c.last = now
		}
		if i := slices.Index(c.probes, at); i >= 0 {
			c.probes = slices.Delete(c.probes, i, i+1)
		}
		n = c.admitted.Load()
		c.behind = n > c.started.Load()
		if on := c.behind && c.alive == 1 && !c.closed; !on {
			c.alive--
			if c.first.Store(0); len(c.probes) > 0 {
				c.first.Store(int64(c.probes[0]))
			}
			c.mu.Unlock()
			return
		}
		// For this many wait no other probe.
		at = now
		c.probes = append(c.probes, at)
		c.first.Store(int64(c.probes[0]))
		c.mu.Unlock()
		runtime.Gosched() // behind all that are ready
	}
}

func (c *Controller) tickIfDue(at time.Duration) {
	if due := c.tickAt.Load(); int64(at) >= due && c.tickAt.CompareAndSwap(due, int64(at+overload.Tick)) {
		c.tick(at)
	}
}

// tick tells the Pacer.
func (c *Controller) tick(at time.Duration) {
	var asked [overload.Priorities]uint32
	for i := range asked {
		if c.asked[i].Load() > 0 {
			asked[i] = c.asked[i].Swap(0)
		}
	}
	full := 0.
	for _, signal := range c.signals {
		if v := signal(); v > full { // which NaN is not
			full = v
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	s := c.seen
	s.Signal = full
	c.seen = overload.Seen{}
	s.Over, s.Asked = at-c.ticked, &asked
	c.ticked = at
	c.limits.Store(c.pacer.Tick(s))
}
