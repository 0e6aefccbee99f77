package store

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/slicer-project/slicer/assignment"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// OverridesToProto never fails.
func OverridesToProto(c Overrides) *slicerv1.Overrides {
	m := &slicerv1.Overrides{Version: c.Version, Thaws: c.Thaws}
	if f := c.Freeze; f != nil {
		m.Freeze = &slicerv1.Freeze{Stamp: StampToProto(f.Stamp), Order: f.Order, UntilUnixMs: toMillis(f.Until)}
	}
	for _, p := range c.Pins {
		m.Pins = append(m.Pins, PinToProto(p))
	}
	for _, x := range c.Exclude {
		m.Excluded = append(m.Excluded, &slicerv1.Exclusion{Task: x.Task, Order: x.Order, Stamp: StampToProto(x.Stamp)})
	}
	for _, d := range c.Drains {
		m.Drains = append(m.Drains, &slicerv1.Drain{Task: d.Task, Incarnation: d.Incarnation, Order: d.Order, Stamp: StampToProto(d.Stamp)})
	}
	if r := c.Rollback; r != nil {
		m.Rollback = &slicerv1.Rollback{Generation: int64(r.Generation), Order: r.Order, Stamp: StampToProto(r.Stamp)}
	}
	return m
}

// PinToProto never fails.
func PinToProto(p Pin) *slicerv1.Pin {
	return &slicerv1.Pin{Start: uint64(p.Slice.Start), End: uint64(p.Slice.End), Task: p.Task, Order: p.Order, Stamp: StampToProto(p.Stamp)}
}

// OverridesFromProto validates what it reads.
func OverridesFromProto(m *slicerv1.Overrides) (Overrides, error) {
	// What is beyond the bounds is not gone through.
	if len(m.GetPins()) > MaxPins || len(m.GetExcluded()) > MaxExcluded || len(m.GetDrains()) > MaxDrains {
		return Overrides{}, fmt.Errorf("%d pins, %d excluded and %d drained tasks", len(m.GetPins()), len(m.GetExcluded()), len(m.GetDrains()))
	}
	c := Overrides{Version: m.GetVersion(), Thaws: m.GetThaws()}
	if f := m.GetFreeze(); f != nil {
		c.Freeze = &Freeze{Stamp: stampFrom(f.GetStamp()), Order: f.GetOrder(), Until: fromMillis(f.GetUntilUnixMs())}
	}
	for _, p := range m.GetPins() {
		c.Pins = append(c.Pins, Pin{Stamp: stampFrom(p.GetStamp()), Order: p.GetOrder(), Slice: slice(p.GetStart(), p.GetEnd()), Task: p.GetTask()})
	}
	for _, x := range m.GetExcluded() {
		c.Exclude = append(c.Exclude, Exclusion{Stamp: stampFrom(x.GetStamp()), Order: x.GetOrder(), Task: x.GetTask()})
	}
	for _, d := range m.GetDrains() {
		c.Drains = append(c.Drains, Drain{Stamp: stampFrom(d.GetStamp()), Order: d.GetOrder(), Task: d.GetTask(), Incarnation: d.GetIncarnation()})
	}
	if r := m.GetRollback(); r != nil {
		c.Rollback = &Rollback{Stamp: stampFrom(r.GetStamp()), Order: r.GetOrder(), Generation: assignment.Generation(r.GetGeneration())}
	}
	if err := c.Validate(); err != nil {
		return Overrides{}, err
	}
	return c, nil
}

func slice(start, end uint64) assignment.Slice {
	return assignment.Slice{Start: assignment.SliceKey(start), End: assignment.SliceKey(end)}
}

// StampToProto never fails.
func StampToProto(s Stamp) *slicerv1.Stamp {
	return &slicerv1.Stamp{Identity: s.Identity, Who: s.Who, Peer: s.Peer, UnixMs: toMillis(s.When), Why: s.Why}
}

func stampFrom(m *slicerv1.Stamp) Stamp {
	return Stamp{Identity: m.GetIdentity(), Who: m.GetWho(), Peer: m.GetPeer(), When: fromMillis(m.GetUnixMs()), Why: m.GetWhy()}
}

// 0 milliseconds stand for no time.
func toMillis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func fromMillis(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// EntryToProto never fails.
func EntryToProto(e Entry) *slicerv1.HistoryEntry {
	m := &slicerv1.HistoryEntry{
		Order: e.Order, Action: e.Action, Generation: int64(e.Generation), Previous: int64(e.Previous), AssignerId: e.Assigner,
		Stamp: StampToProto(e.Stamp), KeyChurn: e.KeyChurn, LoadChurn: e.LoadChurn,
		Imbalance: e.ImbalanceBefore, ImbalanceAfter: e.ImbalanceAfter, LeftOut: uint32(e.LeftOut),
	}
	for _, d := range e.Decisions {
		m.Decisions = append(m.Decisions, &slicerv1.Decision{
			Kind: d.Kind, Reason: d.Reason, Start: uint64(d.Slice.Start), End: uint64(d.Slice.End), From: d.From, To: d.To,
			Benefit: d.Benefit, KeyChurn: d.KeyChurn, LoadChurn: d.LoadChurn,
		})
	}
	for _, p := range e.Penalties {
		m.Penalties = append(m.Penalties, &slicerv1.Penalty{Task: p.Task, Amount: p.Amount, Damped: p.Damped})
	}
	return m
}

// EntryFromProto validates what it reads.
func EntryFromProto(m *slicerv1.HistoryEntry) (Entry, error) {
	if n := len(m.GetDecisions()); n > maxDecisions {
		return Entry{}, &assignment.FieldError{Field: "decisions", Value: n, Allowed: fmt.Sprintf("at most %d", maxDecisions)}
	}
	e := Entry{
		Order: m.GetOrder(), Action: m.GetAction(), Generation: assignment.Generation(m.GetGeneration()), Previous: assignment.Generation(m.GetPrevious()),
		Assigner: m.GetAssignerId(), Stamp: stampFrom(m.GetStamp()), KeyChurn: m.GetKeyChurn(), LoadChurn: m.GetLoadChurn(),
		ImbalanceBefore: m.GetImbalance(), ImbalanceAfter: m.GetImbalanceAfter(), LeftOut: int(min(m.GetLeftOut(), math.MaxInt32)),
	}
	for _, d := range m.GetDecisions() {
		e.Decisions = append(e.Decisions, Decision{
			Kind: d.GetKind(), Reason: d.GetReason(), Slice: slice(d.GetStart(), d.GetEnd()), From: d.GetFrom(), To: d.GetTo(),
			Benefit: d.GetBenefit(), KeyChurn: d.GetKeyChurn(), LoadChurn: d.GetLoadChurn(),
		})
	}
	for _, p := range m.GetPenalties()[:min(len(m.GetPenalties()), MaxPenalties)] {
		e.Penalties = append(e.Penalties, Penalty{Task: p.GetTask(), Amount: p.GetAmount(), Damped: p.GetDamped()})
	}
	if err := e.Validate(); err != nil {
		return Entry{}, err
	}
	return e, nil
}

// SortHistory brings entries into the order in which things were done: an order
// comes before the generations that were decided under it.
func SortHistory(all []Entry) {
	kind := func(e *Entry) int {
		if e.Action != "" {
			return 0
		}
		return 1
	}
	slices.SortFunc(all, func(x, y Entry) int {
		return cmp.Or(cmp.Compare(x.Order, y.Order), cmp.Compare(kind(&x), kind(&y)), cmp.Compare(x.Generation, y.Generation))
	})
}
