//go:build sabotage

package membership

import "os"

var lateRevives = os.Getenv("SLICER_SABOTAGE") == "late-report"
