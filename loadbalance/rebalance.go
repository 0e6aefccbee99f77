package loadbalance

import (
	"slices"

	"github.com/slicer-project/slicer/assignment"
)

// Rebalance is one round of weighted-move (Slicer paper, section 4.4.1), or of the
// algorithm as published. It is safe for concurrent use and changes nothing of in but for Work.
// It never fails: measurements, tasks and configurations that make no sense are
// read as harmlessly as possible, and with no running task the assignment in
// force stays.
func Rebalance(in Input) Output { return rebalance(in, assignment.MaxOwnerships) }

func rebalance(in Input, most int) Output {
	b, ok := newPlacement(in, most)
	defer b.done()
	if !ok {
		return Output{State: in.State, Stats: Stats{Skipped: ReasonNoTask},
			Decisions: []Decision{{Kind: KindSkip, Reason: ReasonNoTask}}}
	}
	before := 0.0
	if b.total > 0 {
		before = b.imbalance()
	}
	if in.Prev != nil {
		b.reassign()
		b.fix()
		b.redundancy()
	}
	switch why := b.idle(); {
	case why != "":
		b.seedNewTasks()
		b.skip(why)
	case b.in.Published:
		b.published()
	default:
		b.weightedMove()
	}
	b.sayCold()
	out := b.output()
	out.Stats.ImbalanceBefore = before
	return out
}

// idle says why the phases that depend on load have nothing to do.
func (b *placement) idle() Reason {
	switch {
	case b.in.MembershipOnly:
		return ReasonMembership
	case b.total <= 0:
		return ReasonNoLoad
	case b.in.Config.LoadMetric == assignment.LoadCPU && idleCPU(&b.in):
		return ReasonIdleCPU
	}
	return ""
}

// idleCPU says that no task is at risk of overload, so that churn is waste.
func idleCPU(in *Input) bool {
	refuses := func(shed float64) bool { return shed > 0 } // what it waits for is not its CPU
	if in.Loads == nil || slices.ContainsFunc(in.Loads.Shed, refuses) {
		return false
	}
	top, known := 0.0, false
	for _, u := range in.Loads.CPU {
		if u > 0 {
			top, known = max(top, u), true
		}
	}
	return known && top < in.Config.Balance.CPUThreshold
}

func (b *placement) skip(why Reason) {
	b.skipped = why
	b.note(Decision{Kind: KindSkip, Reason: why, Benefit: max(b.imbalance()-1, 0)})
}

// output reads the result off the placement, in one walk: pieces that were split off
// lie anywhere.
func (b *placement) output() Output {
	p := assignment.Placement{
		Starts: make([]assignment.SliceKey, 0, b.n),
		Owners: make([]uint32, 0, b.ownerships),
	}
	if b.ownerships != b.n {
		p.Offsets = make([]uint32, 1, b.n+1)
	}
	var cells []estimate
	if b.smooth != nil {
		cells = make([]estimate, 0, b.n)
	}
	d := diff{b: b}
	whole := 0.0 // load of the hottest slice that cannot be split
	for i := b.head; i >= 0; {
		q := &b.pieces[i]
		p.Starts = append(p.Starts, q.start)
		p.Owners = append(p.Owners, b.owners(q)...)
		if p.Offsets != nil {
			p.Offsets = append(p.Offsets, uint32(len(p.Owners)))
		}
		if b.smooth != nil {
			cells = append(cells, b.est[i])
		}
		if q.end-q.start == 1 {
			whole = max(whole, q.load)
		}
		d.add(q)
		i = q.next
	}
	out := Output{Changed: d.changed, Placement: p, Decisions: b.decisions, State: b.in.State}
	if b.smooth != nil {
		out.State = &State{starts: slices.Clone(p.Starts), cells: cells, trust: b.smooth.trust, abilities: b.abilities.known, carries: b.abilities.less}
		if !d.changed {
			out.State.still = still(&b.in)
		}
	}
	out.Stats = Stats{
		Slices: b.n, Owners: b.ownerships, Skipped: b.skipped,
		Floor: b.floorOf(whole), KeyChurn: d.keys, LoadChurn: d.load,
	}
	if b.total > 0 {
		out.Load = b.load
		out.Stats.ImbalanceAfter = b.imbalance()
	}
	return out
}

// floorOf bounds the imbalance from below by the hottest known key: all of it
// lies on at most max tasks. A slice that cannot be split is a key, too; top is
// the load of the hottest such. That light keys come whole, too, is not heeded.
func (b *placement) floorOf(top float64) float64 {
	if b.total <= 0 {
		return 1
	}
	if b.in.Loads != nil {
		for _, h := range b.in.Loads.Hot {
			top = max(top, sane(h.Rate)-sane(h.Error))
		}
	}
	_, room := widest(b.sorted(b.capacity), b.max)
	return max(1, top/room/b.mean())
}
