package loadbalance

import (
	"slices"
	"time"

	"github.com/slicer-project/slicer/assignment"
)

const (
	// leastWarm is how much of a task's capacity counts in its first moment; Envoy's
	// slow start lets a new endpoint begin with as much.
	leastWarm = .1
	// mild is the heaviest slice that a task which warms up is given, as a share of
	// all that it may have by then: so the hottest come last.
	mild = .25
	// mended is how long, in terms of the time to warm up, a new task is given what it
	// lacks even if no other is hot.
	mended = 1.5
	// enough is the part of its share from which on nothing is done about that.
	enough = .97
)

// Warmth is how much of the capacity of each task counts, by position in tasks: .1
// for one that has only just come, growing evenly to 1 within warmUp. Ages are as in
// Input. It is nil when all count in full: when none is new, and while less than
// half of the capacity is warm, as when a job starts. Then there is none that could
// bear the load instead.
func Warmth(tasks []assignment.Task, ages []time.Duration, warmUp time.Duration) []float64 {
	if !fewNew(tasks, ages, warmUp) {
		return nil
	}
	warmth := make([]float64, len(tasks))
	for i := range tasks {
		warmth[i] = 1
		if isNew(ages, i, warmUp) {
			warmth[i] = leastWarm + (1-leastWarm)*float64(ages[i])/float64(warmUp)
		}
	}
	return warmth
}

// Warming reports whether some tasks of a round are to be given more without anything
// else having changed: rounds are due until none is.
func Warming(in Input) bool {
	return fewNew(in.Tasks, in.Ages, settled(in.Config))
}

// settled is how old a task must be for nothing to be done about what it lacks.
func settled(c assignment.JobConfig) time.Duration {
	return time.Duration(mended * float64(c.WarmUp))
}

func isNew(ages []time.Duration, i int, within time.Duration) bool {
	return i < len(ages) && ages[i] >= 0 && ages[i] < within
}

// fewNew reports whether some running tasks are new, but no more than half by capacity.
func fewNew(tasks []assignment.Task, ages []time.Duration, within time.Duration) bool {
	fresh := shareNew(tasks, ages, within)
	return fresh > 0 && fresh <= .5
}

// mostNew reports whether more than half of the running tasks are new, by capacity.
func mostNew(tasks []assignment.Task, ages []time.Duration, within time.Duration) bool {
	return shareNew(tasks, ages, within) > .5
}

// shareNew is what share of the capacity of running tasks is that of new ones.
func shareNew(tasks []assignment.Task, ages []time.Duration, within time.Duration) float64 {
	fresh, sum := 0.0, 0.0
	for i, t := range tasks {
		if t.State != assignment.TaskRunning {
			continue
		}
		w := capacity(t)
		sum += w
		if isNew(ages, i, within) {
			fresh += w
		}
	}
	if sum == 0 {
		return 0
	}
	return fresh / sum
}

// warm lets new tasks count for less than their capacity. What a new task has already it
// keeps, as one that restarted at once: it counts for as much as that at least, but is
// given no more before it is warm enough.
func (b *placement) warm() {
	warmth := Warmth(b.in.Tasks, b.in.Ages, b.in.Config.WarmUp)
	if warmth == nil {
		return
	}
	held := b.held()
	b.young = make([]bool, len(b.in.Tasks))
	b.weight, b.allowed = slices.Clone(b.capacity), slices.Clone(b.capacity)
	var young []uint32
	sum := 0.0
	for _, t := range b.live {
		if warmth[t] < 1 {
			b.young[t] = true
			young = append(young, t)
			b.allowed[t] *= warmth[t]
			b.weight[t] = b.allowed[t]
		}
		sum += b.weight[t]
	}
	// To count for more makes the shares of all larger, and so what it takes to have a
	// share: this goes up to the least that is enough for all.
	for range 64 {
		before := sum
		for _, t := range young {
			w := min(max(b.allowed[t], held[t]*before), b.capacity[t])
			sum += w - b.weight[t]
			b.weight[t] = w
		}
		if sum-before < 1e-9*before {
			break
		}
	}
	for _, t := range b.live {
		b.weight[t] *= float64(len(b.live)) / sum
		b.allowed[t] *= float64(len(b.live)) / sum
	}
}

