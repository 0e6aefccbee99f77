package lease

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Boottime reads CLOCK_BOOTTIME: the time since the machine started, through
// suspend and whatever happens to the wall clock. Linux only.
func Boottime() time.Duration {
	var ts unix.Timespec
	// It cannot fail: the clock exists since Linux 2.6.39, which Go needs more than.
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts)
	return time.Duration(ts.Nano())
}

// checkClock says whether deadlines can be trusted here.
func checkClock() error {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return fmt.Errorf("consistent mode needs CLOCK_BOOTTIME: %w", err)
	}
	return nil
}
