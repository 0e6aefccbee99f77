package slicelet

import (
	"cmp"
	"slices"

	"github.com/slicer-project/slicer/assignment"
)

// window is what is known of the load since the last report, by the cells of a
// layout: how much was counted in each, and for how many seconds it was watched.
type window struct {
	lay     *layout
	counted [metrics][]float64 // by metric; nil if nothing was
	seconds []float64
	// former is what was counted in each, by metric, before the owners of its keys became
	// others: it says nothing about what comes here now.
	former [metrics][]float64
}

func newWindow(lay *layout) window {
	return window{lay: lay, seconds: make([]float64, lay.cells())}
}

// watch adds what was counted in a time during which the layout was in use.
func (w *window) watch(seconds float64, counted [metrics][]float64) {
	for i := range counted {
		w.counted[i] = sum(w.counted[i], counted[i])
	}
	for i := range w.seconds {
		w.seconds[i] += seconds
	}
}

// project carries the window over to another layout, exactly as far as it is
// known: a cell that lies within one of the other's goes there whole; one that
// straddles several is shared out, its heavy keys, as far as they are certain, to
// where they lie and the rest by width. What the other does not own is dropped. Slices
// whose owners have become others begin anew: tasks that share a key get other shares of it now.
func (w *window) project(to *layout, hot [metrics][]heavy, others func(assignment.SliceKey) bool) window {
	out := newWindow(to)
	for i := range hot {
		if w.counted[i] != nil {
			out.counted[i] = make([]float64, to.cells())
		}
		slices.SortFunc(hot[i], func(a, b heavy) int { return cmp.Compare(a.key, b.key) })
	}
	from, into := w.lay.list(), to.list()
	j := 0
	last, anew := [2]int{-1, -1}, false // of which slices it was asked last
	for _, c := range from {
		for j < len(into) && into[j].End <= c.Start {
			j++
		}
		for k := j; k < len(into) && into[k].Start < c.End; k++ {
			both, ok := c.Intersect(into[k].Slice)
			if !ok {
				continue
			}
			if of := [2]int{c.cell / w.lay.parts, into[k].cell / out.lay.parts}; of != last {
				last, anew = of, others(both.Start)
			}
			to, counts := into[k].cell, &out.counted
			if anew {
				counts = &out.former
			} else {
				out.seconds[to] += w.seconds[c.cell] * float64(both.Width()) / float64(into[k].Width())
			}
			out.add(counts, to, &w.counted, c, both, hot)
			out.add(&out.former, to, &w.former, c, both, hot)
		}
	}
	return out
}

// add adds to a cell's counts what of those of another layout's cell fell into a piece of it.
func (w *window) add(counts *[metrics][]float64, cell int, others *[metrics][]float64, other numbered, piece assignment.Slice, hot [metrics][]heavy) {
	for i, n := range others {
		if n == nil {
			continue
		}
		if counts[i] == nil {
			counts[i] = make([]float64, w.lay.cells())
		}
		counts[i][cell] += share(n[other.cell], other.Slice, piece, hot[i])
	}
}

// share is how much of a cell's count fell into a piece of it.
func share(count float64, cell, piece assignment.Slice, hot []heavy) float64 {
	if piece == cell {
		return count
	}
	at, _ := slices.BinarySearchFunc(hot, cell.Start, func(h heavy, k assignment.SliceKey) int { return cmp.Compare(h.key, k) })
	var inCell, inPiece float64
	for _, h := range hot[at:] {
		if h.key >= cell.End {
			break
		}
		inCell += h.sure()
		if piece.Contains(h.key) {
			inPiece += h.sure()
		}
	}
	if inCell > count { // counted before the task owned the cell
		inPiece *= count / inCell
		inCell = count
	}
	return inPiece + (count-inCell)*float64(piece.Width())/float64(cell.Width())
}

type numbered struct {
	assignment.Slice
	cell int
}

// list is the cells that are not empty, in key order.
func (l *layout) list() []numbered {
	all := make([]numbered, 0, l.cells())
	for i := range l.entries {
		for p := range l.parts {
			if b := l.bounds(i, p); b.Start < b.End {
				all = append(all, numbered{b, i*l.parts + p})
			}
		}
	}
	return all
}
