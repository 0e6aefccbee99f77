package plan

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/slicer-project/slicer/deploy/plot"
	"github.com/slicer-project/slicer/loadbalance/subset"
)

// stat is a share of 0 to 1.
type stat struct {
	Mean  float64 `json:"mean"`
	Worst float64 `json:"worst"`
}

func (s stat) String() string { return fmt.Sprintf("%.3f (%.2f)", s.Mean, s.Worst) }

// properties are what one scenario and the grid have in common.
type properties struct {
	BackendChurn  stat `json:"backend_churn"`
	SizeChurn     stat `json:"size_churn"`
	FrontendChurn stat `json:"frontend_churn"`
	Spread        stat `json:"spread"`
}

var propertyTitles = []string{"backend churn", "size churn", "frontend churn", "spread"}

func (p properties) cells() []string {
	return []string{p.BackendChurn.String(), p.SizeChurn.String(), p.FrontendChurn.String(), p.Spread.String()}
}

// scenario is one algorithm's measures at one shape.
type scenario struct {
	Algorithm string `json:"algorithm"`
	shape
	Utilization      float64 `json:"utilization"`
	LeastConnections int     `json:"least_connections"`
	MostConnections  int     `json:"most_connections"`
	Distinct         int     `json:"distinct"`
	properties
}

// overGrid is one algorithm's measures over a grid.
type overGrid struct {
	Algorithm      string  `json:"algorithm"`
	Size           int     `json:"size"`
	Scenarios      int     `json:"scenarios"`
	Utilization    float64 `json:"utilization"`
	UtilizationP5  float64 `json:"utilization_p5"`
	UtilizationMin float64 `json:"utilization_min"`
	DistinctMin    int     `json:"distinct_min"`
	DistinctMax    int     `json:"distinct_max"`
	properties
}

// change is what a change of shape does to one algorithm's connections.
type change struct {
	Algorithm   string  `json:"algorithm"`
	From        shape   `json:"from"`
	To          shape   `json:"to"`
	Frontends   int     `json:"frontends"`
	Held        int     `json:"held"`
	Dropped     int     `json:"dropped"`
	Opened      int     `json:"opened"`
	MostDropped int     `json:"most_dropped"`
	Mean        float64 `json:"mean"`
	Worst       float64 `json:"worst"`
}

// run measures, draws and prints.
func (s *subsetting) run(ctx context.Context, w io.Writer, algorithms []subset.Algorithm, asJSON bool) error {
	if s.plot != "" {
		f, err := s.figure(ctx, algorithms)
		if err != nil {
			return err
		}
		if err := f.WriteFile(s.plot); err != nil {
			return err
		}
	}
	switch {
	case s.subsets:
		return s.printSubsets(w, algorithms[0], asJSON)
	case s.from != "":
		from, err := parseShape("from", s.from)
		if err != nil {
			return err
		}
		to, err := parseShape("to", s.to)
		if err != nil {
			return err
		}
		return report(ctx, w, algorithms, asJSON, func(a subset.Algorithm) (change, error) { return measureChange(a, from, to) },
			fmt.Sprintf("from M,N,K = %s to %s", from, to),
			[]string{"algorithm", "frontends", "held", "dropped", "opened", "most of one", "dropped share"},
			func(c change) []string {
				return []string{c.Algorithm, fmt.Sprint(c.Frontends), fmt.Sprint(c.Held), fmt.Sprint(c.Dropped), fmt.Sprint(c.Opened), fmt.Sprint(c.MostDropped), stat{c.Mean, c.Worst}.String()}
			})
	case s.shape.Frontends > 0:
		return report(ctx, w, algorithms, asJSON, func(a subset.Algorithm) (scenario, error) { return measureScenario(a, s.shape) },
			fmt.Sprintf("%d frontends, %d of %d backends each", s.shape.Frontends, min(s.shape.Size, s.shape.Backends), s.shape.Backends),
			append([]string{"algorithm", "utilization", "connections", "distinct"}, propertyTitles...),
			func(r scenario) []string {
				return append([]string{r.Algorithm, fmt.Sprintf("%.3f", r.Utilization), fmt.Sprintf("%d to %d", r.LeastConnections, r.MostConnections), fmt.Sprint(r.Distinct)}, r.cells()...)
			})
	}
	g := s.grid()
	return report(ctx, w, algorithms, asJSON, func(a subset.Algorithm) (overGrid, error) { return measureGrid(a, g) },
		fmt.Sprintf("means over M of 1 to %d and N of %d to %d with M*K > N, K = %d", g.MaxFrontends, g.MinBackends, g.MaxBackends, g.Size),
		append([]string{"algorithm", "utilization", "p5", "min", "distinct"}, propertyTitles...),
		func(r overGrid) []string {
			return append([]string{r.Algorithm, fmt.Sprintf("%.3f", r.Utilization), fmt.Sprintf("%.3f", r.UtilizationP5), fmt.Sprintf("%.3f", r.UtilizationMin), fmt.Sprintf("%d to %d", r.DistinctMin, r.DistinctMax)}, r.cells()...)
		})
}

