package ctl_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/slicer-project/slicer/cmd/internal/ctl"
	"github.com/slicer-project/slicer/cmd/internal/run"
	"github.com/slicer-project/slicer/test/kit/process"
)

type probe struct {
	Job        string
	Target     string
	Selected   bool
	OK         bool
	Generation int64
	Slices     int
	Behind     bool
	Empty      bool
	Error      string
	LatencyMS  float64 `json:"latency_ms"`
}

func TestProbe(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply("name: web\n")
	both := w.distributor + "," + w.backup
	var vs []probe
	// A job without servers is no fault of theirs.
	w.eventually("both know the job", func() bool {
		r := w.ctl("probe", "--target", both, "--json")
		vs = nil
		return r.code == 3 && r.errs == "slicerctl: every target answered; no servers yet: web\n" && json.Unmarshal([]byte(r.out), &vs) == nil
	})
	if len(vs) != 2 || vs[0].OK || !vs[0].Empty || !vs[1].Empty || !strings.Contains(vs[0].Error, "no assignment yet") {
		t.Errorf("without servers: %+v", vs)
	}
	if r := w.ctl("probe", "web", "--target", both); r.code != 3 || strings.Count(r.out, "  no servers yet\n") != 2 {
		t.Errorf("without servers: %+v", r)
	}
	if r := w.ctl("probe", "web", "nothing"); r.code != 3 || r.errs != "slicerctl: there is no such job: nothing\n" {
		t.Errorf("without servers, and unknown: %+v", r)
	}
	if r := w.ctl("probe", "web", "--target", both, "--target", "127.0.0.1:1"); r.code != 4 || r.errs != "slicerctl: 1 of 3 probes failed: 127.0.0.1:1\n" {
		t.Errorf("without servers, and with a target that is not there: %+v", r)
	}
	w.tasks("web", "t0")
	w.eventually("both have it", func() bool {
		r := w.ctl("probe", "web", "--target", both, "--json")
		vs = nil
		return r.code == 0 && json.Unmarshal([]byte(r.out), &vs) == nil
	})
	if len(vs) != 2 || !vs[0].OK || !vs[1].OK || vs[0].Generation == 0 || vs[0].Slices == 0 || vs[0].LatencyMS <= 0 || vs[1].Target != w.backup || !vs[0].Selected || vs[0].Job != "web" {
		t.Errorf("probe: %+v", vs)
	}
	r := w.ctl("probe", "web", "--target", both, "--target", "127.0.0.1:1")
	if r.code != 4 || r.errs != "slicerctl: 1 of 3 probes failed: 127.0.0.1:1\n" || strings.Count(r.out, "\n") != 4 || !strings.Contains(r.out, "cannot reach 127.0.0.1:1") {
		t.Errorf("with one that is not there: %+v", r)
	}
	if r := w.ctl("probe", "web"); r.code != 0 || strings.Count(r.out, "\n") != 2 {
		t.Errorf("of the server: %+v", r)
	}
	if r := w.ctl("probe", "nothing"); r.code != 3 || !strings.Contains(r.out, "does not exist") {
		t.Errorf("of an unknown job: %+v", r)
	}
	for _, args := range [][]string{{"--interval", "1ms"}, {"--metrics-address", ":0"}, {"--target", "nowhere"}, {"--interval", "1s", "--metrics-address", "x"}} {
		if r := w.ctl(append([]string{"probe", "web"}, args...)...); r.code != run.ExitUsage && r.code != run.ExitFailed || strings.Count(r.errs, "\n") != 1 || r.out != "" {
			t.Errorf("%v: %+v", args, r)
		}
	}
}

// Without a job it asks for every job there is.
func TestProbeAll(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	both := w.distributor + "," + w.backup
	if r := w.ctl("probe", "--target", both); r.code != 0 || strings.Count(r.out, "\n") != 1 {
		t.Errorf("without jobs: %+v", r)
	}
	w.apply("name: web\n")
	w.apply("name: api\n")
	w.tasks("web", "t0")
	w.tasks("api", "t0")
	var vs []probe
	w.eventually("all have it", func() bool {
		r := w.ctl("probe", "--target", both, "--json")
		vs = nil
		return r.code == 0 && json.Unmarshal([]byte(r.out), &vs) == nil && len(vs) == 4
	})
	for i, want := range []string{"api", "api", "web", "web"} {
		if v := vs[i]; v.Job != want || !v.OK || !v.Selected || v.Target != []string{w.distributor, w.backup}[i%2] {
			t.Errorf("probe %d: %+v, want of %s", i, v, want)
		}
	}
	if r := w.ctl("probe", "web", "api", "--target", w.backup); r.code != 0 || strings.Count(r.out, "\n") != 3 || strings.Index(r.out, "web") > strings.Index(r.out, "api") {
		t.Errorf("of two jobs: %+v", r)
	}
	if r := w.ctl("probe", "--target", "127.0.0.1:1"); r.code != 4 || !strings.Contains(r.errs, "which jobs there are is not known: cannot reach 127.0.0.1:1") || !strings.Contains(r.errs, "(--target says") {
		t.Errorf("of no server: %+v", r)
	}
}

// A prober that goes on prints a line a probe until it is told to end.
func TestProbeGoesOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply("name: web\n")
	w.tasks("web", "t0")
	metrics := process.FreePorts(t, 1)[0]
	ctx, cancel := context.WithCancel(t.Context())
	var out lines
	var errs bytes.Buffer
	done := make(chan int)
	go func() {
		done <- run.Execute(ctx, ctl.New(), []string{"--server", w.distributor, "probe", "web", "--interval", "100ms", "--metrics-address", metrics, "--json"}, nil, &out, &errs)
	}()
	w.eventually("three lines", func() bool { return len(out.all()) >= 3 })
	w.eventually("metrics", func() bool {
		resp, err := http.Get("http://" + metrics + "/metrics")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		return err == nil && strings.Contains(string(text), `slicer_probe_selections_total{job="web",result="found",target="`+w.distributor+`"}`)
	})
	http.DefaultClient.CloseIdleConnections()
	cancel()
	if code := <-done; code != 0 || errs.Len() > 0 {
		t.Errorf("exit %d, %s", code, errs.String())
	}
	for _, l := range out.all() {
		var v probe
		if err := json.Unmarshal([]byte(l), &v); err != nil || !v.OK {
			t.Errorf("%s: %v", l, err)
		}
	}
}
