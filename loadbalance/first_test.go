package loadbalance_test

import (
	"testing"

	"github.com/slicer-project/slicer/loadbalance"
)

// The first round of a job says whose each slice is, in memory for just that: doubled again and
// again it would take three times as much while the round lasts.
func TestFirstDecisions(t *testing.T) {
	cfg, tasks := config(1, 10), fleet(100)
	out := loadbalance.Rebalance(loadbalance.Input{Config: cfg, Tasks: tasks})
	if n, room := len(out.Decisions), cap(out.Decisions); n == 0 || room > n+n/8 {
		t.Errorf("%d decisions are in memory for %d", n, room)
	}
}