// report measures each algorithm and prints rows or JSON.
func report[T any](ctx context.Context, w io.Writer, algorithms []subset.Algorithm, asJSON bool, measure func(subset.Algorithm) (T, error), head string, titles []string, row func(T) []string) error {
	var all []T
	table := [][]string{titles}
	for _, a := range algorithms {
		if err := ctx.Err(); err != nil {
			return err
		}
		r, err := measure(a)
		if err != nil {
			return err
		}
		all = append(all, r)
		table = append(table, row(r))
	}
	switch {
	case !asJSON:
		fmt.Fprintf(w, "%s; shares are means, and in brackets the worst\n\n", head)
		return printTable(w, table)
	case len(algorithms) == 1:
		return printJSON(w, all[0])
	}
	return printJSON(w, all)
}

func (s *subsetting) grid() subset.Grid {
	g := subset.ArticleGrid()
	g.Size, g.MinBackends = s.shape.Size, s.shape.Size
	return g
}

func measureGrid(a subset.Algorithm, g subset.Grid) (overGrid, error) {
	m, err := g.Summarize(a)
	return overGrid{
		Algorithm: a.Name(), Size: g.Size, Scenarios: m.Scenarios,
		Utilization: m.Utilization, UtilizationP5: m.Utilization5th, UtilizationMin: m.UtilizationMin,
		DistinctMin: m.DistinctMin, DistinctMax: m.DistinctMax,
		properties: properties{stat(m.BackendChurn), stat(m.SizeChurn), stat(m.FrontendChurn), stat(m.Spread)},
	}, err
}

func measureScenario(a subset.Algorithm, s shape) (scenario, error) {
	r := scenario{Algorithm: a.Name(), shape: s}
	base, err := subset.Subsets(a, s.of())
	if err != nil {
		return r, err
	}
	b := subset.Dense(s.Backends)
	r.Utilization, r.Distinct, r.Spread = subset.Utilization(base, b), subset.Distinct(base), stat(subset.Spread(base, b))
	connections := subset.Connections(base, b)
	r.LeastConnections, r.MostConnections = slices.Min(connections), slices.Max(connections)
	for _, c := range []struct {
		into     *stat
		from, to shape
	}{
		{&r.BackendChurn, s, shape{s.Frontends, s.Backends + 1, s.Size}},
		{&r.SizeChurn, shape{s.Frontends, s.Backends, s.Size - 1}, s},
		{&r.FrontendChurn, s, shape{s.Frontends + 1, s.Backends, s.Size}},
	} {
		if c.from.Size == 0 {
			continue
		}
		ch, err := measureChange(a, c.from, c.to)
		if err != nil {
			return r, err
		}
		*c.into = stat{ch.Mean, ch.Worst}
	}
	return r, nil
}

func measureChange(a subset.Algorithm, from, to shape) (change, error) {
	r := change{Algorithm: a.Name(), From: from, To: to}
	before, err := subset.Subsets(a, from.of())
	if err != nil {
		return r, err
	}
	after, err := subset.Subsets(a, to.of())
	if err != nil {
		return r, err
	}
	c := subset.Compare(before, after)
	r.Frontends, r.Held, r.Dropped, r.Opened, r.MostDropped, r.Mean, r.Worst = c.Frontends, c.Held, c.Dropped, c.Opened, c.MostDropped, c.Mean, c.Worst
	return r, nil
}

// figure2 is what the article's Figure 2 shows, in its order.
var figure2 = []subset.Algorithm{
	subset.Random{}, subset.DeterministicBalanced{},
	subset.Ringsteady{Scaling: subset.RawPositions}, subset.Ringsteady{Scaling: subset.BackendScaled},
}

// figure draws the article's Figure 2, and what was asked for after it.
func (s *subsetting) figure(ctx context.Context, algorithms []subset.Algorithm) (plot.Figure, error) {
	g := s.grid()
	f := plot.Figure{
		Title:   "Connection balance of subsetting in a variety of scenarios",
		Notes:   []string{fmt.Sprintf("All M of 1 to %d, N of %d to %d with M*K > N, K = %d: where scenarios lie, the darker the more, and their mean", g.MaxFrontends, g.MinBackends, g.MaxBackends, g.Size)},
		Columns: 2,
	}
	shown := slices.Clone(figure2)
	for _, a := range algorithms {
		if !slices.Contains(shown, a) {
			shown = append(shown, a)
		}
	}
	if len(shown) > len(figure2) {
		f.Columns = 3
	}
	for i, a := range shown {
		if err := ctx.Err(); err != nil {
			return f, err
		}
		var points plot.Series
		err := g.Utilization(a, func(frontends, backends int, u float64) {
			points.X, points.Y = append(points.X, float64(frontends)/float64(backends)), append(points.Y, u)
		})
		if err != nil {
			return f, err
		}
		f.Panels = append(f.Panels, plot.Panel{
			Title: fmt.Sprintf("(%c) %s", 'a'+i, a.Name()), XLabel: "M / N", YLabel: "utilization",
			Series: []plot.Series{points}, Cloud: true, LogX: true, YMax: 1,
		})
	}
	return f, nil
}
