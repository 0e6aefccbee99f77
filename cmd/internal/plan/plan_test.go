package plan_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/slicer-project/slicer/assignment/seedtest"
	"github.com/slicer-project/slicer/cmd/internal/ctl"
	"github.com/slicer-project/slicer/cmd/internal/run"
	"github.com/slicer-project/slicer/loadbalance/sim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type fataler interface {
	Helper()
	Fatalf(string, ...any)
}

// slicerctl runs it with a server that cannot be dialled, and a trace on standard
// input.
func slicerctl(ctx context.Context, args ...string) (code int, out, errs string) {
	var o, e bytes.Buffer
	code = run.Execute(ctx, ctl.New(), append([]string{"--server", "nowhere"}, args...), strings.NewReader(trace()), &o, &e)
	return code, o.String(), e.String()
}

func must(t fataler, args ...string) string {
	t.Helper()
	code, out, errs := slicerctl(context.Background(), args...)
	if code != 0 {
		t.Fatalf("slicerctl %q: exit %d: %s", args, code, errs)
	}
	return out
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// trace has a few rounds of a second, with a hot key.
func trace() string {
	b := strings.Builder{}
	b.WriteString("unix_ms,key,load\n")
	for i := range 600 {
		fmt.Fprintf(&b, "%d,k%d,%d\n", i*10, i*i%37, 1+i%3)
	}
	return b.String()
}

// lines are a record a second.
func lines(from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, "%d,k%d,1\n", i*1000, i%7)
	}
	return b.String()
}

// decode also takes away how long decisions took, which no seed can tell.
func decode(t fataler, text string) sim.Result {
	t.Helper()
	var r sim.Result
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	for i := range r.Rounds {
		r.Rounds[i].DecideMS = 0
	}
	return r
}

func keys(m map[string]any) []string {
	var all []string
	for k := range m {
		all = append(all, k)
	}
	slices.Sort(all)
	return all
}

func words(s string) []string {
	all := strings.Fields(s)
	slices.Sort(all)
	return all
}

func TestSimulateJSON(t *testing.T) {
	file := write(t, "t.csv", trace())
	var r map[string]any
	if err := json.Unmarshal([]byte(must(t, "simulate", "--trace", file, "--interval", "1s", "--json")), &r); err != nil {
		t.Fatal(err)
	}
	rounds := r["rounds"].([]any)
	if len(rounds) != 6 {
		t.Errorf("%d rounds, want 6", len(rounds))
	}
	for _, c := range []struct {
		got  map[string]any
		want string
	}{
		{r, "algorithm tasks rounds summary"},
		{rounds[0].(map[string]any), "start_ms requests imbalance post floor rest key_churn load_churn moves changed splits merges slices replicas decide_ms"},
		{r["summary"].(map[string]any), "mean_imbalance p95_imbalance max_imbalance final_imbalance mean_over_floor mean_post_over_floor mean_rest mean_key_churn mean_load_churn max_slices_per_task changed_rounds"},
	} {
		if diff := cmp.Diff(words(c.want), keys(c.got)); diff != "" {
			t.Error(diff)
		}
	}
}

// The answer about a scene says what was moved a minute, beside the published algorithm.
func TestSimulateScene(t *testing.T) {
	scenes := []struct{ name, columns string }{{"saturated", "<1.05 after"}, {"flash-crowd", "half <1.2"}, {"steps", ""}}
	for _, s := range scenes[:seedtest.Cases(len(scenes))] {
		out := must(t, "simulate", "--scene", s.name)
		for _, want := range []string{"scene " + s.name + " (", "20 tasks", "load churn/min", "changed", "weighted-move", s.columns} {
			if !strings.Contains(out, want) {
				t.Errorf("no %q in %s", want, out)
			}
		}
	}
	var r struct {
		Motion map[string]any
		Rounds []map[string]any
	}
	if err := json.Unmarshal([]byte(must(t, "simulate", "--scene", "saturated", "--json")), &r); err != nil {
		t.Fatal(err)
	}
	want := words("over_floor max_over_floor key_churn_minute load_churn_minute changed_rounds within_ms demand")
	if diff := cmp.Diff(want, keys(r.Motion)); diff != "" || r.Rounds[0]["demand"] == nil {
		t.Error(diff)
	}
}

