package sim

import "slices"

// Floor is the imbalance that no assignment of whole keys to n equal tasks can
// go below when a key may be on at most replicas tasks: at least 1. Without
// replicas it also heeds that some task must hold k+1 of the kn+1 heaviest keys.
func Floor(load []float64, n, replicas int) float64 {
	total, top := 0.0, 0.0
	for _, v := range load {
		total += v
		top = max(top, v)
	}
	if total <= 0 || n < 1 {
		return 1
	}
	mean := total / float64(n)
	f := max(1, top/mean/float64(min(max(replicas, 1), n)))
	if replicas > 1 || n == 1 {
		return f
	}
	// Keys lighter than this cannot lift a pair above what is known already.
	heavy := make([]float64, 0, 2*n)
	for _, v := range load {
		if v > mean/64 {
			heavy = append(heavy, v)
		}
	}
	slices.SortFunc(heavy, func(a, b float64) int {
		if a > b {
			return -1
		} else if a < b {
			return 1
		}
		return 0
	})
	for k := 1; k*n < len(heavy); k++ {
		sum := 0.0
		for _, v := range heavy[k*n-k : k*n+1] {
			sum += v
		}
		f = max(f, sum/mean)
	}
	return f
}
