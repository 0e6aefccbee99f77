//go:build linux && cgo

package lease

/*
#include <time.h>

// The C library reads the clock in the page that the kernel shares with every
// process (vDSO), a fraction of what a system call costs.
static long long slicer_boottime(void) {
	struct timespec t;
	clock_gettime(CLOCK_BOOTTIME, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

#cgo noescape slicer_boottime
#cgo nocallback slicer_boottime
*/
import "C"

import "time"

// Boottime reads CLOCK_BOOTTIME: the time since the machine started, through
// suspend and whatever happens to the wall clock. Linux only. A program built
// with cgo reads it without a system call, another one with.
func Boottime() time.Duration { return time.Duration(C.slicer_boottime()) }
