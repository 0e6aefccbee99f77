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
	// lessAble is what of the usual a task must carry at most for its weight not to count in
	// full: where all are asked for too much, all carry about as much. leastAble is the
	// smallest part of its weight that counts.
	lessAble, leastAble = .8, .02
	// recovers is how long a task that serves all takes to be believed to carry e times as
	// much: it may have been mended, or have been given less than it can carry.
	recovers = 5 * time.Minute
)

// able is a task that can carry less than its weight says: a machine may have become slow, or
// what its handlers wait for. It is seen by what the task serves while it has no room for all.
type able struct {
	task        string
	incarnation uint64
	can         float64 // units of load a second
	share       float64 // of its weight, below 1
}

// ableTasks are such tasks, in order of name: those of the round before, or as the loads say.
func ableTasks(in *Input) (all []able) {
	l := in.Loads
	if in.State != nil {
		all = in.State.able
	}
	if in.Published || l == nil || in.Prev == nil || len(l.Task) != in.Prev.NumTasks() || in.MembershipOnly || in.Elapsed <= 0 {
		return all
	}
	before := all
	all = nil
	served := make([]float64, len(l.Task)) // by weight
	for i, t := range in.Prev.Tasks() {
		now := able{task: t.Name, incarnation: t.Incarnation, can: sane(l.Task[i])}
		lacks := 0.0
		if i < len(l.Unserved) {
			lacks = min(sane(l.Unserved[i]), now.can)
		}
		at, known := slices.BinarySearchFunc(before, t.Name, func(a able, name string) int { return strings.Compare(a.task, name) })
		known = known && before[at].incarnation == t.Incarnation
		switch {
		case lacks > leastUnserved*now.can:
			if now.can -= lacks; known {
				now.can = (now.can + before[at].can) / 2
			}
			all = append(all, now)
		case known:
			now.can = before[at].can * math.Exp(min(in.Elapsed.Seconds()/recovers.Seconds(), 10))
			all = append(all, now)
		}
		served[i] = (sane(l.Task[i]) - lacks) / capacity(t)
	}
	slices.Sort(served)
	usual := served[len(served)/2]
	for i := range all {
		pos, _ := in.Prev.Position(all[i].task)
		all[i].share = all[i].can / (usual * capacity(in.Prev.Task(pos)))
	}
	slices.SortFunc(all, func(a, b able) int { return strings.Compare(a.task, b.task) })
	return slices.DeleteFunc(all, func(a able) bool { return !(a.share < lessAble) })
}

// shareOf is the part of its weight that a task counts for.
func shareOf(all []able, t assignment.Task) float64 {
	at, ok := slices.BinarySearchFunc(all, t.Name, func(a able, name string) int { return strings.Compare(a.task, name) })
	if !ok || all[at].incarnation != t.Incarnation {
		return 1
	}
	return max(all[at].share, leastAble)
}
