//go:build sabotage

package protocol

import "os"

var staysAway = os.Getenv("SLICER_SABOTAGE") == "no-return"
