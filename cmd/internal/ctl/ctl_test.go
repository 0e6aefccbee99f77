package ctl_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/cmd/internal/ctl"
	"github.com/slicer-project/slicer/cmd/internal/run"
)

func TestJobs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := filepath.Join(t.TempDir(), "jobs.yaml")
	if err := os.WriteFile(file, []byte("name: web\nmin_replicas: 2\n---\nname: cache\nbalance:\n  interval: 2s\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, want := w.must("job", "apply", "-f", file), "job web created (version 1)\njob cache created (version 1)\n"; got != want {
		t.Errorf("first apply: %q, want %q", got, want)
	}
	if got, want := w.must("job", "apply", "-f", file), "job web unchanged (version 1)\njob cache unchanged (version 1)\n"; got != want {
		t.Errorf("second apply: %q, want %q", got, want)
	}
	r := w.ctlAt(w.distributor, "name: web\nmin_replicas: 3\nzone: eu-1\nbalance: {interval: 1m}\n", "job", "apply", "-f", "-")
	want := "job web updated (version 2)\n  min_replicas: 2 -> 3\n  zone: \"\" -> eu-1\n  balance.interval: 5s -> 1m\n"
	if r.code != 0 || r.out != want {
		t.Errorf("third apply: exit %d %q %q, want %q", r.code, r.out, r.errs, want)
	}

	want = `JOB    MODE      REPLICAS  LOAD      ZONE  STORE  VERSION
cache  affinity  1-10      requests  -     -            1
web    affinity  3-10      requests  eu-1  -            2
`
	if got := w.must("job", "list"); got != want {
		t.Errorf("list:\n%s\nwant\n%s", got, want)
	}
	// What get prints is a file that changes nothing.
	yaml := w.must("job", "get", "web")
	if r := w.ctlAt(w.distributor, yaml, "job", "apply", "-f", "-"); r.out != "job web unchanged (version 2)\n" {
		t.Errorf("get, then apply: %q %q\n%s", r.out, r.errs, yaml)
	}
	var job struct {
		Name    string
		Version int
		Min     int `json:"min_replicas"`
		Balance struct{ Interval string }
	}
	if err := json.Unmarshal([]byte(w.must("job", "get", "web", "--json")), &job); err != nil || job.Name != "web" || job.Version != 2 || job.Min != 3 || job.Balance.Interval != "1m" {
		t.Errorf("get --json: %+v, %v", job, err)
	}
	var applied []struct{ Job, Result string }
	if err := json.Unmarshal([]byte(w.must("job", "apply", "-f", file, "--json")), &applied); err != nil || len(applied) != 2 || applied[0].Result != "updated" || applied[1].Result != "unchanged" {
		t.Errorf("apply --json: %+v, %v", applied, err)
	}

	if r := w.ctl("job", "delete", "web"); r.code != run.ExitUsage || r.errs != "slicerctl: job delete: --yes is needed where there is no terminal to ask at\n" {
		t.Errorf("delete unasked: %+v", r)
	}
	if got := w.must("job", "delete", "web", "--yes"); got != "job web deleted\n" {
		t.Errorf("delete: %q", got)
	}
	if r := w.ctl("job", "get", "web"); r.code != 3 || strings.Count(r.errs, "\n") != 1 {
		t.Errorf("get after delete: %+v", r)
	}
}

