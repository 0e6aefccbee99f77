//go:build sabotage

package fanout

import "os"

var (
	oneDelta    = os.Getenv("SLICER_SABOTAGE") == "wrong-base"
	alwaysHeard = os.Getenv("SLICER_SABOTAGE") == "unheard"
)
