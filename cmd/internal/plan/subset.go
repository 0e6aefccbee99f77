package plan

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slicer-project/slicer/cmd/internal/run"
	"github.com/slicer-project/slicer/loadbalance/subset"
)

// subsetting is what the flags of subset say.
type subsetting struct {
	algorithm string
	shape     shape
	all       bool
	subsets   bool
	from, to  string
	plot      string
}

// shape is a scenario as people give it.
type shape struct {
	Frontends int `json:"frontends"`
	Backends  int `json:"backends"`
	Size      int `json:"size"`
}

// The most that is computed at once.
const (
	maxSide        = 100_000
	maxConnections = 20_000_000
)

// Subset returns "slicerctl subset". asJSON is where --json ends up.
func Subset(asJSON *bool) *cobra.Command {
	s := subsetting{}
	article := subset.ArticleGrid()
	names := algorithmNames()
	cmd := &cobra.Command{
		Use:   "subset [flags]",
		Short: "Measure how subsetting would connect clients to servers; needs no server",
		Long: `Measures backend subsetting: M frontend tasks (clients) are each connected to K of N
backend tasks (servers). The measures are those of "Reinventing Backend Subsetting at
Google" (Communications of the ACM 66(5), 2023):

  utilization     connections of the fullest backend if they were spread as evenly as
                  whole connections allow, over those that it has: 1 is ideal
  distinct        how many of the M subsets differ, order aside
  backend churn   share of a frontend's connections dropped when N grows by 1
  size churn      the same when the size grows from K-1 to K
  frontend churn  the same when M grows by 1
  spread          the greatest share of a subset that lies in a tenth of the backends in
                  sequence, which a rolling restart takes down together: 1/10 is ideal

With --frontends and --backends they are those of that one scenario. Without, they are
the means over the article's grid: K = 20 (or --size), all M of 1 to 256 and all N of K
to 256 with M*K > N; distinct is then the fewest and the most of 256.

Algorithms, in the order of the article: ` + strings.Join(names, ", ") + `.
Use rocksteadier, the default of Slicer's clients.

--json prints one object, or with --all an array of them. For one scenario:

  {"algorithm", "frontends", "backends", "size", "utilization", "least_connections",
   "most_connections", "distinct", "backend_churn": {"mean", "worst"},
   "size_churn": {...}, "frontend_churn": {...}, "spread": {...}}

over the grid {"algorithm", "size", "scenarios", "utilization", "utilization_p5",
"utilization_min", "distinct_min", "distinct_max", and the same churns and spread};
with --from and --to {"algorithm", "from", "to", "frontends", "held", "dropped",
"opened", "most_dropped", "mean", "worst"}, which count the connections of the
frontends that exist before and after; with --subsets {"subsets": [[...], ...]}.`,
		Example: `  slicerctl subset --frontends 200 --backends 300 --size 20
  slicerctl subset --algorithm ringsteady-raw --frontends 3 --backends 10 --size 4 --subsets
  slicerctl subset --from 200,200,20 --to 200,220,20 --all
  slicerctl subset --all
  slicerctl subset --plot utilization.svg`,
		Args: run.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := s.check(cmd)
			if err != nil {
				return err
			}
			return explain(s.run(cmd.Context(), cmd.OutOrStdout(), a, *asJSON), cmd)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&s.algorithm, "algorithm", subset.Rocksteadier{}.Name(), "one of "+strings.Join(names, ", "))
	fs.IntVar(&s.shape.Frontends, "frontends", 0, "`M`, how many frontend tasks there are")
	fs.IntVar(&s.shape.Backends, "backends", 0, "`N`, how many backend tasks there are")
	fs.IntVar(&s.shape.Size, "size", article.Size, "`K`, how many backends each frontend connects to")
	fs.BoolVar(&s.all, "all", false, "compare all algorithms")
	fs.BoolVar(&s.subsets, "subsets", false, "print the subset of each frontend, most preferred backend first")
	fs.StringVar(&s.from, "from", "", "with --to: the churn of a change from `M,N,K`")
	fs.StringVar(&s.to, "to", "", "the churn of a change to `M,N,K`")
	fs.StringVar(&s.plot, "plot", "", "draw utilization against M/N over the grid (the article's Figure 2 and the algorithm) into `FILE.svg`")
	complete(cmd, "algorithm", names)
	return cmd
}

