package clerkgrpc

import (
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
	for _, c := range b.conns {
		// What waits for backoff stays wanted until gRPC says that it is idle again.
		if c.wanted.Load() && (c.sub == nil || c.state == connectivity.Idle) {
			c.wanted.Store(false)
			b.connect(c, now)
			changed = true
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

// sweep closes a connection that has not been used for a while. It reports whether it
// has.
func (b *keyBalancer) sweep(c *conn) bool {
	c.age()
	if c.warm || c.sub == nil || c.used.Swap(false) {
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
