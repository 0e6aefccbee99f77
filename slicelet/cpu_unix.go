//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package slicelet

import (
	"syscall"
	"time"
)

// processCPU is how long this process has been busy, user and system together.
func processCPU() (time.Duration, bool) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, false
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), true
}
