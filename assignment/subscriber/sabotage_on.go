//go:build sabotage

package subscriber

import "os"

var staysAway = os.Getenv("SLICER_SABOTAGE") == "no-return"
