package loadbalance

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/slicer-project/slicer/assignment"
)

const (
	// leastUnserved is the share of its load that a task must leave unserved for that to say
	// what it can carry.
	leastUnserved = .05
	// muchLess is what of the usual a task must carry at most for its weight not to count in
	// full: where all are asked for too much, all carry about as much.
	muchLess = .8
	// recovers is how long a task that serves all takes to be believed to carry e times as
	// much, if it is not asked for that: it may have been mended, or have been given less than it
	// can carry.
	recovers = 5 * time.Minute
)

// carries is a task that can carry less than its weight says: a machine may have become slow, or
// what its handlers wait for. It is seen by what the task serves while it has no room for all.
type carries struct {
	task        string
	incarnation uint64
	can         float64 // units of load a second
	share       float64 // of its weight, below 1
}

// served is what the task at a position carried of its own slices or, if it has not served all of
// that, what it served of all that it was asked for; unserved is what of its own it has not.
func (l *Loads) served(pos int) (load, unserved float64) {
	load = sane(l.Task[pos])
	if pos < len(l.Unserved) {
		unserved = min(sane(l.Unserved[pos]), load)
	}
	if unserved > 0 && pos < len(l.All) {
		load = max(load, sane(l.All[pos]))
	}
	return load - unserved, unserved
}

// unserving are such tasks, in order of name: those of the round before, or as the loads say.
func unserving(in *Input) (all []carries) {
	l := in.Loads
	if in.State != nil {
		all = in.State.carries
	}
	if in.Published || l == nil || in.Prev == nil || len(l.Task) != in.Prev.NumTasks() || in.MembershipOnly || in.Elapsed <= 0 {
		return all
	}
	before := all
	all = nil
	served := make([]float64, len(l.Task)) // by weight
	for i, t := range in.Prev.Tasks() {
		can, unserved := l.served(i)
		now := carries{task: t.Name, incarnation: t.Incarnation, can: can}
		was, known := carriesOf(before, t)
		switch {
		case unserved > leastUnserved*sane(l.Task[i]):
			if known {
				now.can = (now.can + was.can) / 2
			}
			all = append(all, now)
		case known:
			now.can = max(can, was.can*math.Exp(min(in.Elapsed.Seconds()/recovers.Seconds(), 10)))
			all = append(all, now)
		}
		served[i] = can / capacity(t)
	}
	slices.Sort(served)
	usual := served[len(served)/2]
	for i := range all {
		pos, _ := in.Prev.Position(all[i].task)
		declared := usual * capacity(in.Prev.Task(pos))
		all[i].can = max(all[i].can, leastAble*declared) // of next to nothing it would never recover
		all[i].share = all[i].can / declared
	}
	slices.SortFunc(all, func(a, b carries) int { return strings.Compare(a.task, b.task) })
	return slices.DeleteFunc(all, func(a carries) bool { return !(a.share < muchLess) })
}

// carriesOf finds a task.
func carriesOf(all []carries, t assignment.Task) (c carries, ok bool) {
	at, ok := slices.BinarySearchFunc(all, t.Name, func(c carries, name string) int { return strings.Compare(c.task, name) })
	if !ok || all[at].incarnation != t.Incarnation {
		return c, false
	}
	return all[at], true
}
