package slicelet

import (
	"cmp"
	"slices"

	"github.com/slicer-project/slicer/assignment"
)

// held is a range of keys and the other tasks that own it in some assignment.
type held struct {
	assignment.Slice
	by []assignment.Task
}

// maxGone is how many generations a listener may be behind in what it is told of where keys
// have gone, of which a part has come for each.
const maxGone = 16

// trace notes what ownership goes by, and where each key that is owned has come
// from: the other tasks that owned it in the assignment that was held before.
func (n *view) trace(v *view, me string) {
	n.basis = n.a
	if n.leased {
		guard, target := n.belief.Assignments()
		n.basis = cmp.Or(target, guard, v.basis, n.a)
	}
	n.gone = v.gone
	if n.a != nil && n.a != v.a && n.a.Moves().To != nil {
		n.gone = append([]*assignment.Assignment{n.a.Moves().To}, v.gone[:min(len(v.gone), maxGone-1)]...)
	}
	if n.epoch == v.epoch && slices.Equal(n.runs, v.runs) {
		n.origins = v.origins
		return
	}
	arrived, _ := n.since(v)
	// Where keys went that are back says nothing of where they go next.
	n.gone = slices.DeleteFunc(slices.Clone(n.gone), func(to *assignment.Assignment) bool {
		return slices.ContainsFunc(othersIn(arrived, me, to), func(h held) bool { return len(h.by) > 0 })
	})
	stay := without(n.runs, arrived)
	n.origins = append(within(v.origins, stay), othersIn(arrived, me, n.former(v)...)...)
	slices.SortFunc(n.origins, func(a, b held) int { return cmp.Compare(a.Start, b.Start) })
}

// heldBefore is the newest assignment that was held before a, nil if there is none.
func (v *view) heldBefore(a *assignment.Assignment) (newest *assignment.Assignment) {
	guard, _ := v.belief.Assignments() // the side of the bridge that is given up
	for _, b := range []*assignment.Assignment{guard, v.basis, v.a} {
		if a != nil && b != nil && a.Newer(b) && b.Newer(newest) {
			newest = b
		}
	}
	return newest
}

// former is what says whose keys were before that have come since v.
func (n *view) former(v *view) []*assignment.Assignment {
	b := v.heldBefore(n.basis)
	if b == nil {
		return nil
	}
	if from := n.basis.Moves().From; from != nil && sameVersion(from, b) {
		return []*assignment.Assignment{b, from}
	}
	return []*assignment.Assignment{b}
}

// changed returns what a listener of the task is told that knows a view before.
func (v *view) changed(before *view, me string) Change {
	arrived, departed := v.since(before)
	now := v.basis
	if v.leased && v.belief == nil {
		now = v.a // by the basis the task owns the keys that it has lost
	}
	c := Change{
		Arrived:  fromTo(within(v.origins, arrived), othersIn(arrived, me, v.basis)),
		Departed: fromTo(othersIn(departed, me, before.basis), othersIn(departed, me, append([]*assignment.Assignment{now}, v.gone...)...)),
	}
	if v.basis != nil {
		c.Generation = v.basis.Generation()
	}
	return c
}

// othersIn returns the owners of the slices besides me, each by the first of the assignments
// that knows them: a part may not, and one that is nil does not. They are in order and apart.
func othersIn(slices []assignment.Slice, me string, as ...*assignment.Assignment) (out []held) {
	switch {
	case len(as) == 0:
		for _, s := range slices {
			out = join(out, held{Slice: s})
		}
		return out
	case as[0] == nil:
		return othersIn(slices, me, as[1:]...)
	}
	a := as[0]
	pieces(a.NumSlices(), a.Slice, slices, func(i, _ int, s assignment.Slice) {
		if a.Replicas(i).Len() == 0 {
			for _, h := range othersIn([]assignment.Slice{s}, me, as[1:]...) {
				out = join(out, h)
			}
			return
		}
		h := held{Slice: s}
		for t := range a.Replicas(i).All() {
			if t.Name != me {
				h.by = append(h.by, t)
			}
		}
		out = join(out, h)
	})
	return out
}

// join appends a range, or makes the last one longer.
func join(hs []held, h held) []held {
	if n := len(hs); n > 0 && hs[n-1].End == h.Start && slices.Equal(hs[n-1].by, h.by) {
		hs[n-1].End = h.End
		return hs
	}
	return append(hs, h)
}

// within returns the parts of ranges that are in the slices.
func within(hs []held, slices []assignment.Slice) (out []held) {
	pieces(len(hs), func(i int) assignment.Slice { return hs[i].Slice }, slices, func(i, _ int, s assignment.Slice) {
		out = join(out, held{s, hs[i].by})
	})
	return out
}

// fromTo puts together the former owners of keys and those of the same keys now.
func fromTo(from, to []held) (out []Range) {
	slices := make([]assignment.Slice, len(to))
	for i, h := range to {
		slices[i] = h.Slice
	}
	pieces(len(from), func(i int) assignment.Slice { return from[i].Slice }, slices, func(i, j int, s assignment.Slice) {
		out = append(out, Range{s, from[i].by, to[j].by})
	})
	return out
}

// without returns the keys of runs that are not in the slices.
func without(runs []run, slices []assignment.Slice) []assignment.Slice {
	var all, some []run
	for _, r := range runs {
		all = extend(all, run{Slice: r.Slice})
	}
	for _, s := range slices {
		some = extend(some, run{Slice: s})
	}
	return minus(all, some)
}
