package lease_test

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slicer-project/slicer/lease"
)

// TestBoottime holds the clock of deadlines to what the kernel calls CLOCK_BOOTTIME.
// On a machine that was never suspended CLOCK_MONOTONIC reads the same: the system
// test runs this one where the two differ.
func TestBoottime(t *testing.T) {
	before, now, after := kernel(t), lease.Boottime(), kernel(t)
	if now < before || now > after {
		t.Errorf("Boottime is %s, CLOCK_BOOTTIME %s before and %s after", now, before, after)
	}
}

func kernel(t *testing.T) time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		t.Fatal(err)
	}
	return time.Duration(ts.Nano())
}
