package slicelet

import (
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/lease"
)

// believe sets what is owned in consistent mode: what the belief says, whatever
// the newest assignment is. v is the view before, so nothing is left out between
// two beliefs: a key that is in both has been owned without a break, and keeps its
// token. What else is owned under the guard is so since the guard's assignment
// says. When there is no belief, everything is lost.
func (n *view) believe(v *view, me assignment.Task) {
	if n.belief == v.belief && v.leased {
		n.own, n.token, n.runs = v.own, v.token, v.runs
		return
	}
	if n.own = emptyLayout; n.belief == nil {
		return
	}
	a, _ := n.belief.Assignments()
	n.reached = max(n.reached, a.Generation())
	var runs []run
	// Tokens of before were at most v.reached: after a break they do not fall.
	held := v.reached - 1
	if v.belief == nil {
		n.epoch++
	} else {
		before, _ := v.belief.Assignments()
		runs, held = v.runs, before.Generation()
	}
	pos, ok := a.Position(me.Name)
	if !ok || a.Task(pos).Incarnation != me.Incarnation {
		return
	}
	within := n.belief.Slices()
	all := advance(runs, held, true, a, pos)
	pieces(len(all), func(i int) assignment.Slice { return all[i].Slice }, within, func(i, _ int, s assignment.Slice) {
		n.runs = extend(n.runs, run{s, all[i].token})
	})
	var own []assignment.Slice
	pieces(a.NumSlices(), a.Slice, within, func(_, _ int, s assignment.Slice) { own = append(own, s) })
	n.own = layoutOf(own, n.metered, v.own)
	n.tokens()
}

// pieces goes through what n ranges, in order and apart, have in common with
// others that are so too.
func pieces(n int, at func(int) assignment.Slice, others []assignment.Slice, piece func(i, j int, s assignment.Slice)) {
	for i, j := 0, 0; i < n && j < len(others); {
		s := at(i)
		if both, ok := s.Intersect(others[j]); ok {
			piece(i, j, both)
		}
		if s.End <= others[j].End {
			i++
		} else {
			j++
		}
	}
}

// find looks a key up in the newest view: i is its slice in v.own, -1 if it is in
// none, and owned whether it is this task's now. In consistent mode the clock is
// read for it each time, and the view was the newest when it was.
func (s *Slicelet) find(k assignment.SliceKey) (v *view, i int, owned bool) {
	for {
		v = s.view.Load()
		i = v.own.find(k)
		if i < 0 || !v.leased {
			return v, i, i >= 0
		}
		if !s.believes(v) {
			return v, i, false
		}
		if s.view.Load() == v {
			return v, i, true
		}
	}
}

// believes reports whether the belief of a view in consistent mode is valid. Once it
// was found not to be, it and its epoch never are again: its session is over, and
// another belief follows in another epoch.
func (s *Slicelet) believes(v *view) bool {
	if v.epoch < s.lapsed.Load() {
		return false
	}
	if v.belief.Valid() {
		return true
	}
	for {
		was := s.lapsed.Load()
		if was > v.epoch || s.lapsed.CompareAndSwap(was, v.epoch+1) {
			return false
		}
	}
}

// joinLocked takes part in the job's leases, once the control plane has said that it is
// in consistent mode. s.mu is held.
func (s *Slicelet) joinLocked(mode assignment.Mode) {
	if s.sub == nil || s.joined || s.closing || mode != assignment.Consistent {
		return
	}
	s.joined = true
	if s.leases == nil {
		s.leaseErr = ErrConsistent
	} else {
		s.lease, s.leaseErr = s.leases.Join(lease.JobConfig{
			Job: s.job, Task: s.me.Name, Incarnation: s.me.Incarnation,
			Fetch: s.sub.Fetch, Changed: s.believed,
		})
	}
	if s.leaseErr != nil {
		s.log.Error("this task will own nothing", "error", s.leaseErr)
	}
}

// held is the task's part in the leases, nil in affinity mode, or the error that
// there is none.
func (s *Slicelet) held() (*lease.Job, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.joinLocked(s.sub.State().Status.Mode)
	return s.lease, s.leaseErr
}

// leave ends belief and gives the leases back, so that no task has to wait for them.
func (s *Slicelet) leave() error {
	s.mu.Lock()
	s.closing = true
	held := s.lease
	s.mu.Unlock()
	if held == nil {
		return nil
	}
	return held.Close()
}

// believed puts a belief to use, and ends the one before: when it returns, the
// leases that stood behind that may be released.
func (s *Slicelet) believed(b *lease.Belief) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.belief = b
	s.lookLocked()
}