// TestBadInput wants one clear line and the right exit code each, and that the
// control plane is unharmed.
func TestBadInput(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply("name: web\n")
	w.eventually("an assigner is preferred", func() bool { return w.ctl("drain", "web", "nobody").code != 4 })
	for _, c := range []struct {
		name string
		in   string
		args []string
		code int
		errs string // a regular expression
	}{
		{"malformed YAML", "name: [web\n", []string{"job", "apply", "-f", "-"}, 1, `^slicerctl: standard input:\d`},
		{"unknown field", "name: web\nreplicas: 3\n", []string{"job", "apply", "-f", "-"}, 1, `replicas`},
		{"minimum above maximum", "name: web\nmin_replicas: 4\nmax_replicas: 3\n", []string{"job", "apply", "-f", "-"}, 1, `min_replicas: 4 is not allowed: want at most max_replicas, which is 3`},
		{"a slash in the job's name", "name: a/b\n", []string{"job", "apply", "-f", "-"}, 1, `"a/b" is not allowed`},
		{"nothing to apply", "", []string{"job", "apply", "-f", "-"}, 1, `.`},
		{"no file", "", []string{"job", "apply", "-f", "/nowhere/job.yaml"}, 1, `^slicerctl: open /nowhere/job.yaml: no such file or directory\n$`},
		{"no flag", "", []string{"job", "apply"}, 2, `-f is missing`},
		{"a store that is not there", "name: other\nstore: elsewhere\n", []string{"job", "apply", "-f", "-"}, 1, `elsewhere`},
		{"a slash in a name given", "", []string{"inspect", "a/b"}, 2, `^slicerctl: job name: "a/b" is not allowed: want an RFC 1123 label`},
		{"unknown job inspected", "", []string{"inspect", "nothing"}, 3, `nothing`},
		{"unknown job looked up", "", []string{"lookup", "nothing", "key"}, 3, `nothing`},
		{"unknown job watched", "", []string{"watch", "nothing"}, 3, `nothing`},
		{"unknown job drained", "", []string{"drain", "nothing", "t"}, 3, `nothing`},
		{"unknown job deleted", "", []string{"job", "delete", "nothing", "--yes"}, 3, `nothing`},
		{"unknown task drained", "", []string{"drain", "web", "nobody"}, 3, `nobody`},
		{"long key", "", []string{"lookup", "web", "", strings.Repeat("x", 4097)}, 2, `^slicerctl: key 2 has 4097 bytes: want at most 4096\n$`},
		{"1 MiB key", strings.Repeat("x", 1<<20) + "\n", []string{"lookup", "web", "-f", "-"}, 1, `^slicerctl: -, line 1: .*at most 4096 bytes`},
		{"long key", "", []string{"lookup", "web", strings.Repeat("x", 1<<16+1)}, 2, `^slicerctl: key 1 has 65537 bytes`},
		{"no key", "", []string{"lookup", "web"}, 2, `KEY is missing`},
		{"unknown command", "", []string{"inspekt", "web"}, 2, `unknown command "inspekt" for slicerctl, did you mean inspect`},
		{"unknown flag", "", []string{"inspect", "web", "--all"}, 2, `unknown flag: --all`},
		{"bad duration", "", []string{"inspect", "web", "--timeout", "soon"}, 2, `--timeout`},
		{"no time", "", []string{"inspect", "web", "--timeout", "0s"}, 2, `--timeout: 0s is not allowed`},
		{"no port", "", []string{"--server", "localhost", "inspect", "web"}, 2, `--server: "localhost" is not allowed: want host:port`},
		{"no server there", "", []string{"--server", "127.0.0.1:1", "inspect", "web"}, 4, `^slicerctl: cannot reach 127.0.0.1:1: .*connection refused`},
		{"no server there to watch", "", []string{"--server", "127.0.0.1:1", "--timeout", "300ms", "watch", "web"}, 4, `127.0.0.1:1 within 300ms: .*connection refused`},
		{"half of TLS", "", []string{"--tls-cert", "c.pem", "inspect", "web"}, 2, `--tls-key: missing`},
	} {
		r := w.ctlAt(w.distributor, c.in, c.args...)
		if r.code != c.code || r.out != "" || strings.Count(r.errs, "\n") != 1 || !regexp.MustCompile(c.errs).MatchString(r.errs) {
			t.Errorf("%s: exit %d, output %q, errors %q; want exit %d and %s", c.name, r.code, r.out, r.errs, c.code, c.errs)
		}
		if strings.Contains(r.errs, "rpc error") || strings.Contains(r.errs, "code =") {
			t.Errorf("%s speaks gRPC: %s", c.name, r.errs)
		}
	}
	if got := w.must("job", "list"); !strings.Contains(got, "web") || strings.Contains(got, "other") {
		t.Errorf("afterwards the jobs are\n%s", got)
	}
}

