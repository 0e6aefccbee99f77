package admission

import (
	"runtime"
	"sync/atomic"
	"time"
)

// cpuEvery is how often the CPU time is read at most, which costs about a microsecond.
const cpuEvery = time.Millisecond

// cpu is the CPU time of the process, of each of the processors that it may use.
type cpu struct {
	read func() (time.Duration, bool)
	due  atomic.Int64 // when it is read again
	last atomic.Int64 // what was read
	told time.Duration
}

// computed is what the process has computed, as far as is known at a time.
func (c *cpu) computed(at time.Duration) (time.Duration, bool) {
	if c.read == nil {
		return 0, false
	}
	if due(&c.due, at, cpuEvery) {
		if used, ok := c.read(); ok {
			c.last.Store(int64(used) / int64(runtime.GOMAXPROCS(0)))
		}
	}
	last := c.last.Load()
	return time.Duration(last), last > 0
}

// since is what it has computed since since was called last; 0 if that is not known.
func (c *cpu) since(at time.Duration) time.Duration {
	now, _ := c.computed(at)
	was := c.told
	c.told = now
	if was == 0 {
		return 0
	}
	return max(now-was, 0)
}
