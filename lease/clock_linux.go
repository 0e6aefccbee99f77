package lease

import (
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Boottime reads CLOCK_BOOTTIME: the time since the machine started, through
// suspend and whatever happens to the wall clock. Linux only.
func Boottime() time.Duration {
	var ts unix.Timespec
	// A raw call, since it never blocks: the scheduler need not be told. It cannot
	// fail: the clock is older than the oldest kernel that Go runs on.
	_, _, _ = unix.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_BOOTTIME, uintptr(unsafe.Pointer(&ts)), 0)
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
