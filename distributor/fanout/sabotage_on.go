//go:build sabotage

package fanout

import "os"

var (
	oneDelta           = os.Getenv("SLICER_SABOTAGE") == "wrong-base"
	alwaysAcknowledged = os.Getenv("SLICER_SABOTAGE") == "unacknowledged"
	keepClaims         = os.Getenv("SLICER_SABOTAGE") == "stale-claims"
	wholeShares        = os.Getenv("SLICER_SABOTAGE") == "whole-shares"
)