// Replaying all at once gives what each gives alone.
func TestSimulateAll(t *testing.T) {
	args := []string{"simulate", "--trace", write(t, "t.csv", trace()), "--interval", "1s", "--tasks", "4", "--json"}
	var all []json.RawMessage
	if err := json.Unmarshal([]byte(must(t, append(args, "--all")...)), &all); err != nil {
		t.Fatal(err)
	}
	if len(all) != len(sim.Algorithms) {
		t.Fatalf("%d results, want %d", len(all), len(sim.Algorithms))
	}
	for i, name := range sim.Algorithms {
		alone := decode(t, must(t, append(args, "--algorithm", name)...))
		if diff := cmp.Diff(alone, decode(t, string(all[i])), cmp.AllowUnexported(sim.Round{})); diff != "" || alone.Algorithm != name {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestSimulateSeed(t *testing.T) {
	file := write(t, "t.csv", trace())
	rapid.Check(t, func(t *rapid.T) {
		args := []string{
			"simulate", "--trace", file, "--json", "--interval", "2s",
			"--seed", fmt.Sprint(rapid.Uint64().Draw(t, "seed")),
			"--algorithm", rapid.SampledFrom(sim.Algorithms).Draw(t, "algorithm"),
			"--noise", fmt.Sprint(rapid.Float64Range(0, 1).Draw(t, "noise")),
			"--tasks", fmt.Sprint(rapid.IntRange(1, 9).Draw(t, "tasks")),
		}
		if diff := cmp.Diff(decode(t, must(t, args...)), decode(t, must(t, args...)), cmp.AllowUnexported(sim.Round{})); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestTraceForms(t *testing.T) {
	text := "971211336000,/a,1\n971211337000,/b,1\n971211339000,/a,1\n"
	log := `h - - [10/Oct/2000:13:55:36 -0700] "GET /a?x HTTP/1.0" 200 1 "-" "x"
h - - [10/Oct/2000:13:55:37 -0700] "GET /b HTTP/1.0" 200 1 "-" "x"
h - - [10/Oct/2000:13:55:38 -0700] "-" 408 1 "-" "x"
h - - [10/Oct/2000:13:55:39 -0700] "GET /a HTTP/1.0" 200 1 "-" "x"
`
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	io.WriteString(z, text)
	z.Close()
	var want sim.Result
	for i, file := range []string{write(t, "t.csv", text), write(t, "t.csv.gz", zipped.String()), write(t, "access.log", log)} {
		got := decode(t, must(t, "simulate", "--trace", file, "--interval", "1s", "--json"))
		if i == 0 {
			want = got
		} else if diff := cmp.Diff(want, got, cmp.AllowUnexported(sim.Round{})); diff != "" {
			t.Errorf("%s: %s", file, diff)
		}
		if out := must(t, "simulate", "--trace", file); strings.Contains(out, "1 line of the log without a path left out") != (i == 2) {
			t.Error(out)
		}
	}
}

// Malformed lines of a log change nothing but for a line on standard error.
func TestMalformedLines(t *testing.T) {
	var lines []string
	for i := range 300 {
		lines = append(lines, fmt.Sprintf("h - - [10/Oct/2000:13:%02d:%02d -0700] \"GET /%d HTTP/1.0\" 200 1\n", i/60, i%60, i*i%37))
	}
	text := strings.Join(lines, "")
	want := decode(t, must(t, "simulate", "--trace", write(t, "access.log", text), "--json"))
	lines[0], lines[7] = "cut off\n"+lines[0], lines[7]+"\x00\x00\n"
	file := write(t, "access.log", strings.Join(lines, ""))
	for _, args := range [][]string{{"--interval", "2s"}, nil} {
		code, out, errs := slicerctl(context.Background(), append(args, "simulate", "--trace", file, "--json")...)
		if code != 0 || errs != "slicerctl: malformed lines left out: 2 of 302; the first: "+file+": line 1: time: no [02/Jan/2006:15:04:05 -0700] in \"cut off\"\n" {
			t.Fatalf("exit %d: %s", code, errs)
		}
		if diff := cmp.Diff(want, decode(t, out), cmp.AllowUnexported(sim.Round{})); diff != "" {
			t.Error(diff)
		}
	}
}

func TestBadInput(t *testing.T) {
	bad := write(t, "bad.csv", "1,a,1\n2,b,x\n")
	log := write(t, "bad.log", "h - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.0\" 200 1\n"+strings.Repeat("hello\n", 11))
	dir := t.TempDir()
	full := filepath.Join(dir, "full.svg")
	if err := os.Mkdir(full, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		code int
		want string
		args string
	}{
		{1, "bad.csv: line 2: load: \"x\" is not a number", "simulate --trace " + bad},
		{1, "line 2: unix_ms: ", "simulate --trace " + write(t, "t.csv", "1,a,1\nz,b,1\n")},
		{1, "neither unix_ms,key,load nor an access log", "simulate --trace " + write(t, "x", "hello\n")},
		{1, "big.csv: line 2: load: \"1e308\" is not a number of 0 to 1e+15", "simulate --trace " + write(t, "big.csv", "1,a,1e15\n1,b,1e308\n")},
		{1, "malformed lines: 11 of 12, which is more than 1%; the first: " + log + ": line 2: time: ", "simulate --trace " + log},
		{1, "malformed lines: 11 of 12, which is more than 1%; the first: " + log + ": line 2: time: ", "simulate --json --interval 1s --trace " + log},
		{1, "rot.csv: line 31: unix_ms: 1m29s before that of line 30", "simulate --trace " + write(t, "rot.csv", lines(60, 90)+lines(0, 90))},
		{1, "rot.csv: line 2: unix_ms: 1m59s before that of line 1", "simulate --json --trace " + write(t, "rot.csv", lines(119, 120)+lines(0, 40))},
		{1, "records out of order: 40 of 41, which is more than 1%; give rotated logs oldest first, or sort", "simulate --trace " + write(t, "rot.csv", lines(119, 120)+lines(0, 40))},
		{1, "t.csv: the trace is empty", "simulate --trace " + write(t, "t.csv", "")},
		{1, "t.csv: the trace is empty", "simulate --json --interval 1s --trace " + write(t, "t.csv", "unix_ms,key,load\n")},
		{1, "t.log: nothing to replay: 1 line of the log without a path", "simulate --trace " + write(t, "t.log", "h - - [10/Oct/2000:13:55:36 -0700] \"-\" 408 1\n")},
		{1, "is a directory", "simulate --trace " + dir},
		{1, "no such file", "simulate --trace nosuch"},
		// Where the plot goes is looked at first.
		{1, "plot: ", "simulate --trace nosuch --plot /nosuch/f.svg"},
		{1, "plot: ", "subset --size 245 --plot /nosuch/f.svg"},
		{1, "it is a directory", "simulate --trace nosuch --plot " + full},
		{1, "bad.csv: line 2", "simulate --trace " + bad + " --plot " + filepath.Join(dir, "f.svg")},
		{2, "want one of --trace FILE, --workload a..h and --scene NAME", "simulate"},
		{2, "want one of --trace FILE", "simulate --trace x --workload a"},
		{2, "want one of --trace FILE", "simulate --scene steps --workload a"},
		{2, `--scene: "x" is not allowed: want one of stationary, low-rate, steps, `, "simulate --scene x"},
		{2, "a scene has its own --interval", "simulate --scene steps --interval 1s"},
		{2, `--workload: "z"`, "simulate --workload z"},
		{2, "--tasks: 0 is not allowed: want 1 to", "simulate --workload a --tasks 0"},
		{2, "--interval: ", "simulate --workload a --interval 1us"},
		{2, `--interval: "99ms" is not allowed: want 100ms to 1h`, "simulate --workload a --interval 99ms"},
		{2, `--interval: "1h0m0.001s" is not allowed: want 100ms to 1h`, "simulate --workload a --interval 3600001ms"},
		{2, "--interval", "simulate --workload a --interval 5"},
		{2, "--max-replicas: 1 is not allowed", "simulate --workload a --min-replicas 2 --max-replicas 1"},
		{2, "--min-replicas: 0", "simulate --workload a --min-replicas 0"},
		{2, "--min-replicas: 4 is not allowed: want at most 3 (--tasks)", "simulate --workload a --min-replicas 4 --tasks 3"},
		{2, `--algorithm: "x" is not allowed: want one of weighted-move`, "simulate --workload a --algorithm x"},
		{2, "--noise: NaN", "simulate --workload a --noise NaN"},
		{2, `--plot: "f.png"`, "simulate --workload a --plot f.png"},
		{2, "unexpected argument", "simulate --workload a b"},
		{2, "--backends: missing", "subset --frontends 3"},
		{2, "--backends: 0", "subset --frontends 3 --backends 0"},
		{2, "--size: 0", "subset --size 0"},
		{2, "at most 20000000 connections", "subset --frontends 100000 --backends 100000 --size 1000"},
		{2, "go together", "subset --from 1,2,3"},
		{2, `--to: "1,2" is not allowed: want three numbers`, "subset --from 1,2,3 --to 1,2"},
		{2, "--to: backends: -2", "subset --from 1,2,3 --to 1,-2,3"},
		{2, "--subsets: needs", "subset --subsets"},
		{2, `--algorithm: "x" is not allowed: want one of random`, "subset --algorithm x"},
	} {
		code, out, errs := slicerctl(context.Background(), strings.Fields(c.args)...)
		if code != c.code || !strings.Contains(errs, c.want) || out != "" || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: exit %d, want %d; %q, want %q in it; out %q", c.args, code, c.code, errs, c.want, out)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// A pipe is replayed as the file would be, and leaves nothing behind.
func TestPipes(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	file := write(t, "t.csv", trace())
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, interval := range []string{"", "--interval=1s"} {
		args := strings.Fields("simulate --json " + interval + " --trace")
		want := decode(t, must(t, append(args, file)...))
		written := make(chan error)
		go func() { written <- os.WriteFile(pipe, []byte(trace()), 0) }()
		for _, from := range []string{"-", pipe} {
			if diff := cmp.Diff(want, decode(t, must(t, append(args, from)...)), cmp.AllowUnexported(sim.Round{})); diff != "" || len(want.Rounds) < 6 {
				t.Errorf("%s %s: %s", interval, from, diff)
			}
		}
		if err := <-written; err != nil {
			t.Error(err)
		}
	}
	if out := must(t, "simulate", "--trace", "-"); !strings.HasPrefix(out, "standard input: 60 rounds of 100ms") {
		t.Error(out)
	}
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// Few records out of order change nothing but for a line on standard error.
func TestOutOfOrder(t *testing.T) {
	want := decode(t, must(t, "simulate", "--trace", write(t, "t.csv", lines(0, 100)), "--json"))
	file := write(t, "t.csv", lines(0, 100)+lines(2, 3))
	code, out, errs := slicerctl(context.Background(), "simulate", "--trace", file, "--json")
	if code != 0 || errs != "slicerctl: records out of order left out: 1 of 101; the first: "+file+": line 101: unix_ms: 1m37s before that of line 100\n" {
		t.Errorf("exit %d: %s", code, errs)
	}
	if diff := cmp.Diff(want, decode(t, out), cmp.AllowUnexported(sim.Round{})); diff != "" {
		t.Error(diff)
	}
}

// What a short answer says is true of it.
func TestHeader(t *testing.T) {
	for _, c := range []struct{ args, want, not string }{
		{"--tasks 3", "3 tasks, 1 to 3 replicas", ""},
		{"--tasks 1", "1 task, 1 replica\n", ""},
		{"--tasks 20 --min-replicas 12", "20 tasks, 12 replicas\n", ""},
		{"--interval 1s", "choose a shorter --interval", ""},
		{"--interval 100ms", "take a longer trace", "--interval"},
	} {
		out := must(t, append(strings.Fields("simulate "+c.args), "--trace", write(t, "t.csv", lines(0, 5)))...)
		if !strings.Contains(out, c.want) || c.not != "" && strings.Contains(out, c.not) {
			t.Errorf("%s: want %q and not %q in %s", c.args, c.want, c.not, out)
		}
	}
}

// Without --interval, rounds are short enough for the trace to have many.
func TestFittingInterval(t *testing.T) {
	for _, c := range []struct {
		trace, want string
	}{
		{"5,a,1\n", "of 100ms,"},
		{"0,a,1\n5000,b,1\n", "of 100ms,"},
		{"1000,a,1\n239577,b,1\n", "of 2s,"},
		{"0,a,1\n29999999,b,1\n", "of 2m,"},
		{"0,a,1\n30000000,b,1\n", "of 5m,"},
		{"-300000000,b,1\n0,a,1\n", "of 5m,"},
	} {
		if got := must(t, "simulate", "--trace", write(t, "t.csv", c.trace)); !strings.Contains(got, c.want) {
			t.Errorf("%q: want %q in %s", c.trace, c.want, got)
		}
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("a signal"))
	if code, _, errs := slicerctl(ctx, "simulate", "--workload", "a"); code != 1 || errs != "slicerctl: interrupted\n" {
		t.Errorf("exit %d: %s", code, errs)
	}
}

// Even one round shows as lines, and a long name is cut where the title would be.
func TestPlotOfOneRound(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f.svg")
	must(t, "simulate", "--trace", write(t, strings.Repeat("name", 50), lines(0, 9)), "--interval", "10s", "--plot", file)
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(b); !strings.Contains(got, "1 round of 10s") || !strings.Contains(got, strings.Repeat("name", 11)+"nam...") || strings.Count(got, "stroke-width:1.8") < 4 {
		t.Errorf("%d strong lines in %s", strings.Count(got, "stroke-width:1.8"), got)
	}
}

// The same figure twice is the same bytes, well-formed and small.
func TestPlots(t *testing.T) {
	dir := t.TempDir()
	figures := [][]string{
		{"simulate", "--trace", write(t, "t.csv", trace()), "--interval", "1s"},
		{"subset", "--size", "245"},
	}
	figures = figures[:seedtest.Cases(len(figures))]
	for _, args := range figures {
		var drawn [2][]byte
		for i := range drawn {
			file := filepath.Join(dir, fmt.Sprint(args[0], i, ".svg"))
			must(t, append(args, "--plot", file)...)
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			drawn[i] = b
		}
		var any struct{}
		if err := xml.Unmarshal(drawn[0], &any); err != nil || !bytes.Equal(drawn[0], drawn[1]) || len(drawn[0]) > 200_000 {
			t.Errorf("%s: %v, %d bytes, equal: %t", args[0], err, len(drawn[0]), bytes.Equal(drawn[0], drawn[1]))
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 2*len(figures) {
		t.Errorf("left over: %v", left)
	}
}

func TestSubset(t *testing.T) {
	if got, want := must(t, "subset", "--algorithm", "round-robin", "--frontends", "3", "--backends", "10", "--size", "4", "--subsets", "--json"), `{"subsets":[[0,1,2,3],[4,5,6,7],[8,9,0,1]]}`+"\n"; got != want {
		t.Error(got)
	}
	if got, want := must(t, "subset", "--algorithm", "round-robin", "--frontends", "2", "--backends", "10", "--size", "4", "--subsets"), "0: 0 1 2 3\n1: 4 5 6 7\n"; got != want {
		t.Error(got)
	}
	if got, want := must(t, "subset", "--from", "200,200,20", "--to", "200,220,20"), `from M,N,K = 200,200,20 to 200,220,20; shares are means, and in brackets the worst

algorithm     frontends  held  dropped  opened  most of one  dropped share
rocksteadier        200  4000      360     360            2   0.090 (0.10)
`; got != want {
		t.Error(got)
	}
	for args, want := range map[string]string{
		"subset --frontends 9 --backends 9 --size 3": "algorithm backend_churn backends distinct frontend_churn frontends least_connections most_connections size size_churn spread utilization",
		"subset --size 250":                          "algorithm size scenarios utilization utilization_p5 utilization_min distinct_min distinct_max backend_churn size_churn frontend_churn spread",
		"subset --from 9,9,3 --to 9,10,3":            "algorithm from to frontends held dropped opened most_dropped mean worst",
	} {
		var r map[string]any
		if err := json.Unmarshal([]byte(must(t, append(strings.Fields(args), "--json")...)), &r); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(words(want), keys(r)); diff != "" {
			t.Errorf("%s: %s", args, diff)
		}
	}
	var all []map[string]any
	if err := json.Unmarshal([]byte(must(t, "subset", "--frontends", "9", "--backends", "9", "--size", "3", "--all", "--json")), &all); err != nil || len(all) != 10 {
		t.Errorf("%d algorithms: %v", len(all), err)
	}
}
