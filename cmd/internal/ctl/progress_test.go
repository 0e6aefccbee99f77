package ctl

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

func TestProgressLines(t *testing.T) {
	const clerk, slicelet = slicerv1.Role_ROLE_CLERK, slicerv1.Role_ROLE_SLICELET
	v := newProgress(&slicerv1.Progress{
		Holders: []*slicerv1.Holders{
			{Role: clerk, Generation: 9, Subscribers: 9997}, {Role: clerk, Generation: 8, Subscribers: 2}, {Role: clerk, Subscribers: 1},
			{Role: slicelet, Generation: 9, Subscribers: 100},
		},
		Spreads: []*slicerv1.RoleSpread{
			{Role: clerk, Generation: 9, Reached: 9997, Waiting: 2, P50Us: 41_230, P99Us: 180_010, LastUs: -1},
			{Role: slicelet, Generation: 9, Reached: 100, P50Us: 900, P99Us: 1200, LastUs: 1_204_000},
		},
		Slow: []*slicerv1.SlowSubscriber{
			{Name: "clerk c7", DistributorId: "d1", Generation: 8, WaitingMs: 12_000}, {Name: "clerk c8"},
		},
		SlowTotal: 3,
	})
	want := []string{
		"clerks: 9997 of 10000 hold this generation, 2 hold 8, 1 hold none or an older one; from the write to 50% 41.2ms, to 99% 180ms, to the last not yet",
		"slicelets: 100 of 100 hold this generation; from the write to 50% 900µs, to 99% 1.2ms, to the last 1.2s",
		"slow: clerk c7 at d1, holds generation 8, has not acknowledged for 12s",
		"slow: clerk c8, holds nothing, has not acknowledged for 0s",
		"slow: 1 more",
	}
	if diff := cmp.Diff(want, v.lines(9)); diff != "" {
		t.Error(diff)
	}
	if v := newProgress(nil); v != nil {
		t.Errorf("from a server that says nothing: %v", v)
	}
	if v := newProgress(&slicerv1.Progress{Spreads: []*slicerv1.RoleSpread{nil}, Slow: []*slicerv1.SlowSubscriber{nil}}); strings.Contains(strings.Join(v.lines(0), ""), "%!") {
		t.Error(v.lines(0))
	}
}
