// Package boottime reads CLOCK_BOOTTIME by a system call. What judges leases takes it rather
// than lease.Boottime, which is to be judged too and may err by some microseconds, more
// than lies between what two processes do.
package boottime

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now is the same in all processes and network namespaces of a machine.
func Now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(err)
	}
	return time.Duration(ts.Nano())
}
