package slicelet

import (
	"github.com/slicer-project/slicer/assignment"
)

// run is a range of keys that this incarnation owns, since the generation that
// token says, without a break. Runs are in key order, apart, and as few as can
// be: neighbours with the same token are one.
type run struct {
	assignment.Slice
	token assignment.Generation
}

// advance returns what the task at a position of a's table owns in a, and since
// when, given what it owned in generation held of the same job and store; runs is
// nil, and held 0, if nothing is known of the time before.
//
// If a is direct, which is to say that it follows on held with nothing in between,
// ownership is without a break exactly for the keys that are in both. If generations were skipped, the task may have lost a
// key and got it back: then the token stays only where Since says that the task
// has owned the whole of the slice since held or before, and a break is assumed
// elsewhere. So no token ever claims more than is true.
func advance(runs []run, held assignment.Generation, direct bool, a *assignment.Assignment, pos int) []run {
	var out []run
	next := 0 // of runs
	for s, replicas := range a.All() {
		since, owns := sinceOf(replicas, pos)
		if !owns {
			continue
		}
		// A task that did not own a key in held has owned it only since a later one,
		// whatever is held. (Under the leases a may be held itself: the bridge was
		// acquired before the guard.)
		fresh := max(since, min(held+1, a.Generation()))
		keep := direct || since <= held
		at := s.Start
		for ; next < len(runs) && runs[next].Start < s.End; next++ {
			both, ok := runs[next].Intersect(s)
			if !ok {
				continue
			}
			out = extend(out, run{assignment.Slice{Start: at, End: both.Start}, fresh})
			if keep {
				out = extend(out, run{both, runs[next].token})
			} else {
				out = extend(out, run{both, fresh})
			}
			at = both.End
			if runs[next].End > s.End {
				break // it goes on in the next slice
			}
		}
		out = extend(out, run{assignment.Slice{Start: at, End: s.End}, fresh})
	}
	return out
}

func sinceOf(r assignment.Replicas, pos int) (since assignment.Generation, owns bool) {
	for i := range r.Len() {
		if r.Position(i) == pos {
			return r.Since(i), true
		}
	}
	return 0, false
}

// extend appends a run, unless it is empty, and joins it to the one before if it can.
func extend(runs []run, r run) []run {
	if r.Start >= r.End {
		return runs
	}
	if n := len(runs); n > 0 && runs[n-1].End == r.Start && runs[n-1].token == r.token {
		runs[n-1].End = r.End
		return runs
	}
	return append(runs, r)
}

// changes says what a listener is to be told to get from one set of runs to
// another: a key whose token differs was lost and came back, and is in both.
func changes(from, to []run) (arrived, departed []assignment.Slice) {
	return minus(to, from), minus(from, to)
}

// minus returns the keys of a that are not in b with the same token.
func minus(a, b []run) []assignment.Slice {
	var out []assignment.Slice
	add := func(s assignment.Slice) {
		if s.Start >= s.End {
			return
		}
		if n := len(out); n > 0 && out[n-1].End == s.Start {
			out[n-1].End = s.End
			return
		}
		out = append(out, s)
	}
	j := 0
	for _, r := range a {
		at := r.Start
		for j < len(b) && b[j].End <= r.Start {
			j++
		}
		for i := j; i < len(b) && b[i].Start < r.End; i++ {
			if both, ok := r.Intersect(b[i].Slice); ok && b[i].token == r.token {
				add(assignment.Slice{Start: at, End: both.Start})
				at = both.End
			}
		}
		add(assignment.Slice{Start: at, End: r.End})
	}
	return out
}
