package admission

import (
	"runtime"
	"slices"
	"time"
)

// probe is for the first n requests, the last of which was admitted at a time.
type probe struct {
	n        int64
	at       time.Duration
	computed time.Duration // by then
	alone    bool
	ran      bool
}

// probe finds out when the first n requests have been started, the last of which was
// admitted at that time. alone: no goroutine is started after the probe's for a request, so
// that it has to go behind those that are ready by itself, to where the scheduler looks
// seldom while there are others: it may run much later than the request.
func (c *Controller) probe(n int64, at time.Duration, alone bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.alive++
	p := c.awaitLocked(n, at, alone)
	c.running.Go(func() {
		if alone {
			runtime.Gosched()
		}
		c.follow(p)
	})
}

// awaitLocked adds a probe that has not run.
func (c *Controller) awaitLocked(n int64, at time.Duration, alone bool) *probe {
	p := &probe{n: n, at: at, alone: alone}
	p.computed, _ = c.cpu.computed(at, cpuLately)
	c.probes = append(c.probes, p)
	c.tellFirstLocked()
	return p
}

// tellFirstLocked brings first and open up to date.
func (c *Controller) tellFirstLocked() {
	var first probe
	for _, p := range c.probes {
		if !p.alone && !p.ran {
			first = *p
			break
		}
	}
	c.first.computed.Store(int64(first.computed))
	c.first.at.Store(int64(first.at))
	c.open.Store(int64(len(c.probes)))
}

// follow is what a probe does when it runs. The last one goes on until all requests have
// been started that have been admitted.
func (c *Controller) follow(p *probe) {
	for {
		now := time.Since(c.epoch)
		c.mu.Lock()
		c.ranLocked(p, now)
		waiting := c.admitted.Load() > c.started.Load()
		if on := waiting && c.alive == 1 && !c.closed; !on {
			c.alive--
			c.mu.Unlock()
			return
		}
		p = c.awaitLocked(c.admitted.Load(), now, true) // for the rest there is none
		c.mu.Unlock()
		runtime.Gosched()
	}
}

// ranLocked takes that a probe has run. It counts when all before it have: another
// processor may be further, whose goroutines were admitted later. Those that go alone are
// not waited for.
func (c *Controller) ranLocked(p *probe, now time.Duration) {
	p.ran = true
	upTo := 0
	for i, p := range c.probes {
		if p.ran {
			upTo = i + 1
		} else if !p.alone {
			break
		}
	}
	before := c.started.Load()
	n, from := before, c.last
	for _, p := range c.probes[:upTo] {
		if !c.behind && n == before {
			from = p.at
		}
		n = max(n, p.n)
	}
	c.probes = slices.Delete(c.probes, 0, upTo)
	c.tellFirstLocked()
	if n > before {
		c.seen.Busy += max(now-from, 0)
		c.seen.Starts += int(n - before)
		c.started.Store(n)
		c.last, c.behind = now, c.admitted.Load() > n
	}
}

// waitedLocked counts how long those have waited by now that still wait.
func (c *Controller) waitedLocked(at time.Duration) {
	if len(c.probes) == 0 {
		return
	}
	from := c.last
	if !c.behind {
		if from = time.Duration(c.first.at.Load()); from == 0 {
			return
		}
	}
	if at > from {
		c.seen.Busy += at - from
		c.last, c.behind = at, true
	}
}
