//go:build linux && !cgo

package lease

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Boottime reads CLOCK_BOOTTIME: the time since the machine started, through
// suspend and whatever happens to the wall clock. Linux only. A program built
// with cgo reads it without a system call, another one with.
func Boottime() time.Duration {
	var ts unix.Timespec
	// A raw call, since it never blocks: the scheduler need not be told. It cannot
	// fail: the clock is older than the oldest kernel that Go runs on.
	_, _, _ = unix.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_BOOTTIME, uintptr(unsafe.Pointer(&ts)), 0)
	return time.Duration(ts.Nano())
}
