//go:build sabotage

package membership

import (
	"os"
	"time"
)

var (
	lateRevives = os.Getenv("SLICER_SABOTAGE") == "late-report"
	timeouts    = map[bool]time.Duration{false: 1, true: 12}[os.Getenv("SLICER_SABOTAGE") == "long-silence"]
	neverThaws  = os.Getenv("SLICER_SABOTAGE") == "no-thaw"
)
