package loadbalance

import (
	"cmp"
	"slices"
)

// aim finds the level that moving tries to bring all tasks down to, in load by
// capacity: the mean of what is left when slices too hot for any number of
// replicas are taken out, and with each what the tasks that must hold it spend on it.
func (b *placement) aim() float64 {
	mean := b.mean()
	weights := b.sorted(b.weight)
	var hot []float64
	for i := b.head; i >= 0; i = b.pieces[i].next {
		if b.pieces[i].load > mean*float64(b.max)*weights[len(weights)-1] {
			hot = append(hot, b.pieces[i].load)
		}
	}
	slices.SortFunc(hot, func(x, y float64) int { return cmp.Compare(y, x) })
	level, left, capacity := mean, b.total, float64(len(weights))
	for _, w := range hot {
		n, room := widest(weights, b.max)
		if n == 0 || capacity-room < 1e-9 || w <= room*left/capacity {
			break
		}
		left -= w
		// Replicas share evenly, so a larger task has capacity left.
		spent := weights[n-1]
		for i := range n {
			weights[i] -= spent
			capacity -= spent
		}
		if weights[0] == 0 { // they were equal
			weights = weights[n:]
		} else {
			slices.SortFunc(weights, func(x, y float64) int { return cmp.Compare(y, x) })
		}
		level = left / capacity
	}
	// When all load is in such slices there is no level to speak of.
	return max(level, .01*mean)
}

// widest says how many of the largest tasks, at most so many, are the best place for a
// slice, and how large a task they are together to it. Replicas share evenly, so the
// smallest of them decides: two that are large may hold more than five.
func widest(weights []float64, most int) (n int, room float64) {
	for r := 1; r <= min(most, len(weights)); r++ {
		if x := float64(r) * weights[r-1]; x > room {
			n, room = r, x
		}
	}
	return n, room
}

// sorted are the weights or capacities of the live tasks, the largest first.
func (b *placement) sorted(weight []float64) []float64 {
	w := make([]float64, len(b.live))
	for i, t := range b.live {
		w[i] = weight[t]
	}
	slices.SortFunc(w, func(x, y float64) int { return cmp.Compare(y, x) })
	return w
}
