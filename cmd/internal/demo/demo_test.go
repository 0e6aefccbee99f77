package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/slicer-project/slicer/assignment/waittest"
	"github.com/slicer-project/slicer/cmd/internal/ctl"
	"github.com/slicer-project/slicer/cmd/internal/run"
)

func TestMain(m *testing.M) {
	waittest.SideBySide()
	goleak.VerifyTestMain(m)
}

// happenedAll wants what does not depend on how busy the machine is.
func happenedAll(t *testing.T, s *Summary) {
	t.Helper()
	for _, kind := range []string{evKill, evDrain, evAdd} {
		if !slices.ContainsFunc(s.Events, func(e event) bool { return e.Kind == kind }) {
			t.Errorf("%s did not happen: %+v", kind, s.Events)
		}
	}
	if s.Requests == 0 || s.Requests == s.Errors || s.Generations == 0 || s.LookupP50NS == 0 {
		t.Errorf("%+v", s)
	}
}

// silent shows nothing.
type silent struct{ ended *Summary }

func (s *silent) begin(*Config, addresses) {}
func (s *silent) tick(*tick) error         { return nil }
func (s *silent) end(sum *Summary) error   { s.ended = sum; return nil }

// TestDemo runs a short demo, after asking slicerctl about it.
func TestDemo(t *testing.T) {
	t.Parallel()
	out := &silent{}
	d := newDemo(Config{Duration: MinDuration, Tasks: 4, Clients: 2, QPS: 200, Listen: "127.0.0.1:0"}, out)
	defer func() {
		d.close()
		if _, err := os.Stat(d.plane.dir); !os.IsNotExist(err) {
			t.Errorf("the store is left behind: %v", err)
		}
	}()
	if err := d.setUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	compare(t, d)
	s, err := d.perform(t.Context())
	if s == nil {
		t.Fatal(err)
	}
	happenedAll(t, s)
	if out.ended != s {
		t.Error("the summary was not shown")
	}
}

// TestDemoConsistent runs a short demo in consistent mode: shorter than users may,
// so that calls may be lost to the killed server while another is drained.
func TestDemoConsistent(t *testing.T) {
	t.Parallel()
	out := &silent{}
	s, err := newDemo(Config{Duration: MinDuration, Tasks: 4, Clients: 2, QPS: 200, Listen: "127.0.0.1:0", Consistent: true}, out).run(t.Context())
	if s == nil {
		t.Fatal(err)
	}
	happenedAll(t, s)
	if s.Mode != "consistent" || s.Looks == 0 || s.Overlaps != 0 || s.Misrouted != 0 {
		t.Errorf("%+v", s)
	}
	t.Logf("%d calls, %d errors, %d refusals, %d looks", s.Requests, s.Errors, s.Refused, s.Looks)
}

// TestDemoOverload runs the scene of overload, with few calls and shorter than users may. What
// share is answered depends on how busy the machine is, so that no other test runs beside it.
func TestDemoOverload(t *testing.T) {
	out := &silent{}
	s, err := newDemo(Config{Duration: MinDuration, Tasks: 4, Clients: 2, QPS: 100, Listen: "127.0.0.1:0", Overload: true}, out).run(t.Context())
	if s == nil {
		t.Fatal(err)
	}
	if len(s.Flooded) != len(mix) || s.Flooded[0].Answered == 0 || s.Flooded[3].Answered > s.Flooded[0].Answered+.1 || s.Requests == s.Errors {
		t.Errorf("%+v", s)
	}
	t.Logf("%+v", s.Flooded)
}

