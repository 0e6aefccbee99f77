//go:build sabotage

package distributor

import "os"

var oneDelta = os.Getenv("SLICER_SABOTAGE") == "wrong-base"
