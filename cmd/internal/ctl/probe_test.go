package ctl_test

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/slicer-project/slicer/cmd/internal/ctl"
	"github.com/slicer-project/slicer/cmd/internal/run"
)

type probe struct {
	Target     string
	OK         bool
	Generation int64
	Slices     int
	Behind     bool
	Error      string
	LatencyMS  float64 `json:"latency_ms"`
}

func TestProbe(t *testing.T) {
	w := newWorld(t)
	w.apply("name: web\n")
	w.tasks("web", "t0")
	both := w.distributor + "," + w.backup
	var vs []probe
	w.eventually("both have it", func() bool {
		r := w.ctl("probe", "web", "--target", both, "--json")
		vs = nil
		return r.code == 0 && json.Unmarshal([]byte(r.out), &vs) == nil
	})
	if len(vs) != 2 || !vs[0].OK || !vs[1].OK || vs[0].Generation == 0 || vs[0].Slices == 0 || vs[0].LatencyMS <= 0 || vs[1].Target != w.backup {
		t.Errorf("probe: %+v", vs)
	}
	r := w.ctl("probe", "web", "--target", both, "--target", "127.0.0.1:1")
	if r.code != 4 || r.errs != "slicerctl: 1 of 3 targets failed: 127.0.0.1:1\n" || strings.Count(r.out, "\n") != 4 || !strings.Contains(r.out, "cannot reach 127.0.0.1:1") {
		t.Errorf("with one that is not there: %+v", r)
	}
	if r := w.ctl("probe", "web"); r.code != 0 || strings.Count(r.out, "\n") != 2 {
		t.Errorf("of the server: %+v", r)
	}
	if r := w.ctl("probe", "nothing"); r.code != 4 || !strings.Contains(r.out, "no such job") {
		t.Errorf("of an unknown job: %+v", r)
	}
	for _, args := range [][]string{{"--every", "1ms"}, {"--metrics-address", ":0"}, {"--target", "nowhere"}, {"--every", "1s", "--metrics-address", "x"}} {
		if r := w.ctl(append([]string{"probe", "web"}, args...)...); r.code != run.ExitUsage && r.code != run.ExitFailed || strings.Count(r.errs, "\n") != 1 || r.out != "" {
			t.Errorf("%v: %+v", args, r)
		}
	}
}

// A prober that goes on prints a line a probe until it is told to end.
func TestProbeGoesOn(t *testing.T) {
	w := newWorld(t)
	w.apply("name: web\n")
	w.tasks("web", "t0")
	ctx, cancel := context.WithCancel(t.Context())
	var out lines
	var errs bytes.Buffer
	done := make(chan int)
	go func() {
		done <- run.Execute(ctx, ctl.New(), []string{"--server", w.distributor, "probe", "web", "--every", "100ms", "--metrics-address", "127.0.0.1:0", "--json"}, nil, &out, &errs)
	}()
	w.eventually("three lines", func() bool { return len(out.all()) >= 3 })
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
