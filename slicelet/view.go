package slicelet

import (
	"sort"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/subscriber"
)

// view is what this incarnation owns at one moment. It never changes; the
// request path reads the newest one without a lock.
type view struct {
	own *layout
	// token has one value a slice of own: that of all its keys, or mixed.
	token []assignment.Generation
	runs  []run
	// epoch is another when ownership before and after cannot be compared: tokens
	// of different epochs are never the same.
	epoch uint64

	a   *assignment.Assignment // that this is a view of, nil if there is none
	pos int                    // of this task in its table, if mine
	// mine: a names this incarnation. Provisional: it does not, but nobody who
	// could is alive (see next).
	mine, provisional bool
	// ever: an assignment has named this incarnation.
	ever bool
}

const (
	// mixed stands for the tokens of a slice whose keys have different ones.
	mixed assignment.Generation = -2
	// provisional ownership has no generation since which it would be true.
	provisionalToken assignment.Generation = -1
)

func emptyView() *view { return &view{own: newLayout(nil)} }

// next returns the view that follows v when a subscriber's state is s; v itself
// if nothing changes.
//
// An assignment that names this incarnation counts. Besides, in affinity mode a
// task that was restarted while Slicer is dead goes on with the placement of its
// predecessor, if that had the same name and address: clients will ask it anyway.
// This ends with the first assignment that a Distributor sends.
func (v *view) next(s *subscriber.State, me assignment.Task) *view {
	a := s.Assignment
	if a == nil {
		return v
	}
	n := &view{a: a, epoch: v.epoch, ever: v.ever}
	if pos, ok := a.Position(me.Name); ok && s.Status.Mode != assignment.Consistent {
		t := a.Task(pos)
		n.pos, n.mine = pos, t.Incarnation == me.Incarnation
		n.provisional = !n.mine && !v.ever && t.Address == me.Address && s.Status.Mode == assignment.Affinity &&
			s.Source != subscriber.Distributor && (s.Alone || v.provisional)
	}
	if a == v.a && n.mine == v.mine && n.provisional == v.provisional {
		return v
	}
	switch {
	case n.mine:
		n.ever = true
		if v.mine && v.a.StoreID() == a.StoreID() && v.a.Generation() < a.Generation() {
			n.runs = advance(v.runs, v.a.Generation(), a, n.pos)
		} else {
			n.epoch++
			n.runs = advance(nil, 0, a, n.pos)
		}
	case n.provisional:
		for s, replicas := range a.All() {
			if replicas.Has(n.pos) {
				n.runs = extend(n.runs, run{s, provisionalToken})
			}
		}
	}
	n.build(v.own)
	return n
}

// build fills in what the request path reads. The layout of the view before is
// kept if it fits: when only others' slices have moved, metering goes on as it is.
func (v *view) build(before *layout) {
	var slices []assignment.Slice
	if v.mine || v.provisional {
		for s, replicas := range v.a.All() {
			if replicas.Has(v.pos) {
				slices = append(slices, s)
			}
		}
	}
	if v.own = before; !before.is(slices) {
		v.own = newLayout(slices)
	}
	v.token = make([]assignment.Generation, len(slices))
	r := 0
	for i, s := range slices {
		for v.runs[r].End <= s.Start {
			r++
		}
		v.token[i] = v.runs[r].token
		if v.runs[r].End < s.End {
			v.token[i] = mixed
		}
	}
}

// tokenOf is the token of a key of the i-th slice.
func (v *view) tokenOf(i int, k assignment.SliceKey) assignment.Generation {
	if t := v.token[i]; t != mixed {
		return t
	}
	r := sort.Search(len(v.runs), func(r int) bool { return v.runs[r].End > k })
	return v.runs[r].token
}
