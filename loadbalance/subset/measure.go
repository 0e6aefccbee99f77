package subset

import (
	"slices"
)

// Subsets returns the subsets of all s.Frontends frontends, 1 to MaxTasks, in
// order. The error is a *[FieldError].
func Subsets(a Algorithm, s Shape) ([][]int, error) {
	if err := checkRange("Frontends", s.Frontends, 1, MaxTasks); err != nil {
		return nil, err
	}
	k, err := s.size(0)
	if err != nil {
		return nil, err
	}
	rows := make([][]int, s.Frontends)
	// The last rows too need Backends.Len() places of working memory.
	flat := make([]int, 0, s.Frontends*k+s.Backends.Len())
	for m := range rows {
		start := len(flat)
		if flat, err = a.Append(flat, s, m); err != nil {
			return nil, err
		}
		rows[m] = flat[start:len(flat):len(flat)]
	}
	return rows, nil
}

// Connections returns the number of connections to each task of b: element n
// counts the subsets that hold task n, and is 0 for a hole. Entries of subsets
// that are not in b are ignored.
func Connections(subsets [][]int, b Backends) []int {
	counts := make([]int, b.Span())
	for _, subset := range subsets {
		for _, task := range subset {
			if b.Has(task) {
				counts[task]++
			}
		}
	}
	return counts
}

// Utilization measures connection balance in 0 to 1: the connections that the
// fullest backend would have if they were spread as evenly as whole connections
// allow, divided by those it has ("Reinventing Backend Subsetting at Google",
// section "The Previous Approach", Property: Connection balance, the adjusted
// form). 1 is ideal, and is returned if there are no connections.
func Utilization(subsets [][]int, b Backends) float64 {
	total, most := 0, 0
	for _, c := range Connections(subsets, b) {
		total += c
		most = max(most, c)
	}
	return utilization(total, most, b.Len())
}

func utilization(total, most, backends int) float64 {
	if total == 0 {
		return 1
	}
	return float64((total+backends-1)/backends) / float64(most)
}

// Distinct returns how many different subsets there are, order aside (article,
// Property: Subset diversity).
func Distinct(subsets [][]int) int {
	sorted := make([][]int, len(subsets))
	for i, subset := range subsets {
		sorted[i] = slices.Clone(subset)
		slices.Sort(sorted[i])
	}
	slices.SortFunc(sorted, slices.Compare[[]int])
	return len(slices.CompactFunc(sorted, slices.Equal[[]int]))
}

// A Stat sums up one measure over several cases.
type Stat struct {
	Mean  float64
	Worst float64 // the greatest value
}

// Spread measures what a rolling restart does (article, Property: Subset
// spread): for each subset, the greatest share of it, 0 to 1, that lies among
// ceil(Span/10) consecutive indexes of b, without wrapping around. Lower is
// better. No subsets give zeros.
func Spread(subsets [][]int, b Backends) Stat {
	window := (b.Span() + 9) / 10
	var worst shares
	var sorted []int
	for _, subset := range subsets {
		sorted = append(sorted[:0], subset...)
		slices.Sort(sorted)
		most, first := 0, 0
		for i, task := range sorted {
			for task-sorted[first] >= window {
				first++
			}
			most = max(most, i-first+1)
		}
		worst.add(most, len(subset))
	}
	return worst.stat()
}

// shares accumulates fractions.
type shares struct {
	sum, worst float64
	n          int
}

// add adds part of whole. A part of nothing is no case.
func (s *shares) add(part, whole int) {
	if whole == 0 {
		return
	}
	x := float64(part) / float64(whole)
	s.sum += x
	s.worst = max(s.worst, x)
	s.n++
}

func (s *shares) stat() Stat {
	if s.n == 0 {
		return Stat{}
	}
	return Stat{Mean: s.sum / float64(s.n), Worst: s.worst}
}
