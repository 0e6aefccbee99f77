package loadbalance

import (
	"slices"

	"github.com/slicer-project/slicer/assignment"
)

// placement is the working state of one round: the slices, their owners, and what each
// task carries if everything stays where it is now.
type placement struct {
	in       Input
	cfg      assignment.BalanceConfig
	min, max int // replicas, never above the number of live tasks

	pieces     []piece
	est        []estimate // by piece; nil when nothing is to be remembered
	lists      []uint32   // owners of the pieces that have several, see piece.owner
	head       int32
	n          int // pieces that are not gone
	ownerships int // of all pieces together
	most       int // ownerships that there may be

	own      [][]int32 // by task: the pieces it owns, in no order
	load     []float64 // by task
	capacity []float64 // by task, mean 1 over the live; 0 if it may not own
	weight   []float64 // by task: what it counts for, capacity unless it is new; mean 1
	allowed  []float64 // by task: up to which weight it may be given more
	young    []bool    // by task: it is to warm up; nil when none is
	live     []uint32  // tasks that may own, in order

	abilities abilities // of the live, beyond what is declared

	byName   map[string]uint32 // position in Tasks
	prevTask []int32           // by position in Prev: the same process in Tasks, or -1
	total    float64           // load of all slices; 0 when none is known
	fine     *subSliceLoad     // what is known within slices
	smooth   *smoother         // nil when nothing is to be remembered

	work *Workspace

	moved     float64 // keyspace that phase 4 reassigned
	merged    float64 // keyspace that phase 3 reassigned
	decisions []Decision
	skipped   Reason
}

// Workspace is memory that rounds work in, one after another, so that not each takes
// new. It holds nothing between them. The zero value is ready; it is not safe for
// concurrent use.
type Workspace struct {
	pieces []piece
	cells  []estimate
	lists  []int32
}

// done gives the memory back that nothing refers to when a round is over.
func (b *placement) done() {
	if b.pieces != nil {
		b.work.pieces = b.pieces
	}
	if b.est != nil {
		b.work.cells = b.est
	}
}

// growable is n elements, of any value, with room for most, in memory that is used again
// if there is enough of it.
func growable[T any](used []T, n, most int) []T {
	if cap(used) < most {
		return make([]T, n, most)
	}
	return used[:n]
}

// newPlacement lays out a round; ok is false when no task may own anything.
func newPlacement(in Input, most int) (b *placement, ok bool) {
	in.Config = in.Config.WithDefaults()
	b = &placement{in: in, cfg: in.Config.Balance, head: -1, most: most, work: in.Work}
	if b.work == nil {
		b.work = new(Workspace)
	}
	b.weigh()
	if len(b.live) == 0 {
		return b, false
	}
	b.min = min(max(in.Config.MinReplicas, 1), assignment.MaxReplicas, len(b.live))
	b.max = min(max(in.Config.MaxReplicas, b.min), assignment.MaxReplicas, len(b.live))
	b.own = make([][]int32, len(in.Tasks))
	b.load = make([]float64, len(in.Tasks))
	if in.Prev == nil {
		b.first()
		return b, true
	}
	b.place()
	b.warm()
	return b, true
}

// weigh finds the live tasks and scales capacities to a mean of 1. Capacities
// that make no sense count as the smallest allowed.
func (b *placement) weigh() {
	b.capacity = make([]float64, len(b.in.Tasks))
	for i, t := range b.in.Tasks {
		if t.State == assignment.TaskRunning {
			b.capacity[i] = capacity(t)
			b.live = append(b.live, uint32(i))
		}
	}
	b.abilities = learnAbilities(&b.in, b.live)
	b.abilities.limit(b.capacity, b.in.Tasks)
	sum := 0.0
	for _, t := range b.live {
		sum += b.capacity[t]
	}
	for _, t := range b.live {
		b.capacity[t] *= float64(len(b.live)) / sum
	}
	b.weight, b.allowed = b.capacity, b.capacity
}

func capacity(t assignment.Task) float64 {
	if t.Weight > assignment.MinWeight { // false for NaN
		return min(t.Weight, assignment.MaxWeight)
	}
	return assignment.MinWeight
}