// taskJSON is what the tests read of inspect --json.
type inspection struct {
	Job        string
	Generation int64
	Slices     int
	Tasks      []struct {
		Name, State, Address string
		Slices               int
		Share                float64
		Load                 *struct{ Rate float64 }
	}
	Control *struct {
		Assigner             string
		Preferred, Converged bool
		Slicelets            int
	}
	SliceList []struct {
		Start, End string
		Tasks      []string
	} `json:"slice_list"`
}

func (w *world) inspect(server string, args ...string) inspection {
	w.t.Helper()
	r := w.ctlAt(server, "", append([]string{"inspect", "--json"}, args...)...)
	if r.code != 0 {
		w.t.Fatalf("inspect: exit %d: %s", r.code, r.errs)
	}
	var v inspection
	if err := json.Unmarshal([]byte(r.out), &v); err != nil {
		w.t.Fatal(err)
	}
	return v
}

func TestInspectAndLookup(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply("name: web\n")
	if r := w.ctl("inspect", "web"); r.code != 0 || !strings.Contains(r.out, "no assignment yet") {
		t.Errorf("inspect before there is a task: %+v", r)
	}
	if r := w.ctl("lookup", "web", "key"); r.code != 3 || strings.Count(r.errs, "\n") != 1 {
		t.Errorf("lookup before there is a task: %+v", r)
	}
	servers := w.tasks("web", "web-0", "web-1", "web-2")

	for _, server := range []string{w.distributor, w.backup} {
		v := w.inspect(server, "web", "--slices")
		share := 0.
		for _, task := range v.Tasks {
			s := servers[task.Name]
			if got := len(s.Slices()); got != task.Slices || task.State != "running" {
				t.Errorf("%s is %s with %d slices, it believes in %d", task.Name, task.State, task.Slices, got)
			}
			for _, sl := range s.Slices() {
				if !slices.ContainsFunc(v.SliceList, func(row struct {
					Start, End string
					Tasks      []string
				}) bool {
					return row.Start == sl.Start.String() && row.End == sl.End.String() && slices.Contains(row.Tasks, task.Name)
				}) {
					t.Errorf("%s believes that it owns %s, inspect does not say so", task.Name, sl)
				}
			}
			share += task.Share
		}
		if len(v.Tasks) != 3 || share < .999 || share > 1.001 || v.Generation == 0 || len(v.SliceList) != v.Slices {
			t.Errorf("inspect at %s: %+v", server, v)
		}
		if (v.Control != nil) != (server == w.distributor) {
			t.Errorf("inspect at %s: control %+v", server, v.Control)
		}
		if v.Control != nil && (v.Control.Assigner != "a0" || !v.Control.Preferred || v.Tasks[0].Load == nil) {
			t.Errorf("inspect: control %+v, task %+v", v.Control, v.Tasks[0])
		}

		a := servers["web-0"].Assignment()
		r := w.ctlAt(server, "user/2\r\nuser/3\n", "lookup", "web", "-f", "-", "--json")
		var found struct {
			Generation int64
			Keys       []struct {
				Key      string
				SliceKey string `json:"slice_key"`
				Tasks    []struct{ Name, Address string }
			}
		}
		if err := json.Unmarshal([]byte(r.out), &found); err != nil || len(found.Keys) != 2 || found.Generation != int64(a.Generation()) {
			t.Fatalf("lookup: %v, %+v", err, r)
		}
		for i, key := range []string{"user/2", "user/3"} {
			k, owner := assignment.KeyOf(key), a.Lookup(assignment.KeyOf(key)).At(0)
			if got := found.Keys[i]; got.Key != key || got.SliceKey != k.String() || got.Tasks[0].Name != owner.Name || got.Tasks[0].Address != owner.Address {
				t.Errorf("lookup %s: %+v, want %s", key, got, owner.Name)
			}
		}
		if r := w.ctlAt(server, "", "lookup", "web", "user/2"); !regexp.MustCompile(`^KEY     SLICE KEY         SLICE +TASKS\nuser/2  [0-9a-f]{16}  \[[0-9a-f]{16},[0-9a-f]{16}\)  web-\d \(127`).MatchString(r.out) {
			t.Errorf("lookup:\n%s", r.out)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var seen, errs lines
	done := make(chan int, 1)
	go func() {
		done <- run.Execute(ctx, ctl.New(), []string{"--server", w.backup, "watch", "web"}, nil, &seen, &errs)
	}()
	w.eventually("watch at the backup shows the assignment in force", func() bool { return strings.Contains(seen.all()[0], "3 tasks") })
	cancel()
	if code := <-done; code != 0 {
		t.Errorf("watch at the backup: exit %d: %s", code, errs.all())
	}
	if v := w.inspect(w.distributor, "web", "--task", "web-1"); len(v.Tasks) != 1 || v.Tasks[0].Name != "web-1" || v.SliceList != nil {
		t.Errorf("inspect --task: %+v", v)
	}
	if r := w.ctl("inspect", "web", "--task", "web-9"); r.code != 3 || r.errs != "slicerctl: job \"web\" has no task \"web-9\"\n" {
		t.Errorf("inspect --task: %+v", r)
	}
	if r := w.ctlAt(w.backup, "", "job", "list"); r.code != 0 || !strings.Contains(r.out, "web") {
		t.Errorf("job list at the backup: %+v", r)
	}
	if r := w.ctlAt(w.backup, "", "drain", "web", "web-0"); r.code != 1 || r.errs != "slicerctl: "+w.backup+": DrainTask: a backup distributor only reads the store; ask a distributor\n" {
		t.Errorf("drain at the backup: %+v", r)
	}
}

func TestDrainAndWatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply("name: web\n")
	servers := w.tasks("web", "web-0", "web-1")

	ctx, cancel := context.WithCancel(context.Background())
	var text, machine, errs lines
	done := make(chan int, 2)
	for _, c := range []struct {
		out  *lines
		args []string
	}{{&text, nil}, {&machine, []string{"--json"}}} {
		go func() {
			done <- run.Execute(ctx, ctl.New(), append([]string{"--server", w.distributor, "watch", "web"}, c.args...), strings.NewReader(""), c.out, &errs)
		}()
	}
	defer func() {
		cancel()
		if a, b := <-done, <-done; a != 0 || b != 0 {
			t.Errorf("watch ended with %d and %d: %s", a, b, errs.all())
		}
	}()
	w.eventually("both watches have begun", func() bool { return text.all()[0] != "" && machine.all()[0] != "" })

	if got := w.must("drain", "web", "web-0"); !regexp.MustCompile(`^task web-0 of job web owns nothing since generation \d+, and every connected subscriber knows\n$`).MatchString(got) {
		t.Errorf("drain: %q", got)
	}
	if got := servers["web-0"].Slices(); len(got) != 0 {
		t.Errorf("drained, web-0 believes in %d slices", len(got))
	}
	if v := w.inspect(w.distributor, "web", "--task", "web-0"); v.Tasks[0].State != "draining" || v.Tasks[0].Slices != 0 {
		t.Errorf("drained: %+v", v.Tasks[0])
	}
	w.eventually("the watches saw it", func() bool {
		return strings.Contains(strings.Join(text.all(), "\n"), "web-0 running -> draining") && strings.Contains(strings.Join(machine.all(), "\n"), `"to":"draining"`)
	})
	for _, l := range text.all() {
		if !regexp.MustCompile(`^\d\d:\d\d:\d\d\.\d{3} generation \d+: \d+ slices? on \d tasks`).MatchString(l) {
			t.Errorf("watch prints %q", l)
		}
	}
	for _, l := range machine.all() {
		var v struct{ Generation int64 }
		if err := json.Unmarshal([]byte(l), &v); err != nil || v.Generation == 0 {
			t.Errorf("watch --json prints %q: %v", l, err)
		}
	}

	if got, want := w.must("drain", "web", "web-0", "--undo"), "task web-0 of job web may own slices again\n"; got != want {
		t.Errorf("undo: %q", got)
	}
	w.eventually("web-0 owns slices again", func() bool { return len(servers["web-0"].Slices()) > 0 })
	var v struct{ Converged bool }
	if err := json.Unmarshal([]byte(w.must("drain", "web", "web-1", "--json", "--wait=false")), &v); err != nil {
		t.Error(err)
	}
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply("name: web\n---\nname: cache\n")
	w.tasks("web", "web-0", "web-1")
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"inspect", ""}, []string{"cache", "web"}},
		{[]string{"inspect", "w"}, []string{"web"}},
		{[]string{"inspect", "web", ""}, nil},
		{[]string{"inspect", "web", "--task", ""}, []string{"web-0", "web-1"}},
		{[]string{"drain", "web", "web-"}, []string{"web-0", "web-1"}},
		{[]string{"drain", "nothing", ""}, nil},
		{[]string{"job", "delete", "c"}, []string{"cache"}},
		{[]string{"job", "get", "c"}, []string{"cache"}},
		{[]string{"lookup", ""}, []string{"cache", "web"}},
		{[]string{"watch", ""}, []string{"cache", "web"}},
	} {
		var got []string
		for tries := 0; tries < 10 && len(got) != len(c.want)+1; tries++ { // it does not wait for long
			var out, errs lines
			run.Execute(context.Background(), ctl.New(), append([]string{"__complete", "--server", w.distributor}, c.args...), nil, &out, &errs)
			got = out.all()
		}
		if last := len(got) - 1; got[last] != ":4" {
			t.Errorf("%q completes to %q, want no file names", c.args, got)
		} else if !slices.Equal(got[:last], c.want) {
			t.Errorf("%q completes to %q, want %q", c.args, got[:last], c.want)
		}
	}
	var out, errs lines
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if code := run.Execute(context.Background(), ctl.New(), []string{"completion", shell}, nil, &out, &errs); code != 0 {
			t.Errorf("completion %s: %s", shell, errs.all())
		}
	}
	// No server there: nothing to offer, and no noise.
	var none lines
	run.Execute(context.Background(), ctl.New(), []string{"__complete", "--server", "127.0.0.1:1", "inspect", ""}, nil, &none, &errs)
	if got := none.all(); len(got) != 1 || got[0] != ":4" {
		t.Errorf("without a server: %q", got)
	}
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{{}, {"job"}, {"job", "apply"}, {"job", "get"}, {"job", "list"}, {"job", "delete"}, {"inspect"}, {"lookup"}, {"watch"}, {"drain"}} {
		var out, errs lines
		code := run.Execute(context.Background(), ctl.New(), append(slices.Clone(args), "--help"), nil, &out, &errs)
		if text := strings.Join(out.all(), "\n"); code != 0 || !strings.Contains(text, "Usage:") || !strings.Contains(text, "--server host:port") {
			t.Errorf("%q --help: exit %d\n%s", args, code, text)
		}
	}
	t.Setenv(ctl.ServerEnv, "127.0.0.1:1")
	var out, errs lines
	if code := run.Execute(context.Background(), ctl.New(), []string{"job", "list"}, nil, &out, &errs); code != 4 || !strings.Contains(errs.all()[0], "127.0.0.1:1") {
		t.Errorf("%s is not heeded: exit %d, %s", ctl.ServerEnv, code, errs.all())
	}
}
