package house

import (
	"cmp"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/slicer-project/slicer/assignment"
)

// TestAlerts holds deploy/alerts.yaml to the table of metrics in deploy/docs: names, and the
// labels that are asked for; to how long what it waits for can last; and to a runbook
// for each. Of slicerctl probe, whose help has its metrics, it takes the source.
func TestAlerts(t *testing.T) {
	metrics := documentedMetrics(t)
	runbooks := pages(t)["deploy/docs/OPERATIONS.md"]
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	data, err := os.ReadFile(filepath.Join(root(t), "deploy", "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Groups) != 1 || len(file.Groups[0].Rules) < 8 {
		t.Fatalf("there are too few alerts: %+v", file)
	}
	selector := regexp.MustCompile(`(slicer_[a-z_]+)(?:\{([a-z_]+)=)?`)
	used := regexp.MustCompile(`\$labels\.([a-z]+)`)
	window := regexp.MustCompile(`increase\([^\[]*\[(\w+)\]`)
	// States that end by themselves.
	lasts := map[string]time.Duration{`slicer_assigner_frozen{by="assigner"}`: assignment.JobConfig{}.WithDefaults().Freeze.For}
	duration := func(s string) time.Duration {
		d, err := time.ParseDuration(s)
		if err != nil {
			t.Error(err)
		}
		return d
	}
	for _, r := range file.Groups[0].Rules {
		wait := duration(cmp.Or(r.For, "0s"))
		for _, m := range window.FindAllStringSubmatch(r.Expr, -1) {
			if w := duration(m[1]); wait > w/2 {
				t.Errorf("alert %s waits for %s, and what increases once is seen for %s", r.Alert, wait, w)
			}
		}
		for state, d := range lasts {
			if strings.Contains(r.Expr, state) && wait > d/2 {
				t.Errorf("alert %s waits for %s, and %s lasts for %s at most", r.Alert, wait, state, d)
			}
		}
		if want := "deploy/docs/OPERATIONS.md#" + strings.ToLower(r.Alert); r.Annotations["runbook"] != want {
			t.Errorf("alert %s has the runbook %q, not %q", r.Alert, r.Annotations["runbook"], want)
		}
		if n := strings.Count(runbooks, "\n### "+r.Alert+"\n"); n != 1 {
			t.Errorf("OPERATIONS.md has %d runbooks for %s", n, r.Alert)
		}
		found := selector.FindAllStringSubmatch(r.Expr, -1)
		if r.Alert == "" || len(found) == 0 || r.Annotations["summary"] == "" || r.Annotations["do"] == "" || !slices.Contains([]string{"page", "ticket"}, r.Labels["severity"]) {
			t.Errorf("alert %q says too little: %+v", r.Alert, r)
		}
		for _, m := range found {
			labels, ok := metrics[m[1]]
			if !ok || m[2] != "" && !slices.Contains(labels, m[2]) {
				t.Errorf("alert %s: there is no metric %s with a label %q", r.Alert, m[1], m[2])
			}
			for _, u := range used.FindAllStringSubmatch(r.Annotations["summary"]+r.Annotations["do"], -1) {
				if l := u[1]; l != "instance" && !slices.Contains(labels, l) {
					t.Errorf("alert %s speaks of the label %s, which %s does not have", r.Alert, l, m[1])
				}
			}
		}
	}
}

// TestDocsMetricNames holds the metrics that any page names to the table.
func TestDocsMetricNames(t *testing.T) {
	metrics, texts := documentedMetrics(t), pages(t)
	for _, page := range slices.Sorted(maps.Keys(texts)) {
		for _, m := range regexp.MustCompile("`(slicer_[a-z_]+)").FindAllStringSubmatch(texts[page], -1) {
			if metrics[m[1]] == nil {
				t.Errorf("%s: there is no metric %s", page, m[1])
			}
		}
	}
}

// TestRunbooks looks for runbooks of alerts that are not there any more.
func TestRunbooks(t *testing.T) {
	rules, err := os.ReadFile(filepath.Join(root(t), "deploy", "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^### (Slicer\w+)$`).FindAllStringSubmatch(pages(t)["deploy/docs/OPERATIONS.md"], -1) {
		if !strings.Contains(string(rules), "alert: "+m[1]+"\n") {
			t.Errorf("OPERATIONS.md has a runbook for %s, which is no alert", m[1])
		}
	}
}

// documentedMetrics are the metrics that deploy/docs names, with their labels, and those of
// slicerctl probe.
func documentedMetrics(t *testing.T) map[string][]string {
	metrics := make(map[string][]string)
	text, err := os.ReadFile(filepath.Join(root(t), reference))
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| `(slicer_[a-z_]+)` \\| ([^|]*) \\|")
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		for label := range strings.SplitSeq(m[2], ",") {
			metrics[m[1]] = append(metrics[m[1]], strings.Trim(label, " `"))
		}
		if strings.HasPrefix(m[1], "slicer_clerk_") || strings.HasPrefix(m[1], "slicer_slicelet_") {
			metrics[m[1]] = append(metrics[m[1]], "job")
		}
	}
	probe, err := os.ReadFile(filepath.Join(root(t), "cmd", "internal", "ctl", "prober.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`Name: "(slicer_probe_[a-z_]+)"`).FindAllStringSubmatch(string(probe), -1) {
		metrics[m[1]] = []string{"job", "target", "result"}
	}
	return metrics
}
