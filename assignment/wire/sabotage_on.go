//go:build sabotage

package wire

import "os"

var anyBase = os.Getenv("SLICER_SABOTAGE") == "wrong-base"
