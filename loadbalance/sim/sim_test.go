package sim_test

import (
	"encoding/json"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/loadbalance/sim"
)

func replay(t *testing.T, algorithm, workload string, tasks, rounds int) *sim.Result {
	t.Helper()
	return replayOf(t, algorithm, tasks, open(t, workload, tasks, rounds))
}

func open(t *testing.T, workload string, tasks, rounds int) sim.Source {
	t.Helper()
	src, err := sim.Workload{Name: workload, Tasks: tasks, Rounds: rounds, Seed: 3}.Open()
	if err != nil {
		t.Fatal(err)
	}
	return src
}

// record reads all of a source: making the keys of a workload takes longer than a replay.
func record(t *testing.T, src sim.Source) (all sim.Listed) {
	t.Helper()
	for {
		w, err := src.Next()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		w.Keys, w.Load, w.Able = slices.Clone(w.Keys), slices.Clone(w.Load), slices.Clone(w.Able)
		all = append(all, w)
	}
}

func replayOf(t *testing.T, algorithm string, tasks int, src sim.Source) *sim.Result {
	t.Helper()
	r, err := sim.Run(sim.Config{Algorithm: algorithm, Tasks: tasks, MaxReplicas: 10, Noise: noisy, Seed: 3}, src)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRunIsDeterministic(t *testing.T) {
	for _, alg := range sim.Algorithms {
		if d := cmp.Diff(replay(t, alg, "a", 5, 12).Summary, replay(t, alg, "a", 5, 12).Summary); d != "" {
			t.Errorf("%s: %s", alg, d)
		}
	}
}

// TestEveryWorkload plays each workload through each algorithm.
func TestEveryWorkload(t *testing.T) {
	for w := range sim.Workloads {
		windows := record(t, open(t, w, 4, 6))
		for _, alg := range sim.Algorithms {
			again := windows
			r := replayOf(t, alg, 4, &again)
			if len(r.Rounds) != 6 {
				t.Fatalf("%s, %s: %d rounds", w, alg, len(r.Rounds))
			}
			for i, round := range r.Rounds {
				if round.Imbalance < 1-1e-9 || round.Post < 1-1e-9 || round.Floor < 1 || round.Rest < 1-1e-9 ||
					round.KeyChurn < 0 || round.KeyChurn > 1+1e-9 || round.LoadChurn < 0 || round.LoadChurn > 1+1e-9 {
					t.Errorf("%s, %s, round %d: %+v", w, alg, i, round)
				}
				if math.Abs(round.Requests-2.4e6) > 1 {
					t.Errorf("%s: %f requests", w, round.Requests)
				}
			}
		}
	}
}

// TestJSON checks the names that scripts rely on.
func TestJSON(t *testing.T) {
	b, err := json.Marshal(replay(t, weighted, "a", 3, 2))
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Algorithm *string
		Tasks     *int
		Rounds    []map[string]any
		Summary   map[string]float64
	}
	if err := json.Unmarshal(b, &got); err != nil || got.Algorithm == nil || got.Tasks == nil {
		t.Fatalf("%v: %s", err, b)
	}
	for _, k := range strings.Fields("start_ms requests imbalance post floor rest key_churn load_churn moves changed splits merges slices replicas decide_ms") {
		if _, ok := got.Rounds[1][k]; !ok || len(got.Rounds[1]) != 15 {
			t.Errorf("round: no %s in %v", k, got.Rounds[1])
		}
	}
	for _, k := range strings.Fields("mean_imbalance p95_imbalance max_imbalance final_imbalance mean_over_floor " +
		"mean_post_over_floor mean_rest mean_key_churn mean_load_churn max_slices_per_task changed_rounds") {
		if _, ok := got.Summary[k]; !ok || len(got.Summary) != 11 {
			t.Errorf("summary: no %s in %v", k, got.Summary)
		}
	}
}

func TestSummarize(t *testing.T) {
	rounds := make([]sim.Round, 40)
	for i := range rounds {
		rounds[i] = sim.Round{Imbalance: float64(i + 1), Post: 2, Floor: 2, Rest: 1, KeyChurn: .5, LoadChurn: .25, Changed: i%4 == 0, Slices: 10 * i}
	}
	want := sim.Summary{
		MeanImbalance: 20.5, P95Imbalance: 38, MaxImbalance: 40, FinalImbalance: 40, MeanOverFloor: 10.25, MeanPostOverFloor: 1,
		MeanRest: 1, MeanKeyChurn: .5, MeanLoadChurn: .25, MaxSlicesPerTask: 39, ChangedRounds: .25,
	}
	if d := cmp.Diff(want, sim.Summarize(rounds, 10)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(sim.Summary{}, sim.Summarize(nil, 10)); d != "" {
		t.Error(d)
	}
}

func TestFloor(t *testing.T) {
	for _, c := range []struct {
		name        string
		load        []float64
		n, replicas int
		want        float64
	}{
		{"no load", nil, 3, 1, 1},
		{"even", []float64{1, 1, 1, 1}, 2, 1, 1},
		{"one hot key", []float64{8, 1, 1}, 10, 1, 8},
		{"replicated", []float64{8, 1, 1}, 10, 4, 2},
		{"more replicas than tasks", []float64{8, 1, 1}, 2, 4, 1},
		{"two keys must share a task", []float64{2, 2, 2}, 2, 1, 4. / 3},
		{"three keys must share a task", []float64{3, 3, 3, 3, 3}, 2, 1, 9 / 7.5},
	} {
		if got := sim.Floor(c.load, c.n, c.replicas); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%s: %g, want %g", c.name, got, c.want)
		}
	}
}

func TestBadInput(t *testing.T) {
	good := sim.Config{Algorithm: weighted, Tasks: 3}
	for field, change := range map[string]func(*sim.Config){
		"algorithm":    func(c *sim.Config) { c.Algorithm = "x" },
		"tasks":        func(c *sim.Config) { c.Tasks = 0 },
		"interval":     func(c *sim.Config) { c.IntervalMS = -1 },
		"interval ":    func(c *sim.Config) { c.IntervalMS = 99 },
		"interval  ":   func(c *sim.Config) { c.IntervalMS = 3_600_001 },
		"parts":        func(c *sim.Config) { c.Parts = 100 },
		"noise":        func(c *sim.Config) { c.Noise.Slice = math.NaN() },
		"min_replicas": func(c *sim.Config) { c.MinReplicas, c.MaxReplicas = 5, 2 },
	} {
		c := good
		change(&c)
		src, err := sim.Workload{Name: "a", Tasks: 3, Rounds: 1}.Open()
		if err != nil {
			t.Fatal(err)
		}
		_, err = sim.Run(c, src)
		if fe := (*assignment.FieldError)(nil); !errors.As(err, &fe) || fe.Field != strings.TrimSpace(field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	for _, w := range []sim.Workload{{Name: "x", Tasks: 1}, {Name: "a"}, {Name: "a", Tasks: 1, Requests: -1}, {Name: "a", Tasks: 1, Rounds: -1}} {
		if _, err := w.Open(); err == nil {
			t.Errorf("%+v was accepted", w)
		}
	}
	r, err := sim.NewTraceReader("", strings.NewReader("1,a,1\n1,a,x\n"))
	if err != nil {
		t.Fatal(err)
	}
	src, err := sim.Windows(r, 10)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sim.Run(good, src); err == nil || !strings.Contains(err.Error(), "line 2: load") {
		t.Errorf("a broken trace: %v", err)
	}
}
