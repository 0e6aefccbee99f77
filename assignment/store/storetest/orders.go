package storetest

import (
	"fmt"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
)

// Stamp is one that has everything.
func Stamp() store.Stamp {
	return store.Stamp{Identity: "spiffe://corp/user/ada", Who: "ada", Peer: "10.0.0.9:4711", When: time.UnixMilli(1_000_000_000_000).UTC(), Why: "it is hot, \"very\""}
}

// Overrides are overrides of a version that have everything.
func Overrides(version int64) store.Overrides {
	s := Stamp()
	return store.Overrides{
		Version: version, Thaws: 3,
		Freeze: &store.Freeze{Stamp: s, Order: version, Until: s.When.Add(time.Hour)},
		Pins: []store.Pin{
			{Stamp: s, Order: 1, Slice: assignment.Slice{Start: 0, End: 1 << 60}, Task: "task-1"},
			{Stamp: s, Order: 1, Slice: assignment.Slice{Start: 1 << 60, End: assignment.KeyspaceEnd}, Task: "task-2"},
		},
		Exclude:  []store.Exclusion{{Stamp: s, Order: 1, Task: "task-3"}, {Stamp: s, Order: version, Task: "task-4"}},
		Drains:   []store.Drain{{Stamp: s, Order: 1, Task: "task-5", Incarnation: 5}, {Stamp: s, Order: version, Task: "task-6", Incarnation: 1 << 63}},
		Rollback: &store.Rollback{Stamp: s, Order: version, Generation: 7},
	}
}

// Order is the entry of the order with a number.
func Order(number int64) store.Entry {
	return store.Entry{Order: number, Action: fmt.Sprintf("order %d", number), Generation: 5, Assigner: "a1", Stamp: Stamp()}
}

// Entry is the entry of a generation that was decided under an order.
func Entry(a *assignment.Assignment, order int64) store.Entry {
	s := Stamp()
	s.Who, s.Why = "", "load"
	return store.Entry{
		Order: order, Generation: a.Generation(), Previous: a.Previous(), Assigner: "a1", Stamp: s,
		KeyChurn: .25, LoadChurn: .5, ImbalanceBefore: 2, ImbalanceAfter: 1.5,
		Decisions: []store.Decision{
			{Kind: "move", Reason: "hottest task", Slice: a.Slice(0), From: "task-1", To: "task-2", Benefit: 3, KeyChurn: .25, LoadChurn: .5},
			{Kind: "skip", Reason: "move budget spent", From: "task-1"},
		},
		LeftOut:   2,
		Penalties: []store.Penalty{{Task: "task-1", Amount: 1.5}, {Task: "task-2", Amount: 3.25, Damped: true}},
	}
}
