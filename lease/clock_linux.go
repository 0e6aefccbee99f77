package lease

import (
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// near is how far apart readings of a clock may be that count as one. Boottime
	// errs by at most twice as much.
	near = 10 * time.Microsecond
	// anchorAge is for how long an anchor is used, on the monotonic clock.
	anchorAge = time.Millisecond
)

// reading is what time.Now says: the monotonic clock, and by how much the wall clock
// is ahead of it. The latter changes when the wall clock is set, and when the machine
// was suspended meanwhile: the monotonic clock stands still then, the wall clock goes on.
type reading struct{ mono, wall time.Duration }

// anchor is a reading, and by how much CLOCK_BOOTTIME is ahead of the monotonic clock.
type anchor struct {
	reading
	boot time.Duration
}

// newAnchor makes an anchor of CLOCK_BOOTTIME and what was read before and after it. It
// reports false if time has passed meanwhile, or one of the clocks was set.
func newAnchor(before reading, boot time.Duration, after reading) (anchor, bool) {
	return anchor{after, boot - after.mono}, apart(before.mono, after.mono) <= near && apart(before.wall, after.wall) <= near
}

// boottime returns CLOCK_BOOTTIME at a reading. It reports false if the anchor does not say.
func (a anchor) boottime(now reading) (time.Duration, bool) {
	return now.mono + a.boot, apart(now.mono, a.mono) <= anchorAge && apart(now.wall, a.wall) <= near
}

func apart(a, b time.Duration) time.Duration { return max(a-b, b-a) }

// start is where the monotonic clock is counted from.
var start = time.Now()

func read() reading {
	now := time.Now()
	mono := now.Sub(start)
	return reading{mono, time.Duration(now.UnixNano()) - mono}
}

var newestAnchor atomic.Pointer[anchor]

// Boottime reads CLOCK_BOOTTIME, the time since the machine started, through suspend and
// whatever happens to the wall clock, to within 20 microseconds; of two readings the
// later one may be the lower one by 40. Linux only. It is safe for concurrent use. About
// once a millisecond it makes a system call and allocates 24 bytes, otherwise only after the wall clock
// was set or a thread was stopped; the package's documentation says why that is enough.
func Boottime() time.Duration {
	now := read()
	if a := newestAnchor.Load(); a != nil {
		if boot, ok := a.boottime(now); ok {
			return boot
		}
	}
	boot, err := kernelBoottime()
	if err != nil { // the clock is older than the oldest kernel that Go runs on
		panic(err)
	}
	if a, ok := newAnchor(now, boot, read()); ok {
		newestAnchor.Store(&a)
	}
	return boot
}

func kernelBoottime() (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0, fmt.Errorf("consistent mode needs CLOCK_BOOTTIME: %w", err)
	}
	return time.Duration(ts.Nano()), nil
}

// checkClock reports whether deadlines can be trusted here.
func checkClock() error {
	_, err := kernelBoottime()
	return err
}
