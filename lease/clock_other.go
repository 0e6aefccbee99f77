//go:build !linux

package lease

import (
	"errors"
	"time"
)

var started = time.Now()

// Boottime is the time since this process started. On systems other than Linux
// it may stop while the machine is suspended, so no reader starts there.
func Boottime() time.Duration { return time.Since(started) }

// checkClock reports whether deadlines can be trusted here.
func checkClock() error {
	return errors.New("consistent mode needs a clock that runs through suspend, CLOCK_BOOTTIME of Linux")
}
