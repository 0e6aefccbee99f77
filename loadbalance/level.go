package loadbalance

import (
	"cmp"
	"slices"
)

// aim finds the level that moving tries to bring all tasks down to, in load by
// capacity: the mean of what is left when slices too hot for any number of
// replicas, and the tasks that must hold them, are taken out.
func (b *board) aim() float64 {
	n := float64(len(b.live))
	level := b.total / n
	most := float64(b.max)
	var hot []float64
	for i := b.head; i >= 0; i = b.pieces[i].next {
		if b.pieces[i].load > level*most {
			hot = append(hot, b.pieces[i].load)
		}
	}
	slices.SortFunc(hot, func(x, y float64) int { return cmp.Compare(y, x) })
	left, tasks := b.total, n
	for _, w := range hot {
		if tasks-most < 1 || w <= most*left/tasks {
			break
		}
		left -= w
		tasks -= most
		level = left / tasks
	}
	// When all load is in such slices there is no level to speak of.
	return max(level, .01*b.total/n)
}
