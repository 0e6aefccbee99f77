package loadbalance

import (
	"cmp"
	"slices"
)

// aim finds the level that moving tries to bring all tasks down to, in load by
// capacity: the mean of what is left when slices too hot for any number of
// replicas, and the tasks that must hold them, the largest ones, are taken out.
func (b *board) aim() float64 {
	mean := b.mean()
	weights, most := b.sorted(b.weight), b.max
	var hot []float64
	for i := b.head; i >= 0; i = b.pieces[i].next {
		if b.pieces[i].load > mean*float64(most)*weights[len(weights)-1] {
			hot = append(hot, b.pieces[i].load)
		}
	}
	slices.SortFunc(hot, func(x, y float64) int { return cmp.Compare(y, x) })
	level, left, capacity := mean, b.total, float64(len(weights))
	for _, w := range hot {
		if len(weights)-most < 1 || w <= float64(most)*weights[most-1]*left/capacity {
			break
		}
		left -= w
		for _, taken := range weights[:most] {
			capacity -= taken
		}
		weights = weights[most:]
		level = left / capacity
	}
	// When all load is in such slices there is no level to speak of.
	return max(level, .01*mean)
}

// sorted are the weights or capacities of the live tasks, the largest first.
func (b *board) sorted(weight []float64) []float64 {
	w := make([]float64, len(b.live))
	for i, t := range b.live {
		w[i] = weight[t]
	}
	slices.SortFunc(w, func(x, y float64) int { return cmp.Compare(y, x) })
	return w
}
