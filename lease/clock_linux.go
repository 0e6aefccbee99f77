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

// checked is an anchor that is shared, and when it was last found to hold.
type checked struct {
	anchor
	at atomic.Int64 // on the monotonic clock
}

func newChecked(a anchor) *checked {
	c := &checked{anchor: a}
	c.at.Store(int64(a.mono))
	return c
}

// soon returns CLOCK_BOOTTIME at a reading of the monotonic clock alone. It reports false
// unless the anchor was found to hold near that: there is no time for a suspend between.
func (c *checked) soon(mono time.Duration) (time.Duration, bool) {
	return mono + c.boot, apart(mono, time.Duration(c.at.Load())) <= near
}

// check is boottime, and notes that the anchor holds if it does and the monotonic clock was
// read near that before: then both clocks of now were read at one time.
func (c *checked) check(before time.Duration, now reading) (time.Duration, bool) {
	boot, ok := c.boottime(now)
	if ok && apart(before, now.mono) <= near {
		c.at.Store(int64(now.mono))
	}
	return boot, ok
}

var newestAnchor atomic.Pointer[checked]

// fine says that the monotonic clock goes on in steps that are small beside near. Without
// that it tells nothing alone.
var fine = func() bool {
	var step unix.Timespec
	return unix.ClockGetres(unix.CLOCK_MONOTONIC, &step) == nil && time.Duration(step.Nano()) <= near/10
}()

// Boottime reads CLOCK_BOOTTIME, the time since the machine started, through suspend and
// whatever happens to the wall clock, to within 20 microseconds; of two readings the
// later one may be the lower one by 40. Linux only. It is safe for concurrent use. About
// once a millisecond it makes a system call and allocates 32 bytes, otherwise only after the wall clock
// was set or a thread was stopped; the package's documentation says why that is enough.
func Boottime() time.Duration {
	mono := time.Since(start)
	a := newestAnchor.Load()
	if a != nil && fine {
		if boot, ok := a.soon(mono); ok {
			return boot
		}
	}
	now := read()
	if a != nil {
		if boot, ok := a.check(mono, now); ok {
			return boot
		}
	}
	boot, err := kernelBoottime()
	if err != nil { // the clock is older than the oldest kernel that Go runs on
		panic(err)
	}
	if a, ok := newAnchor(now, boot, read()); ok {
		newestAnchor.Store(newChecked(a))
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
