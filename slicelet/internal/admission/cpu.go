package admission

import (
	"runtime"
	"sync/atomic"
	"time"
)

// cpuEvery is how often the CPU time is read at most, and cpuLately how often when a probe begins:
// a reading takes 2 us, and holds up what the process does on other processors. A thousand a second
// made an empty RPC a twentieth dearer (BenchmarkHealthy), and hardly any probe waits for so long
// that its reading counts. One that is older only makes what it waits for look longer, by what the
// process has computed since.
const (
	cpuEvery  = time.Millisecond
	cpuLately = 10 * time.Millisecond
)

// cpu is the CPU time of the process, of each of the processors that it may use.
type cpu struct {
	read func() (time.Duration, bool)
	at   atomic.Int64 // when it was read
	last atomic.Int64 // what was read
	told time.Duration
}

// computed is what the process has computed, as far as is known at a time by a reading that is at most
// so old.
func (c *cpu) computed(at, old time.Duration) (time.Duration, bool) {
	if c.read == nil {
		return 0, false
	}
	if was := c.at.Load(); (at-time.Duration(was)).Abs() >= old && c.at.CompareAndSwap(was, int64(at)) {
		if used, ok := c.read(); ok {
			c.last.Store(int64(used) / int64(runtime.GOMAXPROCS(0)))
		}
	}
	last := c.last.Load()
	return time.Duration(last), last > 0
}

// since is what it has computed since since was called last; 0 if that is not known.
func (c *cpu) since(at time.Duration) time.Duration {
	now, _ := c.computed(at, cpuEvery)
	was := c.told
	c.told = now
	if was == 0 {
		return 0
	}
	return max(now-was, 0)
}
