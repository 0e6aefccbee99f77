package ctl_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/slicer-project/slicer/cmd/internal/ctl"
	"github.com/slicer-project/slicer/cmd/internal/run"
)

// overview is what status --json prints, as far as it is looked at here.
type overview struct {
	Well         bool
	Assigners    []struct{ ID string }
	Distributors []struct{ ID string }
	Stores       []struct{ Up bool }
	Jobs         []struct {
		Job, Health string
		Problems    []string
		Tasks       struct{ Serving, Excluded int }
		Wanted      int     `json:"wanted_tasks"`
		Cores       float64 `json:"cpu_cores"`
		Memory      float64 `json:"memory_bytes"`
		Converged   bool
		Generation  int64
		Frozen      bool
	}
}

func (w *world) status(args ...string) (v overview, r result) {
	w.t.Helper()
	r = w.ctl(append([]string{"status", "--json"}, args...)...)
	if err := json.Unmarshal([]byte(r.out), &v); err != nil && (r.code == 0 || r.code == 7) {
		w.t.Fatalf("%v: %+v", err, r)
	}
	return v, r
}

// TestStatus: one look at a control plane and its jobs, and an exit code that says whether
// all is well.
func TestStatus(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if out := w.must("status"); !strings.Contains(out, "1 assigner: a0; 1 distributor: a0; store ") || !strings.Contains(out, "no jobs") {
		t.Errorf("without jobs:\n%s", out)
	}
	w.apply("name: web\ntarget_utilization: 0.05\n")
	w.apply("name: quiet\n")
	w.tasks("web", "t0", "t1", "t2")
	w.eventually("all is well", func() bool {
		v, r := w.status()
		if r.code != 0 || !v.Well || len(v.Jobs) != 2 || v.Jobs[0].Health != "empty" {
			return false
		}
		web := v.Jobs[1]
		return web.Health == "ok" && web.Tasks.Serving == 3 && web.Converged && web.Wanted > 0 && web.Cores > 0 && web.Memory > 1<<20
	})
	if out := w.must("status", "web"); strings.Contains(out, "quiet") || !strings.Contains(out, "JOB  HEALTH  TASKS  WANTED") {
		t.Errorf("of one job:\n%s", out)
	}
	if out := w.must("inspect", "web"); !strings.Contains(out, ", for a CPU utilization of 5 %\n") {
		t.Errorf("inspect says nothing of wanted tasks:\n%s", out)
	}
	w.must("freeze", "web", "--for", "1h", "--reason", "incident")
	w.must("exclude", "web", "t2")
	r := w.ctl("status")
	if r.code != 7 || !strings.Contains(r.errs, "not well: web\n") || !strings.Contains(r.out, "frozen") || !strings.Contains(r.out, "freeze, 1 exclusion") {
		t.Errorf("frozen: %+v", r)
	}
	if v, r := w.status("web"); r.code != 7 || v.Well || !v.Jobs[0].Frozen || v.Jobs[0].Tasks.Serving != 2 || v.Jobs[0].Tasks.Excluded != 1 {
		t.Errorf("frozen: %+v %+v", v, r)
	}
	if v, r := w.status("quiet"); r.code != 0 || !v.Well {
		t.Errorf("the other job: %+v %+v", v, r)
	}
	if _, r := w.status("nothing"); r.code != 3 {
		t.Errorf("an unknown job: %+v", r)
	}
	if _, r := w.status("a/b"); r.code != 2 {
		t.Errorf("no job's name: %+v", r)
	}
	// A Backup Distributor knows the jobs, and no more.
	w.eventually("the backup has the jobs", func() bool {
		r := w.ctlAt(w.backup, "", "status")
		return r.code == 7 && strings.Contains(r.out, "web    unknown") && strings.Contains(r.out, "assigners and distributors are not shown here")
	})
	if r := w.ctlAt("127.0.0.1:1", "", "status", "--timeout", "2s"); r.code != 4 {
		t.Errorf("no server: %+v", r)
	}
}

// TestTop follows a job until it is interrupted, and prints decisions once.
func TestTop(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if r := w.ctl("top", "web"); r.code != 3 {
		t.Errorf("an unknown job: %+v", r)
	}
	if r := w.ctl("top", "web", "--interval", "1ms"); r.code != 2 || !strings.Contains(r.errs, "--interval: 1ms is not allowed: want at least 100ms") {
		t.Errorf("too often: %+v", r)
	}
	w.apply("name: web\n")
	w.tasks("web", "t0", "t1")
	for _, as := range []string{"text", "json"} {
		var out lines
		var errs bytes.Buffer
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan int, 1)
		args := []string{"--server", w.distributor, "top", "web", "--interval", "100ms"}
		if as == "json" {
			args = append(args, "--json")
		}
		go func() { ended <- run.Execute(ctx, ctl.New(), args, strings.NewReader(""), &out, &errs) }()
		w.eventually("it goes on", func() bool {
			return len(out.all()) >= 5 && (strings.Contains(out.all()[len(out.all())-1], " web: ok, 2 tasks serve") || strings.Contains(out.all()[len(out.all())-1], `"health":"ok"`))
		})
		stop()
		select {
		case code := <-ended:
			if code != 0 {
				t.Errorf("%s: it ended with %d: %s", as, code, errs.String())
			}
		case <-time.After(limit):
			t.Fatal("it does not end")
		}
		if as == "text" {
			text := strings.Join(out.all(), "\n")
			if !strings.Contains(text, " web: ok, 2 tasks serve") || strings.Count(text, "move") > 1000 {
				t.Errorf("top:\n%s", text)
			}
			continue
		}
		rounds := 0
		for i, l := range out.all() {
			var v struct {
				Status struct{ Job, Health string }
				Tasks  []struct{ Name, State string }
				Round  *struct{ Generation int64 }
			}
			d := json.NewDecoder(strings.NewReader(l))
			if err := d.Decode(&v); err != nil || v.Status.Job != "web" || len(v.Tasks) != 2 || v.Tasks[0].State != "running" {
				t.Errorf("line %d: %v %s", i, err, l)
			}
			if _, err := d.Token(); err != io.EOF {
				t.Errorf("line %d has more than one value: %s", i, l)
			}
			if v.Round != nil {
				rounds++
			}
		}
		if rounds == len(out.all()) {
			t.Error("each line has a round: the same again")
		}
	}
}
