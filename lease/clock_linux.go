package lease

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// checkClock reports whether deadlines can be trusted here.
func checkClock() error {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return fmt.Errorf("consistent mode needs CLOCK_BOOTTIME: %w", err)
	}
	return nil
}
