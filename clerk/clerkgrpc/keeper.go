package clerkgrpc

import (
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/clerk"
)

const (
	// patience is how long a task has to accept a connection before RPCs go to
	// others that are fit: one that vanished without a word answers nothing.
	patience = time.Second
	// sweeps is how often in IdleClose connections are looked at for whether they
	// were used: one is closed after IdleClose, or up to a quarter more.
	sweeps = 4
	// warmWithin is how soon a client that was inactive connects to all tasks of its subset, at a
	// time by chance: what has woken it may have woken others. One that sends more than
	// warmAfter RPCs until then connects at once.
	warmWithin = 900 * time.Millisecond
	warmAfter  = 8
)

// keep does what time and picks ask for, until the balancer ends.
func (b *keyBalancer) keep() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(b.tend(time.Now()))
		select {
		case <-b.wake:
		case <-timer.C:
		case <-b.stop:
			return
		}
	}
}

// tend returns when to look again.
func (b *keyBalancer) tend(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.table == nil || b.ended {
		return time.Hour
	}
	every := b.config.IdleClose / sweeps
	if b.swept.IsZero() {
		b.swept = now
	}
	sweep := now.Sub(b.swept) >= every
	if sweep {
		b.swept = now
	}
	next, changed := every-now.Sub(b.swept), false
	if sweep && b.retire() {
		changed = true
	}
	warm := !b.warmAt.IsZero() && (!now.Before(b.warmAt) || b.few.Load() <= 0)
	if warm {
		b.warmAt, changed = time.Time{}, true
		b.few.Store(0)
	} else if !b.warmAt.IsZero() {
		next = min(next, b.warmAt.Sub(now))
	}
	for _, c := range b.conns {
		// What waits for backoff stays wanted until gRPC says that it is idle again.
		if c.wanted.Load() && (c.sub == nil || c.state == connectivity.Idle) {
			c.wanted.Store(false)
			b.connect(c, now)
			changed = true
			if b.inactive {
				after := rand.N(warmWithin)
				b.inactive, b.quiet, b.warmAt = false, 0, now.Add(after)
				b.few.Store(warmAfter)
				next = min(next, after)
			}
		}
		if warm && c.warm {
			b.heat(c, now)
		}
		if c.state == connectivity.Connecting && !c.failing {
			if left := patience - now.Sub(c.since); left > 0 {
				next = min(next, left)
			} else {
				c.failing, changed = true, true
			}
		}
		if sweep && b.sweep(c) {
			changed = true
		}
		if changed {
			c.follow()
		}
	}
	if changed {
		b.publish()
	}
	return max(next, time.Millisecond)
}

// retire closes all connections if nothing has been sent to any task for a while: which
// tasks there are, and which are healthy, is known from the control plane. It reports whether it
// has.
func (b *keyBalancer) retire() bool {
	for _, c := range b.conns {
		if c.used.Load() || c.outstanding.Load() > 0 {
			b.quiet = 0
			return false
		}
	}
	if b.quiet++; b.quiet < sweeps+1 || b.inactive {
		return false
	}
	b.inactive, b.warmAt = true, time.Time{}
	for _, c := range b.conns {
		b.shut(c, clerk.CloseInactive)
		c.failing = false
		c.follow()
	}
	return true
}

// sweep closes a connection that has not been used for a while. It reports whether it
// has.
func (b *keyBalancer) sweep(c *conn) bool {
	c.age()
	c.told.Store(nil)
	used := c.used.Swap(false)
	if c.warm || c.sub == nil || used {
		c.idle = 0
		return false
	}
	dead := c.task.State == assignment.TaskDead
	if c.idle++; c.idle < sweeps+1 && !dead {
		return false
	}
	why := clerk.CloseIdle
	switch {
	case dead:
		why = clerk.CloseTaskGone
	case c.left:
		why = clerk.CloseLeftSubset
	}
	b.shut(c, why)
	c.failing = false
	return true
}
