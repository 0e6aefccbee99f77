package deploy

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

// metric is what there is of a metric.
type metric struct {
	labels    []string
	histogram bool
}

// others are metrics that do not come from the table: of the Go client, and slicer_build_info.
var others = map[string]metric{
	"slicer_build_info":             {labels: []string{"program", "version"}},
	"process_cpu_seconds_total":     {},
	"process_resident_memory_bytes": {},
}

// registered are labels that a registerer adds to all metrics of a library.
var registered = map[string][]string{
	"slicer_clerk_": {"job"}, "slicer_slicelet_": {"job", "task"}, "slicer_clerkgrpc_": {"job"}, "slicer_clerkhttp_": {"job"},
}

// metrics are those of the table that test/house makes of the programs, and those of
// slicerctl probe, by its source.
func metrics(t *testing.T) map[string]metric {
	t.Helper()
	all := maps.Clone(others)
	for _, m := range regexp.MustCompile("(?m)^\\| `(slicer_[a-z_]+)` \\| ([^|]*) \\|").FindAllStringSubmatch(read(t, "docs", "REFERENCE.md"), -1) {
		found := metric{labels: []string{"instance"}}
		for l := range strings.SplitSeq(m[2], ",") {
			if l = strings.Trim(l, " `"); l != "" {
				found.labels = append(found.labels, l)
			}
		}
		for prefix, more := range registered {
			if strings.HasPrefix(m[1], prefix) {
				found.labels = append(found.labels, more...)
			}
		}
		all[m[1]] = found
	}
	source, err := os.ReadFile(filepath.Join(top, "cmd", "internal", "ctl", "prober.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`Name: "(slicer_probe_\w+)",(?s:.*?)\[\]string\{([^}]*)\}`).FindAllStringSubmatch(string(source), -1) {
		found := metric{labels: []string{"instance"}}
		for l := range strings.SplitSeq(m[2], ",") {
			found.labels = append(found.labels, strings.Trim(l, ` "`))
		}
		all[m[1]] = found
	}
	histograms(t, all)
	if len(all) < 100 {
		t.Fatalf("only %d metrics", len(all))
	}
	return all
}

// histograms marks those whose sources make a histogram of them.
func histograms(t *testing.T, all map[string]metric) {
	made := regexp.MustCompile(`HistogramOpts\{\s*Name:\s*(?:prefix \+ )?"(\w+)"`)
	n := 0
	for _, folder := range []string{"assigner", "distributor", "clerk", "slicelet", "cmd"} {
		err := filepath.WalkDir(filepath.Join(top, folder), func(path string, _ os.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			data, err := os.ReadFile(path)
			for _, m := range made.FindAllSubmatch(data, -1) {
				for name, found := range all {
					if name == string(m[1]) || name == "slicer_"+folder+"_"+string(m[1]) {
						found.histogram = true
						all[name] = found
						n++
					}
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if n < 6 {
		t.Fatalf("only %d histograms were found", n)
	}
}

// queries of a file, by what they are for.
type queries map[string]string

func rules(t *testing.T, file string) (queries, []rulefmt.Rule) {
	t.Helper()
	groups, errs := rulefmt.Parse([]byte(read(t, file)), false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	for _, err := range errs {
		t.Errorf("%s: %v", file, err)
	}
	found, all := queries{}, []rulefmt.Rule(nil)
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			found[file+" "+r.Alert+r.Record] = r.Expr
			all = append(all, r)
		}
	}
	return found, all
}

// TestQueries: each query of alerts, recording rules and the dashboard parses, and names
// metrics and labels that exist.
func TestQueries(t *testing.T) {
	known := metrics(t)
	recorded, all := rules(t, "rules.yaml")
	for _, r := range all {
		out, ok := outcome(t, r.Record, r.Expr)
		if ok {
			known[r.Record] = metric{labels: out}
		}
	}
	alerts, _ := rules(t, "alerts.yaml")
	board := dashboard(t)
	for _, part := range []queries{recorded, alerts, board} {
		if len(part) < 10 {
			t.Errorf("only %d queries", len(part))
		}
		for _, name := range slices.Sorted(maps.Keys(part)) {
			for _, fault := range faults(part[name], known) {
				t.Errorf("%s: %s", name, fault)
			}
		}
	}
	used := false
	for _, q := range board {
		used = used || strings.Contains(q, ":slicer_")
	}
	for record := range recorded {
		name := strings.Fields(record)[1]
		if !slices.ContainsFunc(slices.Collect(maps.Values(board)), func(q string) bool { return strings.Contains(q, name) }) && !strings.Contains(read(t, "rules.yaml"), "/ "+name) {
			t.Errorf("%s is recorded for nothing", name)
		}
	}
	if !used {
		t.Error("the dashboard uses no recording rule")
	}
	t.Logf("%d metrics, %d recording rules, %d alerts, %d queries of the dashboard", len(known), len(recorded), len(alerts), len(board))
}

func TestQueriesCanFail(t *testing.T) {
	known := map[string]metric{"a_total": {labels: []string{"job"}}, "h_seconds": {labels: []string{"job"}, histogram: true}}
	for query, want := range map[string]int{
		`sum by (job) (rate(a_total{job="x"}[5m]))`: 0, `histogram_quantile(.9, sum by (le) (rate(h_seconds_bucket[5m])))`: 0,
		`b_total`: 1, `a_total{jobs="x"}`: 1, `sum by (jobs) (a_total)`: 1, `a_total_bucket`: 1, `h_seconds`: 1, `sum(`: 1, `{job="x"}`: 1,
		`a_total * on (jobs) h_seconds_count`: 2, `a_total{le="1"}`: 1,
	} {
		if got := faults(query, known); len(got) != want {
			t.Errorf("%s: %q, want %d", query, got, want)
		}
	}
}

// outcome is the labels that a recording rule's expression leaves.
func outcome(t *testing.T, name, query string) ([]string, bool) {
	t.Helper()
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(query)
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return nil, false
	}
	var out []string
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		if a, ok := n.(*parser.AggregateExpr); ok {
			if a.Without {
				return fmt.Errorf("without is not allowed")
			}
			for _, l := range a.Grouping {
				if l != "le" && !slices.Contains(out, l) {
					out = append(out, l)
				}
			}
		}
		return nil
	})
	return out, true
}

// faults are the metrics and labels of a query that do not exist.
func faults(query string, known map[string]metric) (bad []string) {
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(query)
	if err != nil {
		return []string{err.Error()}
	}
	// below are the labels of all metrics below a node.
	below := func(n parser.Node) (all []string) {
		parser.Inspect(n, func(n parser.Node, _ []parser.Node) error {
			if v, ok := n.(*parser.VectorSelector); ok {
				ls, _ := lookup(v.Name, known)
				all = append(all, ls...)
			}
			return nil
		})
		return all
	}
	asks := func(n parser.Node, wanted []string) {
		has := below(n)
		for _, l := range wanted {
			if !slices.Contains(has, l) {
				bad = append(bad, "there is no label "+l+" in "+n.String())
			}
		}
	}
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.VectorSelector:
			if n.Name == "" {
				bad = append(bad, "a selector without a metric: "+n.String())
				break
			}
			has, ok := lookup(n.Name, known)
			if !ok {
				bad = append(bad, "there is no metric "+n.Name)
				break
			}
			for _, m := range n.LabelMatchers {
				if m.Name != labels.MetricName && !slices.Contains(has, m.Name) {
					bad = append(bad, n.Name+" has no label "+m.Name)
				}
			}
		case *parser.AggregateExpr:
			asks(n, n.Grouping)
		case *parser.BinaryExpr:
			if n.VectorMatching != nil && n.VectorMatching.On {
				asks(n.LHS, n.VectorMatching.MatchingLabels)
				asks(n.RHS, n.VectorMatching.MatchingLabels)
				asks(n, n.VectorMatching.Include)
			}
		}
		return nil
	})
	return slices.Compact(bad)
}

