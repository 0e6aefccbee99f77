package assigner

import (
	"testing"

	"github.com/slicer-project/slicer/lease"
)

// TestNotAcross goes through a change from 5 to 7 with three readers, of which one is late
// each time, and through what is before and after it.
func TestNotAcross(t *testing.T) {
	state := func(guard lease.Guard, bridge lease.Bridge, guardOnly, bridgeOnly int) lease.State {
		return lease.State{Records: lease.Records{Guard: guard, Bridge: bridge}, GuardOnly: guardOnly, BridgeOnly: bridgeOnly}
	}
	for _, c := range []struct {
		what          string
		st            lease.State
		guard, bridge uint32
	}{
		{"no change: all hold the guard alone", state(lease.Guard{Generation: 5, Open: true}, lease.Bridge{}, 3, 0), 0, 0},
		{"two hold the bridge as well", state(lease.Guard{Generation: 5, Open: true}, lease.Bridge{From: 5, To: 7, Open: true}, 1, 0), 1, 0},
		{"two have let the guard go", state(lease.Guard{Generation: 5}, lease.Bridge{From: 5, To: 7, Open: true}, 1, 2), 1, 0},
		{"two hold the new guard, one of them has joined since", state(lease.Guard{Generation: 7, Open: true}, lease.Bridge{From: 5, To: 7, Open: true}, 1, 1), 0, 1},
		{"two have let the bridge go", state(lease.Guard{Generation: 7, Open: true}, lease.Bridge{From: 5, To: 7}, 2, 1), 0, 1},
		{"after it", state(lease.Guard{Generation: 7, Open: true}, lease.Bridge{}, 3, 0), 0, 0},
	} {
		if guard, bridge := notAcross(c.st); guard != c.guard || bridge != c.bridge {
			t.Errorf("%s: %d and %d are not across, want %d and %d", c.what, guard, bridge, c.guard, c.bridge)
		}
	}
}