// place puts the slices of Prev in the placement with their loads.
func (b *placement) place() {
	prev := b.in.Prev
	b.matchTasks()
	loads := b.sliceLoads()
	c := prev.Columns()
	count := make([]int32, len(b.in.Tasks))
	if len(c.Owners) > len(c.Starts) {
		b.lists = make([]uint32, 0, len(c.Owners))
	}
	b.pieces = growable(b.work.pieces, len(c.Starts), b.room())
	if b.smooth != nil {
		b.est = b.smooth.cells
	}
	for i := range b.pieces {
		s, r := prev.Slice(i), prev.Replicas(i)
		p := &b.pieces[i]
		*p = piece{start: s.Start, end: s.End, load: loads[i], prev: int32(i) - 1, next: int32(i) + 1, source: int32(i)}
		for j := range r.Len() {
			if t := b.prevTask[r.Position(j)]; t >= 0 {
				b.join(p, uint32(t))
				count[t]++
			}
		}
		b.ownerships += p.replicas()
	}
	b.head, b.n = 0, len(b.pieces)
	b.pieces[b.n-1].next = -1
	// Some slack, because splitting adds to most lists.
	all := b.ownerships + b.ownerships/2 + 8*len(count)
	b.work.lists = growable(b.work.lists, all, all)
	lists := b.work.lists
	for t, k := range count {
		k += k/2 + 8
		b.own[t], lists = lists[:0:k], lists[k:]
	}
	for i := range b.pieces {
		p := &b.pieces[i]
		for _, t := range b.owners(p) {
			b.own[t] = append(b.own[t], int32(i))
			b.load[t] += p.share()
		}
	}
}

// room is for how many pieces there should be room: splitting adds some.
func (b *placement) room() int {
	n := b.in.Prev.NumSlices()
	return n + max(min(b.maxSlices()-n, n/2), 0)
}

// matchTasks finds the tasks of Prev in the new table. A task that restarted is
// another process and so another owner.
func (b *placement) matchTasks() {
	b.byName = make(map[string]uint32, len(b.in.Tasks))
	for i, t := range b.in.Tasks {
		b.byName[t.Name] = uint32(i)
	}
	b.prevTask = make([]int32, b.in.Prev.NumTasks())
	for i, t := range b.in.Prev.Tasks() {
		b.prevTask[i] = -1
		if j, ok := b.byName[t.Name]; ok && b.in.Tasks[j].Same(t) {
			b.prevTask[i] = int32(j)
		}
	}
}

// ratio is a task's load by its capacity.
func (b *placement) ratio(t uint32) float64 { return b.load[t] / b.weight[t] }

// mean is the load of a live task of weight 1 if all were even.
func (b *placement) mean() float64 { return b.total / float64(len(b.live)) }

// add makes t an owner of piece i.
func (b *placement) add(i int32, t uint32) {
	p := &b.pieces[i]
	b.shed(p)
	b.join(p, t)
	b.ownerships++
	b.carry(p)
	b.own[t] = append(b.own[t], i)
}

// remove makes t no longer an owner of piece i.
func (b *placement) remove(i int32, t uint32) {
	p := &b.pieces[i]
	b.shed(p)
	b.leave(p, t)
	b.ownerships--
	b.carry(p)
	b.disown(i, t)
}

// replace hands piece i from one task to another.
func (b *placement) replace(i int32, from, to uint32) {
	p := &b.pieces[i]
	b.load[from] -= p.share()
	b.load[to] += p.share()
	owners := b.owners(p)
	owners[slices.Index(owners, from)] = to
	b.disown(i, from)
	b.own[to] = append(b.own[to], i)
}

func (b *placement) disown(i int32, t uint32) {
	l := b.own[t]
	k := slices.Index(l, i)
	l[k] = l[len(l)-1]
	b.own[t] = l[:len(l)-1]
}

func (b *placement) shed(p *piece) {
	for _, t := range b.owners(p) {
		b.load[t] -= p.share()
	}
}

func (b *placement) carry(p *piece) {
	for _, t := range b.owners(p) {
		b.load[t] += p.share()
	}
}

// ofLoad is the share of all load that one owner of a piece carries, of the keyspace
// while no load is known.
func (b *placement) ofLoad(p *piece) float64 {
	if b.total > 0 {
		return p.share() / b.total
	}
	return p.width() / float64(p.replicas())
}

// say records a decision. It names the slice as it is now.
func (b *placement) say(k Kind, why Reason, i int32, from, to int, benefit, keys, load float64) {
	d := Decision{Kind: k, Reason: why, Slice: b.pieces[i].slice(), Benefit: benefit, KeyChurn: keys}
	if b.total > 0 {
		d.LoadChurn = load / b.total
	}
	if from >= 0 {
		d.From = b.in.Tasks[from].Name
	}
	if to >= 0 {
		d.To = b.in.Tasks[to].Name
	}
	b.note(d)
}

// note records a decision. There may be hundreds of thousands, so room for them
// doubles.
func (b *placement) note(d Decision) {
	if n := len(b.decisions); n == cap(b.decisions) {
		b.decisions = slices.Grow(b.decisions, max(n, 8))
	}
	b.decisions = append(b.decisions, d)
}

// imbalance is the largest load over the mean, by capacity; 0 without load.
func (b *placement) imbalance() float64 {
	top, sum := 0.0, 0.0
	for _, t := range b.live {
		top = max(top, b.load[t]/b.capacity[t])
		sum += b.load[t]
	}
	if sum <= 0 {
		return 0
	}
	return top * float64(len(b.live)) / sum
}