func algorithmNames() (names []string) {
	for _, a := range subset.Algorithms() {
		names = append(names, a.Name())
	}
	return names
}

// check finds what is wrong with the flags, and the algorithms to look at.
func (s *subsetting) check(cmd *cobra.Command) ([]subset.Algorithm, error) {
	given := cmd.Flags().Changed
	a, err := subset.ByName(s.algorithm)
	if err != nil {
		return nil, check(false, "algorithm", s.algorithm, "one of "+strings.Join(algorithmNames(), ", "))
	}
	churn := given("from") || given("to")
	switch {
	case given("from") != given("to"):
		return nil, run.Usagef("subset: --from and --to go together")
	case churn && (given("frontends") || given("backends") || given("size") || s.subsets || given("plot")):
		return nil, run.Usagef("subset: --from and --to bring their own M,N,K and measure nothing but churn")
	case given("frontends") && !given("backends"):
		return nil, run.Usagef("--backends: missing beside --frontends")
	case given("backends") && !given("frontends"):
		return nil, run.Usagef("--frontends: missing beside --backends")
	case s.subsets && !given("frontends"):
		return nil, run.Usagef("--subsets: needs --frontends and --backends")
	case s.subsets && s.all:
		return nil, run.Usagef("--subsets: of one algorithm, not of --all")
	}
	if err := checkPlot(cmd, s.plot); err != nil {
		return nil, err
	}
	if given("frontends") {
		err = s.shape.check("frontends", "backends", "size")
	} else if !churn {
		err = check(s.shape.Size >= 1 && s.shape.Size <= subset.ArticleGrid().MaxBackends, "size", s.shape.Size, fmt.Sprintf("1 to %d without --frontends and --backends", subset.ArticleGrid().MaxBackends))
	}
	if s.all {
		return subset.Algorithms(), err
	}
	return []subset.Algorithm{a}, err
}

func (s shape) check(frontends, backends, size string) error {
	side := fmt.Sprintf("1 to %d", maxSide)
	for _, err := range []error{
		check(s.Frontends >= 1 && s.Frontends <= maxSide, frontends, s.Frontends, side),
		check(s.Backends >= 1 && s.Backends <= maxSide, backends, s.Backends, side),
		check(s.Size >= 1 && s.Size <= maxSide, size, s.Size, side),
		check(s.Frontends*min(s.Size, s.Backends) <= maxConnections, size, s.Size, fmt.Sprintf("at most %d connections in all", maxConnections)),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

// parseShape reads M,N,K.
func parseShape(flag, text string) (shape, error) {
	parts := strings.Split(text, ",")
	var n [3]int
	if len(parts) != len(n) {
		return shape{}, check(false, flag, text, "three numbers M,N,K: frontends, backends and size")
	}
	for i, p := range parts {
		v, err := strconv.Atoi(strings.TrimSpace(p))
		if err != nil {
			return shape{}, check(false, flag, text, "three numbers M,N,K: frontends, backends and size")
		}
		n[i] = v
	}
	s := shape{n[0], n[1], n[2]}
	return s, s.check(flag+": frontends", flag+": backends", flag+": size")
}

func (s shape) of() subset.Shape {
	return subset.Shape{Frontends: s.Frontends, Backends: subset.Dense(s.Backends), Size: s.Size}
}

func (s shape) String() string { return fmt.Sprintf("%d,%d,%d", s.Frontends, s.Backends, s.Size) }

// printSubsets prints one frontend a line.
func (s *subsetting) printSubsets(w io.Writer, a subset.Algorithm, asJSON bool) error {
	all, err := subset.Subsets(a, s.shape.of())
	if err != nil {
		return err
	}
	if asJSON {
		return printLine(w, map[string][][]int{"subsets": all})
	}
	var b strings.Builder
	for m, of := range all {
		fmt.Fprintf(&b, "%d: %s\n", m, strings.Trim(fmt.Sprint(of), "[]"))
	}
	_, err = io.WriteString(w, b.String())
	return err
}
