package loadbalance

import (
	"cmp"
	"slices"

	"github.com/slicer-project/slicer/assignment"
)

// keyShare is how much the width of a slice counts beside its load when slices
// are handed out for other reasons than load: keys without load cost memory,
// and may have load tomorrow.
const keyShare = .05

// worth is what a piece weighs when tasks come or go: mostly its share of the
// load, and all its share of the keyspace when no load is known.
func (b *placement) worth(p *piece) float64 {
	if b.total <= 0 {
		return p.width()
	}
	return (1-keyShare)*p.load/b.total + keyShare*p.width()
}

// scale keeps the worth of what each task owns, by capacity.
type scale struct {
	b     *placement
	worth []float64
	cold  *takers
}

func (b *placement) newScale() *scale {
	s := &scale{b: b, worth: make([]float64, len(b.load))}
	for i := b.head; i >= 0; i = b.pieces[i].next {
		p := &b.pieces[i]
		for _, t := range b.owners(p) {
			s.worth[t] += b.worth(p) / float64(p.replicas())
		}
	}
	s.cold = b.newTakers(1/float64(len(b.live)), func(t uint32) float64 { return s.worth[t] })
	return s
}

func (s *scale) ratio(t uint32) float64 { return s.worth[t] / s.b.weight[t] }

// change runs f, which changes the owners of piece i, and weighs them anew.
func (s *scale) change(i int32, f func()) {
	p := &s.b.pieces[i]
	w := s.b.worth(p)
	for _, t := range s.b.owners(p) {
		s.worth[t] -= w / float64(p.replicas())
		s.cold.refresh(t)
	}
	f()
	for _, t := range s.b.owners(p) {
		s.worth[t] += w / float64(p.replicas())
		s.cold.refresh(t)
	}
}

// coldest returns the task to give piece i to, one that warms up if need be.
func (s *scale) coldest(i int32) (uint32, bool) {
	p := &s.b.pieces[i]
	others := func(t uint32) bool { return !s.b.has(p, t) }
	t, ok := s.cold.first(s.b.worth(p)/float64(p.replicas()+1), others)
	if !ok && s.cold.young != nil {
		return s.cold.young.first(others)
	}
	return t, ok
}

// first makes the assignment that a job begins with: equal slices, in runs of
// neighbours so that they merge for nothing, in proportion to capacity.
func (b *placement) first() {
	n := min(max(b.cfg.MinSlicesPerTask, 1)*len(b.live), assignment.MaxSlices, b.most/b.min)
	starts := assignment.Equal(n)
	b.pieces = make([]piece, n)
	b.n = n
	b.head = 0
	t, upTo := 0, b.weight[b.live[0]]
	for i := range b.pieces {
		end := assignment.KeyspaceEnd
		if i+1 < n {
			end = starts[i+1]
		}
		b.pieces[i] = piece{start: starts[i], end: end, prev: int32(i) - 1, next: int32(i) + 1}
		// The middle of the piece falls into the stretch of task t.
		for at := (float64(i) + .5) * float64(len(b.live)) / float64(n); at > upTo && t+1 < len(b.live); {
			t++
			upTo += b.weight[b.live[t]]
		}
		b.add(int32(i), b.live[t])
	}
	b.pieces[n-1].next = -1
	b.decisions = make([]Decision, 0, n+8) // later phases may add some
	for i := range b.pieces {
		b.say(KindAssign, ReasonFirst, int32(i), -1, int(b.owners(&b.pieces[i])[0]), b.pieces[i].width(), b.pieces[i].width(), 0)
	}
	b.fix()
	b.redundancy()
}

// orphan is a piece that lost owners.
type orphan struct {
	i     int32
	lost  []int // positions in Prev
	worth float64
}

