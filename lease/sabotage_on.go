//go:build sabotage

package lease

import "os"

// noDeadline has beliefs never look at the clock.
var noDeadline = os.Getenv("SLICER_SABOTAGE") == "no-deadline"
