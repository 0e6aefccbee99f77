package generate

import (
	"errors"
	"slices"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/loadbalance"
)

// reasonRollback is that of what a rollback moves.
const reasonRollback loadbalance.Reason = "rollback"

var errNobody = errors.New("no task is running that may own slices")

// onlyOrdered undoes what a round has changed without an operator's order: the slices of
// tasks that are to own nothing, and the pinned ranges, are as decided, all others as
// before.
func (p *Plan) onlyOrdered(in loadbalance.Input, out loadbalance.Output) loadbalance.Output {
	held, ok := hold(in.Prev, in, out, func(t assignment.Task) bool { return p.away[t.Name] })
	out.State = in.State
	if !ok {
		out.Placement, out.Changed = assignment.Placement{}, false
		return out
	}
	out.Changed = !sameOwnersByName(in.Prev, in.Tasks, held)
	moved := gains(in.Prev, in.Tasks, held)
	out.Decisions = slices.DeleteFunc(out.Decisions, func(d loadbalance.Decision) bool {
		return d.Reason != loadbalance.ReasonPinned && !slices.ContainsFunc(moved, func(m loadbalance.Decision) bool {
			_, both := m.Slice.Intersect(d.Slice)
			return both && m.To == d.To
		})
	})
	out.Placement = held
	out.Stats.KeyChurn, out.Stats.LoadChurn = churn(moved), 0
	for _, d := range out.Decisions {
		out.Stats.LoadChurn += d.LoadChurn
	}
	return out
}

// goBack is the placement of an earlier generation. Slices of tasks that may not
// own any now go to others, and pins and exclusions hold as ever.
func (p *Plan) goBack() (out loadbalance.Output, err error) {
	base, err := renamed(p.target, p.in.Tasks)
	if err != nil {
		return out, err
	}
	in := p.in
	in.Prev, in.Loads, in.State, in.MembershipOnly = base, nil, nil, true
	out = loadbalance.Rebalance(in)
	ready := make(map[string]bool)
	for _, t := range in.Tasks {
		ready[t.Name] = t.State == assignment.TaskRunning
	}
	held, ok := hold(base, in, out, func(t assignment.Task) bool { return !ready[t.Name] })
	if !ok {
		return out, errNobody
	}
	out.Placement, out.Changed, out.State = held, true, p.in.State
	out.Decisions = gains(p.in.Prev, in.Tasks, held)
	for i := range out.Decisions {
		out.Decisions[i].Reason = reasonRollback
	}
	out.Stats = loadbalance.Stats{KeyChurn: churn(out.Decisions), Slices: len(held.Starts), Owners: len(held.Owners), Skipped: loadbalance.ReasonMembership}
	return out, nil
}

// renamed is a with its tasks as they are now, where there are tasks of the names.
func renamed(a *assignment.Assignment, now []assignment.Task) (*assignment.Assignment, error) {
	at := make(map[string]int, len(now))
	for i, t := range now {
		at[t.Name] = i
	}
	table := make([]assignment.Task, a.NumTasks())
	for i, t := range a.Tasks() {
		if j, ok := at[t.Name]; ok {
			t = now[j]
		}
		t.Index = uint32(i) // they may overlap
		table[i] = t
	}
	c := a.Columns()
	h := assignment.Header{Job: a.Job(), StoreID: a.StoreID(), Generation: a.Generation()}
	return assignment.Successor(nil, h, table, assignment.Placement{
		Starts: slices.Clone(c.Starts), Offsets: slices.Clone(c.Offsets), Owners: slices.Clone(c.Owners)})
}

// hold is the placement that a round has decided on where a slice of base has an owner
// that is to go, or where a range is fixed, and that of base elsewhere. The slices of out
// are those of base, or parts of them. ok is false when no task may own anything.
func hold(base *assignment.Assignment, in loadbalance.Input, out loadbalance.Output, goes func(assignment.Task) bool) (p assignment.Placement, ok bool) {
	if len(out.Placement.Starts) == 0 {
		return p, false
	}
	at := make(map[string]uint32, len(in.Tasks))
	for i, t := range in.Tasks {
		at[t.Name] = uint32(i)
	}
	fixed := func(k assignment.SliceKey) bool {
		return slices.ContainsFunc(in.Fixed, func(f loadbalance.Fixed) bool {
			i, there := at[f.Task]
			return there && f.Slice.Contains(k) && in.Tasks[i].State == assignment.TaskRunning
		})
	}
	var owners []uint32
	for i, start := range out.Placement.Starts {
		r := base.Replicas(base.Find(start))
		owners = owners[:0]
		decided := fixed(start)
		for j := 0; j < r.Len() && !decided; j++ {
			t := r.At(j)
			o, there := at[t.Name]
			owners = append(owners, o)
			decided = !there || goes(t)
		}
		if decided {
			owners = append(owners[:0], out.Placement.Range(i)...)
		}
		p.Add(start, owners...)
	}
	return p, true
}

// gains are the ranges that get a task which did not own them, one decision each.
func gains(prev *assignment.Assignment, tasks []assignment.Task, p assignment.Placement) (all []loadbalance.Decision) {
	k := 0
	for i, start := range p.Starts {
		s := assignment.Slice{Start: start, End: end(p.Starts, i)}
		for k+1 < prev.NumSlices() && prev.Slice(k).End <= s.Start {
			k++
		}
		for m := k; m < prev.NumSlices() && prev.Slice(m).Start < s.End; m++ {
			both, _ := s.Intersect(prev.Slice(m))
			r, from := prev.Replicas(m), ""
			for x := range r.All() {
				if !slices.ContainsFunc(p.Range(i), func(o uint32) bool { return tasks[o].Same(x) }) {
					from = x.Name
					break
				}
			}
			for _, o := range p.Range(i) {
				had := false
				for x := range r.All() {
					had = had || x.Same(tasks[o])
				}
				if !had {
					all = append(all, loadbalance.Decision{Kind: loadbalance.KindMove, Slice: both, From: from, To: tasks[o].Name, KeyChurn: both.Fraction()})
				}
			}
		}
	}
	return all
}

// churn is the share of the keyspace in moves, each key once.
func churn(moves []loadbalance.Decision) (sum float64) {
	last := assignment.Slice{}
	for _, d := range moves {
		if d.Slice != last {
			sum += d.Slice.Fraction()
		}
		last = d.Slice
	}
	return sum
}

// sameOwnersByName reports whether a placement has the slices of prev, each with
// owners of the same names.
func sameOwnersByName(prev *assignment.Assignment, tasks []assignment.Task, p assignment.Placement) bool {
	if len(p.Starts) != prev.NumSlices() {
		return false
	}
	for i, start := range p.Starts {
		r := prev.Replicas(i)
		if start != prev.Slice(i).Start || r.Len() != len(p.Range(i)) {
			return false
		}
		for _, o := range p.Range(i) {
			found := false
			for x := range r.All() {
				found = found || x.Name == tasks[o].Name
			}
			if !found {
				return false
			}
		}
	}
	return true
}