// lookup returns the labels of a series.
func lookup(series string, known map[string]metric) ([]string, bool) {
	if m, ok := known[series]; ok && !m.histogram {
		return append([]string{"instance"}, m.labels...), true
	}
	for suffix, more := range map[string][]string{"_bucket": {"le"}, "_count": nil, "_sum": nil} {
		if base, ok := strings.CutSuffix(series, suffix); ok && known[base].histogram {
			return append(append([]string{"instance"}, known[base].labels...), more...), true
		}
	}
	return nil, false
}

// dashboard returns the queries of the dashboard, after a look at what Grafana needs of it.
func dashboard(t *testing.T) queries {
	t.Helper()
	var board struct {
		UID, Title    string
		SchemaVersion int
		Templating    struct {
			List []struct{ Name, Type, Query string }
		}
		Panels []struct {
			ID                       int
			Type, Title, Description string
			GridPos                  struct{ X, Y, W, H int }
			Datasource               struct{ Type, UID string }
			Targets                  []struct{ RefID, Expr, LegendFormat string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, "grafana", "slicer.json")), &board); err != nil {
		t.Fatal(err)
	}
	if board.UID == "" || board.Title == "" || board.SchemaVersion == 0 {
		t.Errorf("the dashboard has no uid, title or schema: %+v", board)
	}
	variables := map[string]bool{}
	found := queries{}
	// Grafana puts a pattern in the place of a variable.
	fill := strings.NewReplacer("$job", ".*")
	for _, v := range board.Templating.List {
		variables["${"+v.Name+"}"] = true
		if m := regexp.MustCompile(`^label_values\((.*), (\w+)\)$`).FindStringSubmatch(v.Query); m != nil {
			found["variable "+v.Name] = "sum by (" + m[2] + ") (" + m[1] + ")"
		}
	}
	ids, taken := map[int]bool{}, map[[2]int]string{}
	for _, p := range board.Panels {
		if ids[p.ID] {
			t.Errorf("panel %d stands twice", p.ID)
		}
		ids[p.ID] = true
		if g := p.GridPos; g.W < 1 || g.H < 1 || g.X < 0 || g.X+g.W > 24 {
			t.Errorf("%s does not fit on the grid: %+v", p.Title, g)
		}
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if other, ok := taken[at]; ok {
					t.Fatalf("%s lies on %s", p.Title, other)
				}
				taken[at] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if p.Description == "" || len(p.Targets) == 0 || p.Datasource.Type != "prometheus" || !variables[p.Datasource.UID] {
			t.Errorf("panel %s says too little: %+v", p.Title, p)
		}
		for _, target := range p.Targets {
			query := fill.Replace(target.Expr)
			found[p.Title+" "+target.RefID] = query
			// A legend that names a label that is gone shows nothing.
			for _, l := range regexp.MustCompile(`\{\{(\w+)\}\}`).FindAllStringSubmatch(target.LegendFormat, -1) {
				found[p.Title+" "+target.RefID+" legend "+l[1]] = "sum by (" + l[1] + ") (" + query + ")"
			}
		}
	}
	return found
}