// held is the share of all that tasks of each name have in Prev, the larger of worth and
// load: a task that restarted gets it back.
func (b *placement) held() []float64 {
	worth, load := make([]float64, len(b.in.Tasks)), make([]float64, len(b.in.Tasks))
	at := make([]int, b.in.Prev.NumTasks())
	for i, t := range b.in.Prev.Tasks() {
		at[i] = -1
		if j, ok := b.byName[t.Name]; ok {
			at[i] = int(j)
		}
	}
	for i := range b.pieces {
		p, r := &b.pieces[i], b.in.Prev.Replicas(i)
		for j := range r.Len() {
			if t := at[r.Position(j)]; t >= 0 {
				worth[t] += b.worth(p) / float64(r.Len())
				if b.total > 0 {
					load[t] += p.load / b.total / float64(r.Len())
				}
			}
		}
	}
	for t := range worth {
		worth[t] = max(worth[t], load[t])
	}
	return worth
}

// fresh is how old a task may be to be given what it lacks, and whether there are
// such tasks, and enough others.
func (b *placement) fresh() (within time.Duration, some bool) {
	within = settled(b.in.Config)
	return within, fewNew(b.in.Tasks, b.in.Ages, within)
}

// missing is the share of all capacity that is not warm yet. So much will be taken
// off the others without anything being moved among them.
func (b *placement) missing() float64 {
	sum := 0.0
	for _, t := range b.live {
		if b.warms(t) {
			sum += max(b.capacity[t]-b.allowed[t], 0)
		}
	}
	return sum / float64(len(b.live))
}

func (b *placement) warms(t uint32) bool { return b.young != nil && b.young[t] }

// admits reports whether a task may be given more besides what it has; fair is what a
// task of weight 1 should have. It is so of all that are warm.
func (b *placement) admits(t uint32, has, more, fair float64) bool {
	if !b.warms(t) {
		return true
	}
	room := fair * b.allowed[t]
	return has+more/2 <= room && more <= mild*room
}

// gently is why something goes to a task: the reason itself unless that warms up.
func (b *placement) gently(why Reason, to uint32) Reason {
	if b.warms(to) {
		return ReasonWarming
	}
	return why
}

// sayCold tells of the tasks that have less than they should, as they warm up.
func (b *placement) sayCold() {
	for _, t := range b.live {
		if b.warms(t) && b.weight[t] < .99*b.capacity[t] {
			b.note(Decision{Kind: KindSkip, Reason: ReasonWarming, To: b.in.Tasks[t].Name, Benefit: 1 - b.weight[t]/b.capacity[t]})
		}
	}
}

// takers are the live tasks as those that something can be given to, by what they
// have for their weight.
type takers struct {
	*placement
	fair  float64                   // what a task of weight 1 should have
	has   func(task uint32) float64 // what it has
	warm  *taskHeap
	young *taskHeap // tasks that warm up
}

func (b *placement) newTakers(fair float64, has func(uint32) float64) *takers {
	k := &takers{placement: b, fair: fair, has: has}
	if b.young == nil {
		k.warm = newTaskHeap(len(b.load), b.live, k.ratio)
		return k
	}
	var warm, young []uint32
	for _, t := range b.live {
		if b.young[t] {
			young = append(young, t)
		} else {
			warm = append(warm, t)
		}
	}
	k.warm, k.young = newTaskHeap(len(b.load), warm, k.ratio), newTaskHeap(len(b.load), young, k.ratio)
	return k
}

func (k *takers) ratio(t uint32) float64 { return k.has(t) / k.weight[t] }

// refresh takes note that a task has something else.
func (k *takers) refresh(t uint32) {
	k.warm.set(t, k.ratio(t))
	if k.young != nil {
		k.young.set(t, k.ratio(t))
	}
}

// first finds the task that has least among those that ok accepts. Of the tasks that warm
// up only the one with least is asked, and only if it may be given more.
func (k *takers) first(more float64, ok func(uint32) bool) (uint32, bool) {
	t, found := k.warm.first(ok)
	return k.orYoung(t, found, more, ok)
}

// orYoung is the task that warms up and has less than t, if there is one.
func (k *takers) orYoung(t uint32, found bool, more float64, ok func(uint32) bool) (uint32, bool) {
	if k.young == nil || k.young.len() == 0 {
		return t, found
	}
	y := k.young.top()
	if found && k.young.key[y] >= k.warm.key[t] || !k.admits(y, k.has(y), more, k.fair) || !ok(y) {
		return t, found
	}
	return y, true
}