// compare has slicerctl inspect the running demo and wants it to say what each
// server believes.
func compare(t *testing.T, d *demo) {
	type row struct {
		Start, End string
		Tasks      []string
	}
	for range 50 {
		var view struct {
			Generation int64
			Tasks      []struct {
				Name, Address, State string
				Slices               int
			}
			SliceList []row `json:"slice_list"`
		}
		var out, errs bytes.Buffer
		if code := run.Execute(context.Background(), ctl.New(), []string{"--server", d.plane.addrs.distributor, "inspect", jobName, "--slices", "--json"}, nil, &out, &errs); code != 0 {
			t.Fatalf("slicerctl inspect: exit %d: %s", code, errs.String())
		}
		if err := json.Unmarshal(out.Bytes(), &view); err != nil {
			t.Fatal(err)
		}
		told := map[string][]string{}
		for _, r := range view.SliceList {
			for _, n := range r.Tasks {
				told[n] = append(told[n], "["+r.Start+","+r.End+")")
			}
		}
		believed, same := map[string][]string{}, true
		d.mu.Lock()
		for name, s := range d.servers {
			for _, sl := range s.slicelet.Slices() {
				believed[name] = append(believed[name], sl.String())
			}
			same = same && int64(s.slicelet.Assignment().Generation()) == view.Generation
		}
		d.mu.Unlock()
		if !same {
			time.Sleep(20 * time.Millisecond) // they are on different generations
			continue
		}
		for _, task := range view.Tasks {
			if !slices.Equal(told[task.Name], believed[task.Name]) || task.Slices != len(believed[task.Name]) || task.State != "running" {
				t.Errorf("generation %d: inspect says that %s (%s) owns %d slices, it believes in %d", view.Generation, task.Name, task.State, task.Slices, len(believed[task.Name]))
			}
		}
		if len(view.Tasks) != len(d.servers) {
			t.Errorf("inspect knows %d tasks of %d", len(view.Tasks), len(d.servers))
		}
		return
	}
	t.Error("slicerctl inspect and the servers were never of one generation")
}

// TestDemoTrace replays an access log to its end.
func TestDemoTrace(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	for i := range 2000 {
		if i == 1000 {
			log.WriteString("10.0.0.1 - - [17/May/2015:10:\n")
		}
		fmt.Fprintf(&log, "10.0.0.%d - - [17/May/2015:10:%02d:%02d +0000] \"GET /page/%d HTTP/1.1\" 200 %d \"-\" \"agent\"\n", i%200, i/60%60, i%60, i*i%97, i)
	}
	path := filepath.Join(t.TempDir(), "access.log")
	if err := os.WriteFile(path, []byte(log.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	var warned []string
	s, err := Run(t.Context(), Config{
		Duration: MinDuration, Tasks: 3, Clients: 2, QPS: 100, Trace: path, JSON: true, Listen: "127.0.0.1:0",
		Warn: func(s string) { warned = append(warned, s) },
	}, &b, nil)
	if s == nil {
		t.Fatal(err)
	}
	happenedAll(t, s)
	if len(warned) != 1 || !strings.HasPrefix(warned[0], "malformed lines left out: 1 of 2001; the first: "+path+": line 1001: time: ") {
		t.Errorf("warned with %q", warned)
	}
	if s.Requests != 2000 {
		t.Errorf("%d of 2000 records were replayed", s.Requests)
	}
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	for _, l := range lines {
		if !json.Valid([]byte(l)) {
			t.Errorf("not JSON: %s", l)
		}
	}
	if last := lines[len(lines)-1]; !strings.HasPrefix(last, `{"summary":{`) {
		t.Errorf("the last line is %s", last)
	}
}

func TestDemoRefused(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--duration", "1s"}, 2, "demo: --duration: 1s is not allowed"},
		{[]string{"--trace", "/nowhere/trace.csv"}, 1, "/nowhere/trace.csv: no such file"},
		{[]string{"--trace", "demo_test.go"}, 1, "demo_test.go"},
		{[]string{"--trace", "x", "--qps", "200"}, 2, "--qps: not with --trace"},
		{[]string{"--listen", "203.0.113.1:1"}, 1, "--listen: listen tcp 203.0.113.1:1"},
	} {
		var out, errs bytes.Buffer
		code := run.Execute(t.Context(), Command(), c.args, nil, &out, &errs)
		if code != c.code || !strings.Contains(errs.String(), c.want) || strings.Count(errs.String(), "\n") != 1 || out.Len() != 0 {
			t.Errorf("%v: exit %d, %q, %q", c.args, code, out.String(), errs.String())
		}
	}
}

// cutter ends the run when something is shown.
type cutter struct{ cut context.CancelFunc }

func (c cutter) Write(b []byte) (int, error) { c.cut(); return len(b), nil }

// TestDemoInterrupted: an interrupt is called one, whenever it comes.
func TestDemoInterrupted(t *testing.T) {
	for _, name := range []string{"during set-up", "under load"} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if name == "during set-up" {
			cancel()
		}
		var errs bytes.Buffer
		if code := run.Execute(ctx, Command(), []string{"--qps", "100", "--tasks", "3"}, nil, cutter{cancel}, &errs); code != 1 || errs.String() != "demo: interrupted\n" {
			t.Errorf("%s: exit %d, %q", name, code, errs.String())
		}
	}
}
