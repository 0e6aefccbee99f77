package slicelet

import (
	"sort"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/subscriber"
	"github.com/slicer-project/slicer/lease"
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
	// belief is what own was taken from in consistent mode: nothing is owned when it
	// is not valid. leased is set in that mode, whether or not there is a belief.
	belief *lease.Belief
	leased bool
	// reached is the newest generation that was believed in: no token was higher.
	reached assignment.Generation

	// basis is the assignment that ownership goes by, or last went by where there is no
	// belief; nil if there was none.
	basis *assignment.Assignment
	// origins are the keys that are owned, and the other tasks that owned them before.
	origins []held
	// gone are what parts have said of keys that were lost (assignment.Moves.To), newest first,
	// as far as a listener may not have been told of them: a later part does not have them.
	gone []*assignment.Assignment

	// metered is what load is counted by: the task's slices in a. It is own itself
	// when they are the same, and always in affinity mode.
	metered *layout

	a   *assignment.Assignment // the newest, nil if there is none
	pos int                    // of this task in its table, if mine
	// mine: a names this incarnation. Provisional: it does not, but no task that could is
	// alive (see place).
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

var emptyLayout = newLayout(nil)

func emptyView() *view { return &view{own: emptyLayout, metered: emptyLayout} }

// next returns the view that follows v when a subscriber's state is s and b is
// what the leases let the task believe in; v itself if nothing changes. As long as
// the mode of the job is not known the task owns nothing.
func (v *view) next(s *subscriber.State, b *lease.Belief, me assignment.Task) *view {
	n := &view{a: s.Assignment, epoch: v.epoch, ever: v.ever, reached: v.reached, leased: s.Status.Mode == assignment.Consistent}
	n.place(s, v, me)
	if n.leased {
		n.belief = b
	}
	if n.a == v.a && n.mine == v.mine && n.provisional == v.provisional && n.belief == v.belief && n.leased == v.leased {
		return v
	}
	n.ever = n.ever || n.mine
	if n.leased != v.leased {
		n.epoch++
	}
	n.meter(v)
	if n.leased {
		n.believe(v, me)
		n.trace(v, me.Name)
		return n
	}
	switch {
	case n.mine && v.mine && !v.leased && n.a.Part() != v.a.Part() && sameVersion(v.a, n.a):
		n.runs = advance(v.runs, v.a.Generation(), true, n.a, n.pos) // the whole in place of a part, or a part of it
	case n.mine && v.mine && !v.leased && v.a.StoreID() == n.a.StoreID() && v.a.Generation() < n.a.Generation():
		held := v.a.Generation()
		n.runs = advance(v.runs, held, n.a.Previous() == held, n.a, n.pos)
	case n.mine:
		n.epoch++
		n.runs = advance(nil, 0, false, n.a, n.pos)
	case n.provisional:
		for s, replicas := range n.a.All() {
			if replicas.Has(n.pos) {
				n.runs = extend(n.runs, run{s, provisionalToken})
			}
		}
	}
	n.own = n.metered
	n.tokens()
	n.trace(v, me.Name)
	return n
}

func sameVersion(a, b *assignment.Assignment) bool {
	return a.StoreID() == b.StoreID() && a.Generation() == b.Generation()
}

// generation is the newest assignment's, 0 if there is none.
func (v *view) generation() assignment.Generation {
	if v.a == nil {
		return 0
	}
	return v.a.Generation()
}

// place finds the task in the newest assignment.
//
// An assignment that names this incarnation counts. Besides, in affinity mode a
// task that was restarted while Slicer is dead goes on with the placement of its
// predecessor, if that had the same name and address: clients will ask it anyway.
// This ends with the first assignment that a Distributor sends.
func (n *view) place(s *subscriber.State, v *view, me assignment.Task) {
	if n.a == nil || s.Status.Mode == 0 {
		return
	}
	pos, ok := n.a.Position(me.Name)
	if !ok {
		return
	}
	t := n.a.Task(pos)
	n.pos, n.mine = pos, t.Incarnation == me.Incarnation
	n.provisional = !n.mine && !v.ever && t.Address == me.Address && s.Status.Mode == assignment.Affinity &&
		s.Source != subscriber.Distributor && (s.Disconnected || v.provisional)
}

// meter sets what load is counted by. The layout of the view before is kept if it
// fits: when only others' slices have moved, metering goes on as it is.
func (n *view) meter(v *view) {
	var slices []assignment.Slice
	if n.mine || n.provisional {
		for s, replicas := range n.a.All() {
			if replicas.Has(n.pos) {
				slices = append(slices, s)
			}
		}
	}
	n.metered = layoutOf(slices, v.metered)
}

// layoutOf is one of those given, if it fits, or a new one.
func layoutOf(slices []assignment.Slice, known ...*layout) *layout {
	for _, l := range known {
		if l.is(slices) {
			return l
		}
	}
	if len(slices) == 0 {
		return emptyLayout
	}
	return newLayout(slices)
}

// tokens fills in the tokens that the request path reads.
func (v *view) tokens() {
	v.token = make([]assignment.Generation, len(v.own.entries))
	r := 0
	for i, e := range v.own.entries {
		for v.runs[r].End <= e.start {
			r++
		}
		v.token[i] = v.runs[r].token
		if v.runs[r].End < e.end {
			v.token[i] = mixed
		}
	}
}

// tokenOf is the token of a key of the i-th slice.
func (v *view) tokenOf(i int, k assignment.SliceKey) assignment.Generation {
	if t := v.token[i]; t != mixed {
		return t
	}
	return v.runOf(k).token
}

// runOf is the run that holds a key that is owned.
func (v *view) runOf(k assignment.SliceKey) *run {
	return &v.runs[sort.Search(len(v.runs), func(r int) bool { return v.runs[r].End > k })]
}
