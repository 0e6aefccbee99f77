package sim

import (
	"slices"
	"sort"

	"github.com/slicer-project/slicer/assignment"
)

// windowLoads answers what load lies where in one window, exactly.
type windowLoads struct {
	w     Window
	below []float64 // below[i] is the load of the first i keys
	total float64
}

// look takes over a window.
func (v *windowLoads) look(w Window) {
	v.w = w
	v.below = slices.Grow(v.below[:0], len(w.Load)+1)[:len(w.Load)+1]
	v.below[0] = 0
	sum := 0.0
	for i, x := range w.Load {
		sum += x
		v.below[i+1] = sum
	}
	v.total = sum
}

// rank is how many keys lie below k.
func (v *windowLoads) rank(k assignment.SliceKey) int {
	keys := v.w.Keys
	// Hashed keys lie nearly evenly, so the place is nearly known.
	n := len(keys)
	guess := min(int(float64(k)/float64(assignment.KeyspaceEnd)*float64(n)), n)
	lo, hi, step := guess, guess, 16
	for lo > 0 && keys[lo-1] >= k {
		lo, step = max(lo-step, 0), step*2
	}
	for step = 16; hi < n && keys[hi] < k; step *= 2 {
		hi = min(hi+step, n)
	}
	return lo + sort.Search(hi-lo, func(i int) bool { return keys[lo+i] >= k })
}

// under is the load of all keys below k.
func (v *windowLoads) under(k assignment.SliceKey) float64 { return v.below[v.rank(k)] }

// sliceLoads is the load of each slice.
func (v *windowLoads) sliceLoads(starts []assignment.SliceKey, into []float64) []float64 {
	into = slices.Grow(into[:0], len(starts))[:len(starts)]
	last := 0.0
	for i := range starts {
		end := v.total
		if i+1 < len(starts) {
			end = v.under(starts[i+1])
		}
		into[i] = end - last
		last = end
	}
	return into
}

// taskLoads is what each task carries when replicas share evenly.
func taskLoads(a *assignment.Assignment, slice []float64) []float64 {
	load := make([]float64, a.NumTasks())
	for i, v := range slice {
		r := a.Replicas(i)
		for j := range r.Len() {
			load[r.Position(j)] += v / float64(r.Len())
		}
	}
	return load
}

// carried is what becomes of the load of a task.
type carried struct {
	demand float64 // by what it can carry
	share  float64 // of its load that it does carry
}

// carries is what the tasks of a can carry of what they get; nil when it is all.
func (v *windowLoads) carries(a *assignment.Assignment) []carried {
	if v.w.Able == nil {
		return nil
	}
	c := make([]carried, a.NumTasks())
	for t, load := range taskLoads(a, v.sliceLoads(a.Columns().Starts, nil)) {
		demand := load / v.w.Able[t]
		c[t] = carried{demand, 1 / max(demand, 1)}
	}
	return c
}

// imbalance is max over mean; 1 without load.
func imbalance(load []float64) float64 {
	sum := 0.0
	for _, v := range load {
		sum += v
	}
	if sum <= 0 {
		return 1
	}
	return slices.Max(load) * float64(len(load)) / sum
}

// rest is the imbalance among the tasks that hold no key above the mean.
func (v *windowLoads) rest(a *assignment.Assignment, load []float64) float64 {
	mean := v.total / float64(len(load))
	hot := make([]bool, len(load))
	for i, x := range v.w.Load {
		if x > mean {
			r := a.Lookup(v.w.Keys[i])
			for j := range r.Len() {
				hot[r.Position(j)] = true
			}
		}
	}
	var others []float64
	for t, x := range load {
		if !hot[t] {
			others = append(others, x)
		}
	}
	if len(others) == 0 {
		return 1
	}
	return imbalance(others)
}

// churn compares two assignments over the same tasks: what came to new owners,
// and how often an owner of a piece of the keyspace changed.
func (v *windowLoads) churn(a, b *assignment.Assignment) (keys, load float64, moves int) {
	for i, k := 0, 0; i < b.NumSlices(); {
		now, old := b.Slice(i), a.Slice(k)
		both, _ := now.Intersect(old)
		r, was := b.Replicas(i), a.Replicas(k)
		fresh := 0
		for j := range r.Len() {
			if !was.Has(r.Position(j)) {
				fresh++
			}
		}
		if fresh > 0 {
			keys += both.Fraction()
			if v.total > 0 {
				load += (v.under(both.End) - v.under(both.Start)) / v.total * float64(fresh) / float64(r.Len())
			}
		}
		// What comes for what goes is one change.
		moves += max(fresh, was.Len()-(r.Len()-fresh))
		if now.End <= old.End {
			i++
		}
		if old.End <= now.End {
			k++
		}
	}
	return keys, load, moves
}
