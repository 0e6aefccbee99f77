package loadbalance

import (
	"cmp"
	"slices"

	"github.com/slicer-project/slicer/assignment"
)

const (
	// full is the utilization from which on a task is given nothing more: it may be asked
	// for more than it carries already, and what it is measured to carry does not show that.
	full = .9
	// slow is the load by utilization, as a share of what tasks of its weight usually have,
	// below which a full task is taken to be able to do less than is declared, and
	// recovered from which on no longer.
	slow, recovered = .8, .9
	// leastUsed is the utilization below which most of it may be what a task needs without
	// any load.
	leastUsed = .1
	// abilityWeight is that of a new measurement.
	abilityWeight = .5
	// leastAble is the least share of what is declared that a task is taken to be able to do.
	leastAble = .05
	// fewTasks is how many tasks are too few to tell what is usual.
	fewTasks = 3
)

// ability is what is known of how much a task can carry.
type ability struct {
	name        string
	incarnation uint64
	used        float64 // utilization, smoothed
	able        float64 // load by utilization and declared weight, as a share of the usual, smoothed
	slow        bool    // it can do less than is declared
	task        uint32  // where it is in Input.Tasks
}

// abilities are those of the live tasks about which anything is known.
type abilities struct {
	known []ability
	full  []uint32 // tasks that are given nothing more, in order
	less  []carries
}

// learnAbilities finds out what tasks can do, from what they carry and how much of them
// that takes.
func learnAbilities(in *Input, live []uint32) (all abilities) {
	all.less = unserving(in)
	if in.Published || in.Prev == nil {
		return all
	}
	known := make(map[string]ability)
	if in.State != nil {
		for _, a := range in.State.abilities {
			known[a.name] = a
		}
	}
	measured := in.Elapsed > 0 && !in.MembershipOnly && in.Loads != nil &&
		len(in.Loads.CPU) == in.Prev.NumTasks() && len(in.Loads.Task) == in.Prev.NumTasks()
	if !measured && len(known) == 0 {
		return all
	}
	used, able := make([]float64, len(live)), make([]float64, len(live))
	var ables []float64
	for i, t := range live {
		pos, ok := in.Prev.Position(in.Tasks[t].Name)
		if !measured || !ok || !in.Prev.Task(pos).Same(in.Tasks[t]) || !(in.Loads.CPU[pos] >= leastUsed) {
			continue
		}
		used[i] = min(in.Loads.CPU[pos], 1)
		served, _ := in.Loads.served(pos)
		able[i] = served / used[i] / capacity(in.Tasks[t])
		ables = append(ables, able[i])
	}
	slices.SortFunc(ables, cmp.Compare[float64])
	for i, t := range live {
		a, ok := known[in.Tasks[t].Name]
		if !ok || a.incarnation != in.Tasks[t].Incarnation {
			a = ability{name: in.Tasks[t].Name, incarnation: in.Tasks[t].Incarnation}
		}
		if used[i] > 0 && len(ables) >= fewTasks && ables[len(ables)/2] > 0 {
			a.learn(used[i], able[i]/ables[len(ables)/2])
		}
		if a.used == 0 {
			continue
		}
		a.task = t
		all.known = append(all.known, a)
		if max(a.used, used[i]) >= full { // what it is used now is enough to be careful
			all.full = append(all.full, t)
		}
	}
	if 2*len(all.full) > len(live) {
		all.full = nil // there are not the tasks that could carry it instead
	}
	return all
}

// learn takes in a measurement.
func (a *ability) learn(used, able float64) {
	if a.used == 0 {
		a.used, a.able = used, able
	}
	a.used += abilityWeight * (used - a.used)
	a.able += abilityWeight * (able - a.able)
	switch {
	case a.used >= full && a.able < slow:
		a.slow = true
	case a.able >= recovered:
		a.slow = false
	}
}

// limit takes off the capacities of tasks what they have been found not to be able to do.
func (l *abilities) limit(capacity []float64, tasks []assignment.Task) {
	declared := slices.Clone(capacity)
	for _, a := range l.known {
		if a.slow {
			capacity[a.task] *= min(max(a.able, leastAble), 1)
		}
	}
	for i, t := range tasks {
		if c, ok := carriesOf(l.less, t); ok {
			capacity[i] = min(capacity[i], declared[i]*max(c.share, leastAble))
		}
	}
}

// isFull reports whether task t is to be given nothing more.
func (l *abilities) isFull(t uint32) bool {
	_, found := slices.BinarySearch(l.full, t)
	return found
}
