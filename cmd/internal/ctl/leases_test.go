package ctl

import (
	"testing"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

func TestLeases(t *testing.T) {
	if newLeases(nil) != nil {
		t.Error("leases in affinity mode")
	}
	for want, c := range map[string]*slicerv1.Consistency{
		"leases not known: etcd is old":                  {Error: "etcd is old"},
		"leases: no generation is in force yet":          {Head: 5},
		"leases: guard at generation 5, open, 3 readers": {Head: 5, Guard: 5, GuardOpen: true, GuardReaders: 3, StepMs: -1},
		"leases: guard at generation 5, open, 1 reader; bridge to 7, open, 0 readers; next step: recall": {
			Head: 7, Guard: 5, GuardOpen: true, GuardReaders: 1, BridgeFrom: 5, BridgeTo: 7, BridgeOpen: true, Step: "recall", StepMs: -1},
		"leases: guard at generation 5, recalled, 2 readers, 1 of them not across yet; bridge to 7, open, 1 reader; next step: rewrite, for 2s": {
			Head: 7, Guard: 5, GuardReaders: 2, GuardOnly: 1, BridgeFrom: 5, BridgeTo: 7, BridgeOpen: true, BridgeReaders: 1, Step: "rewrite", StepMs: 2000},
	} {
		if got := newLeases(c).describe(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