// reassign is phase 1: slices of tasks that may not own any more go to the
// coldest ones, heaviest first. A task that restarted gets its own back, which
// leaves the others alone. A replica is not made up for when enough are left to
// carry the load.
func (b *placement) reassign() {
	prev := b.in.Prev
	lost := make([]bool, prev.NumTasks())
	back := make([]int, prev.NumTasks())
	any := false
	for i, t := range prev.Tasks() {
		now := b.prevTask[i]
		lost[i] = now < 0 || b.weight[now] == 0
		back[i] = -1
		if lost[i] {
			any = true
			back[i] = b.restarted(t.Name)
		}
	}
	if !any {
		return
	}
	var pending []orphan
	for i := range b.pieces {
		r := prev.Replicas(i)
		var l []int
		for j := range r.Len() {
			if lost[r.Position(j)] {
				l = append(l, r.Position(j))
			}
		}
		if l != nil {
			pending = append(pending, orphan{int32(i), l, b.worth(&b.pieces[i])})
		}
	}
	for _, o := range pending {
		for _, from := range o.lost {
			if t := b.prevTask[from]; t >= 0 {
				b.remove(o.i, uint32(t))
			}
		}
	}
	slices.SortStableFunc(pending, func(x, y orphan) int { return cmp.Compare(y.worth, x.worth) })
	s := b.newScale()
	for _, o := range pending {
		for _, from := range o.lost {
			b.rehome(s, o.i, from, back[from])
		}
	}
}

// restarted finds the live task that took the name of one that is gone.
func (b *placement) restarted(name string) int {
	if t, ok := b.byName[name]; ok && b.weight[t] > 0 {
		return int(t)
	}
	return -1
}

// rehome makes up for one owner of piece i that is lost.
func (b *placement) rehome(s *scale, i int32, from, back int) {
	p := &b.pieces[i]
	why := ReasonTaskGone
	if t := b.prevTask[from]; t >= 0 {
		switch b.in.Tasks[t].State {
		case assignment.TaskDead:
			why = ReasonTaskDead
		case assignment.TaskDraining:
			why = ReasonTaskDrains
		default: // not ready, excluded or damped
			why = ReasonTaskLeaving
		}
	}
	gone := b.in.Prev.Task(from).Name
	record := func(k Kind, why Reason, to string) {
		d := Decision{Kind: k, Reason: why, Slice: p.slice(), From: gone, To: to, Benefit: 1}
		if to != "" {
			d.Benefit, d.KeyChurn = p.width(), p.width()
			if b.total > 0 {
				d.LoadChurn = p.share() / b.total
			}
		}
		b.note(d)
	}
	if back >= 0 && !b.has(p, uint32(back)) {
		s.change(i, func() { b.add(i, uint32(back)) })
		record(KindReassign, ReasonRestarted, b.in.Tasks[back].Name)
		return
	}
	to, ok := s.coldest(i)
	if !ok || p.replicas() >= b.min && b.relaxed(p) { // not ok: all others have it
		record(KindRemove, ReasonEnough, "")
		return
	}
	s.change(i, func() { b.add(i, to) })
	record(KindReassign, why, b.in.Tasks[to].Name)
}

// relaxed says that no owner of the piece is above its fair load.
func (b *placement) relaxed(p *piece) bool {
	for _, t := range b.owners(p) {
		if b.ratio(t) > b.mean() {
			return false
		}
	}
	return true
}

// redundancy is phase 2: as many replicas as the configuration asks for and no
// more than it allows.
func (b *placement) redundancy() {
	var pending []int32
	for i := b.head; i >= 0; i = b.pieces[i].next {
		if r := b.pieces[i].replicas(); (r < b.min || r > b.max) && !b.pieces[i].fixed {
			pending = append(pending, i)
		}
	}
	if len(pending) == 0 {
		return
	}
	s := b.newScale()
	// In steps across the keyspace: neighbours tend to lie on one task, which
	// can be no replica of its own.
	step := len(pending)/len(b.live) + 1
	for from := range step {
		for k := from; k < len(pending); k += step {
			b.adjust(s, pending[k])
		}
	}
}

// adjust gives a piece as many owners as it should have, as far as an assignment has
// room for them.
func (b *placement) adjust(s *scale, i int32) {
	p := &b.pieces[i]
	for p.replicas() < b.min && (p.replicas() == 0 || b.roomFor(1)) {
		to, ok := s.coldest(i)
		if !ok {
			return
		}
		s.change(i, func() { b.add(i, to) })
		b.say(KindReplicate, ReasonTooFew, i, -1, int(to), p.width(), p.width(), p.share())
	}
	for p.replicas() > b.max {
		owners := b.owners(p)
		hot := owners[0]
		for _, t := range owners[1:] {
			if s.ratio(t) > s.ratio(hot) {
				hot = t
			}
		}
		s.change(i, func() { b.remove(i, hot) })
		b.say(KindRemove, ReasonTooMany, i, int(hot), -1, 1, 0, 0)
	}
}
