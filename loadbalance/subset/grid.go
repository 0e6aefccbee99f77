package subset

import "slices"

// A Grid is a range of scenarios over which algorithms are compared: all M of 1
// to MaxFrontends with all N of MinBackends to MaxBackends, at one k.
type Grid struct {
	Size         int // k, 1 or more
	MinBackends  int // 1 or more
	MaxBackends  int // MinBackends or more
	MaxFrontends int // 2 or more
}

// ArticleGrid returns the grid of the article's figure 2: k = 20, N and M up to
// 256.
func ArticleGrid() Grid {
	return Grid{Size: 20, MinBackends: 20, MaxBackends: 256, MaxFrontends: 256}
}

func (g Grid) check() error {
	if err := checkRange("Size", g.Size, 1, MaxTasks-1); err != nil {
		return err
	}
	if err := checkRange("MinBackends", g.MinBackends, 1, MaxTasks-1); err != nil {
		return err
	}
	if err := checkRange("MaxBackends", g.MaxBackends, g.MinBackends, MaxTasks-1); err != nil {
		return err
	}
	return checkRange("MaxFrontends", g.MaxFrontends, 2, MaxTasks)
}

// Utilization calls visit with the utilization of every scenario of the grid in
// which there is something to balance, M*k > N: by N, then by M, ascending.
// This is what the article's figure 2 plots against M/N. The error is a
// *[FieldError] or one of the algorithm's.
func (g Grid) Utilization(a Algorithm, visit func(frontends, backends int, utilization float64)) error {
	if err := g.check(); err != nil {
		return err
	}
	counts := make([]int, g.MaxBackends)
	var subset []int
	for n := g.MinBackends; n <= g.MaxBackends; n++ {
		s := Shape{Backends: Dense(n), Size: g.Size}
		total, most := 0, 0
		connect := func(frontend int) (err error) {
			if subset, err = a.Append(subset[:0], s, frontend); err != nil {
				return err
			}
			total += len(subset)
			for _, task := range subset {
				counts[task]++
				most = max(most, counts[task])
			}
			return nil
		}
		clear(counts)
		for s.Frontends = 1; s.Frontends <= g.MaxFrontends; s.Frontends++ {
			// Subsets that do not depend on M are added one by one.
			first := s.Frontends - 1
			if NeedsFrontends(a) {
				clear(counts)
				first, total, most = 0, 0, 0
			}
			for frontend := first; frontend < s.Frontends; frontend++ {
				if err := connect(frontend); err != nil {
					return err
				}
			}
			if s.Frontends*g.Size > n {
				visit(s.Frontends, n, utilization(total, most, n))
			}
		}
	}
	return nil
}

// A Summary is one algorithm's row in a table of the article's properties.
type Summary struct {
	Scenarios int // scenarios with M*k > N

	// Utilization over those scenarios: mean, 5th percentile and least.
	Utilization, Utilization5th, UtilizationMin float64

	// Different subsets among MaxFrontends frontends: the fewest and the most
	// over all N.
	DistinctMin, DistinctMax int

	// Share of a frontend's connections dropped, over all N: when a backend is
	// added and when k grows to Size from one less, with MaxFrontends
	// frontends; and when a frontend is added, over all M too.
	BackendChurn, SizeChurn, FrontendChurn Stat

	// Share of a subset in a tenth of the backends (see Spread), with
	// MaxFrontends frontends, over all N of 2k or more: a subset of most of the
	// backends is spread whatever the algorithm does.
	Spread Stat
}

// Summarize measures an algorithm over the grid. The article's grid takes a
// fraction of a second, or seconds for an algorithm that depends on M. The
// error is a *[FieldError] or one of the algorithm's.
func (g Grid) Summarize(a Algorithm) (Summary, error) {
	var sum Summary
	var values []float64
	err := g.Utilization(a, func(_, _ int, u float64) {
		sum.Utilization += u
		values = append(values, u)
	})
	if err != nil {
		return Summary{}, err
	}
	if sum.Scenarios = len(values); sum.Scenarios > 0 {
		slices.Sort(values)
		sum.Utilization /= float64(len(values))
		sum.Utilization5th = values[len(values)/20]
		sum.UtilizationMin = values[0]
	}

	var backend, size, frontend, spread mean
	for n := g.MinBackends; n <= g.MaxBackends; n++ {
		s := Shape{Frontends: g.MaxFrontends, Backends: Dense(n), Size: g.Size}
		base, err := Subsets(a, s)
		if err != nil {
			return Summary{}, err
		}
		distinct := Distinct(base)
		sum.DistinctMax = max(sum.DistinctMax, distinct)
		if sum.DistinctMin == 0 || distinct < sum.DistinctMin {
			sum.DistinctMin = distinct
		}
		if n >= 2*g.Size {
			spread.add(Spread(base, s.Backends))
		}

		other := s
		other.Backends = Dense(n + 1)
		grown, err := Subsets(a, other)
		if err != nil {
			return Summary{}, err
		}
		backend.addChurn(base, grown)

		other = s
		if other.Size--; other.Size > 0 {
			smaller, err := Subsets(a, other)
			if err != nil {
				return Summary{}, err
			}
			size.addChurn(smaller, base)
		}
		if err := frontend.addFrontends(a, base, s); err != nil {
			return Summary{}, err
		}
	}
	sum.BackendChurn, sum.SizeChurn, sum.FrontendChurn = backend.stat(), size.stat(), frontend.stat()
	sum.Spread = spread.stat()
	return sum, nil
}

// mean averages the means of several stats and keeps the worst.
type mean struct {
	sum, worst float64
	n          int
}

func (m *mean) add(s Stat) {
	m.sum += s.Mean
	m.worst = max(m.worst, s.Worst)
	m.n++
}

func (m *mean) addChurn(before, after [][]int) {
	c := Compare(before, after)
	m.add(Stat{Mean: c.Mean, Worst: c.Worst})
}

func (m *mean) stat() Stat {
	if m.n == 0 {
		return Stat{}
	}
	return Stat{Mean: m.sum / float64(m.n), Worst: m.worst}
}

// addFrontends adds the churn of each step to M from M-1, down from s.Frontends.
// For an algorithm that does not depend on M one step shows as much as all.
func (m *mean) addFrontends(a Algorithm, after [][]int, s Shape) error {
	steps := s.Frontends - 1
	if !NeedsFrontends(a) {
		steps = 1
	}
	for range steps {
		s.Frontends--
		before, err := Subsets(a, s)
		if err != nil {
			return err
		}
		m.addChurn(before, after)
		after = before
	}
	return nil
}
