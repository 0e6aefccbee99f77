//go:build sabotage

package generate

import "os"

var deafToFreeze = os.Getenv("SLICER_SABOTAGE") == "no-freeze"
