//go:build sabotage

package lease

import "os"

var (
	noDeadline = os.Getenv("SLICER_SABOTAGE") == "no-deadline"
	noBridge   = os.Getenv("SLICER_SABOTAGE") == "no-bridge"
)
