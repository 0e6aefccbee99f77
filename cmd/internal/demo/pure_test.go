package demo

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/cmd/internal/screen"

	"github.com/slicer-project/slicer/loadbalance/overload"
)

func TestValidate(t *testing.T) {
	good := Config{Duration: 30 * time.Second, Tasks: 8, Clients: 4, QPS: 2000, Listen: "127.0.0.1:0"}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Config){
		"--duration: 9s is not allowed":     func(c *Config) { c.Duration = 9 * time.Second },
		"--duration: 29s is not allowed wi": func(c *Config) { c.Duration, c.Consistent = 29*time.Second, true },
		"--duration: 19s is not allowed wi": func(c *Config) { c.Duration, c.Overload = 19*time.Second, true },
		"--overload: not with --consistent": func(c *Config) { c.Overload, c.Consistent = true, true },
		"--tasks: 2 is not allowed: want 3": func(c *Config) { c.Tasks = 2 },
		"--clients: 0 is not allowed":       func(c *Config) { c.Clients = 0 },
		"--qps: 1 is not allowed: want 100": func(c *Config) { c.QPS = 1 },
		"--speed: -1 is not allowed":        func(c *Config) { c.Speed = -1; c.Trace = "x" },
		"--speed: NaN is not allowed":       func(c *Config) { c.Speed = math.NaN(); c.Trace = "x" },
		"--speed: only with --trace":        func(c *Config) { c.Speed = 2 },
		`--listen: "nonsense" is not allow`: func(c *Config) { c.Listen = "nonsense" },
	} {
		c := good
		change(&c)
		if err := c.Validate(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestZipf(t *testing.T) {
	for _, seed := range []uint64{0, 1, 2} {
		z := newZipf(1000, seed, zipfExponent)
		count := func() (hottest string, share float64, seconds float64) {
			seen := map[string]int{}
			from := z.now
			const n = 20000
			for range n {
				a, ok, err := z.next()
				if !ok || err != nil || a.load != 1 {
					t.Fatal(a, ok, err)
				}
				if seen[a.key]++; seen[a.key] > seen[hottest] {
					hottest = a.key
				}
			}
			return hottest, float64(seen[hottest]) / n, z.now - from
		}
		hot, share, seconds := count()
		// From .25 on the hottest key alone makes an equal split over 8 tasks more
		// than twice off the mean.
		if share < .245 || share > .3 {
			t.Errorf("seed %d: the hottest key has %.3f of the load", seed, share)
		}
		if math.Abs(seconds-20) > 1 {
			t.Errorf("seed %d: 20000 calls at 1000 a second take %.2f s", seed, seconds)
		}
		z.shift()
		if other, share, _ := count(); other == hot || share < .245 {
			t.Errorf("seed %d: after a shift %s is hottest with %.3f, before it was %s", seed, other, share, hot)
		}
	}
}

func TestScript(t *testing.T) {
	for _, cfg := range []Config{{}, {Trace: "x"}, {Overload: true}} {
		last := time.Duration(0)
		cfg.Duration = 30 * time.Second
		for _, s := range script(&cfg) {
			if s.at <= last || s.at > 20*time.Second {
				t.Errorf("%s at %s", s.kind, s.at)
			}
			if last = s.at; cfg.Trace != "" && s.kind == evShift {
				t.Error("a trace brings its own shifts")
			}
		}
	}
}

func TestMeter(t *testing.T) {
	m := newMeter()
	for range 3 {
		m.record(outcome{task: "a", load: 1, answered: true, hit: true})
		m.lookup(50)
	}
	before := m.snapshot()
	m.record(outcome{task: "b", load: 2, answered: true, misrouted: true, retried: true})
	m.record(outcome{load: 1, retried: true})
	m.lookup(90)
	d := m.snapshot().since(before)
	if d.total != (counts{Requests: 2, Errors: 1, Misrouted: 1, Retried: 2}) || d.carried["a"] != 0 || d.carried["b"] != 2 {
		t.Errorf("%+v", d)
	}
	all := m.snapshot()
	if got := all.imbalance([]string{"a", "b", "c"}); math.Abs(got-3./(5./3)) > 1e-9 {
		t.Errorf("imbalance %v", got)
	}
	if got := all.total.availability(); got != .8 {
		t.Errorf("availability %v", got)
	}
	if p50, p99 := m.lookupTimes(); p50 != 50 || p99 != 90 {
		t.Errorf("lookups %d %d", p50, p99)
	}
	if (snapshot{}).imbalance(nil) != 0 || (counts{}).availability() != 0 {
		t.Error("nothing measured is nothing")
	}
}

// In consistent mode the calls that a death costs are not held against it, nor an
// imbalance that its keys make; a key with two owners is.
func TestJudgeConsistent(t *testing.T) {
	base := Summary{Mode: "consistent", Requests: 10000, Errors: 50, Availability: .995, KillErrors: 50, Looks: 1, ImbalanceFirst: 1.5, ImbalanceLast: 1.2}
	for _, k := range expected(&Config{}) {
		base.Events = append(base.Events, event{Kind: k})
	}
	for name, c := range map[string]struct {
		change func(s *Summary)
		tasks  int
		want   string
	}{
		"well":            {func(s *Summary) {}, 8, ""},
		"other errors":    {func(s *Summary) { s.KillErrors = 40 }, 8, "availability is 0.99900"},
		"two owners":      {func(s *Summary) { s.Overlaps = 2 }, 8, "a key had two owners, 2 times"},
		"nobody looked":   {func(s *Summary) { s.Looks = 0 }, 8, "no look for keys"},
		"uneven":          {func(s *Summary) { s.ImbalanceLast = 1.4 }, 8, "imbalance is 1.40 at the end"},
		"cannot be even":  {func(s *Summary) { s.ImbalanceLast = 1.9 }, 20, ""},
		"in another mode": {func(s *Summary) { s.Mode = "affinity"; s.ImbalanceFirst, s.ImbalanceLast = 3, 1.9 }, 20, "imbalance is 1.90"},
	} {
		s := base
		c.change(&s)
		s.judge(&Config{Tasks: c.tasks}, .095)
		if got := strings.Join(s.Failures, "; "); s.OK != (c.want == "") || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestJudge(t *testing.T) {
	s := Summary{Requests: 10000, Availability: 1, ImbalanceFirst: 2.5, ImbalanceLast: 1.1}
	for _, k := range expected(&Config{}) {
		s.Events = append(s.Events, event{Kind: k})
	}
	if s.judge(&Config{Tasks: 8}, 0); !s.OK || s.Err() != nil {
		t.Errorf("a good run: %v", s.Failures)
	}
	bad := Summary{Requests: 10000, Availability: .9997, DrainErrors: 1, ImbalanceFirst: 2, ImbalanceLast: 1.31, Events: append(s.Events[1:], event{Kind: evTrouble, Task: "x", Detail: "y"})}
	if bad.judge(&Config{Tasks: 8}, 0); bad.OK || len(bad.Failures) != 6 || bad.Err() == nil {
		t.Errorf("a bad run: %q", bad.Failures)
	}
}

// What becomes of calls in a flood is told by criticality, and judged apart.
func TestJudgeFlood(t *testing.T) {
	m := newMeter()
	m.record(outcome{answered: true, criticality: overload.Critical})
	m.enter(inFlood)
	for range 100 {
		m.record(outcome{answered: true, criticality: overload.CriticalPlus})
		m.record(outcome{criticality: overload.Sheddable})
	}
	m.enter(afterFlood)
	m.record(outcome{criticality: overload.Critical})
	m.enter(usual)
	m.record(outcome{criticality: overload.Critical})
	flooded, sum := m.flood()
	if len(flooded) != 2 || flooded[0] != (Flooded{"critical_plus", 100, 1}) || flooded[1] != (Flooded{"sheddable", 100, 0}) || sum.Requests != 201 || sum.Errors != 101 {
		t.Errorf("%+v, %+v", flooded, sum)
	}
	for want, change := range map[string]func(*Summary){
		"":                                 func(*Summary) {},
		"there was no flood":               func(s *Summary) { s.Flooded = nil },
		"in the flood 0.800 of the crit":   func(s *Summary) { s.Flooded = []Flooded{{"critical_plus", 100, .8}} },
		"in the flood 0.960 of the critic": func(s *Summary) { s.Flooded = []Flooded{{"critical_plus", 100, .93}, {"critical", 100, .96}} },
		"did not happen: flood":            func(s *Summary) { s.Events = s.Events[1:] },
	} {
		s := Summary{Requests: 10000, Availability: 1, ImbalanceFirst: 2.5, ImbalanceLast: 1.1, Flooded: flooded, Events: []event{{Kind: evFlood}, {Kind: evCalm}}}
		change(&s)
		s.judge(&Config{Tasks: 8, Overload: true}, 0)
		if got := strings.Join(s.Failures, "; "); s.OK != (want == "") || !strings.HasPrefix(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	n, all := map[overload.Criticality]int{}, 1000
	for i := range all {
		n[drawCriticality(float64(i)/float64(all))]++
	}
	for _, x := range mix {
		if got := float64(n[x.criticality]) / float64(all); math.Abs(got-x.share) > .01 {
			t.Errorf("%s: %v of the calls, want %v", x.criticality, got, x.share)
		}
	}
}

func TestTracePlan(t *testing.T) {
	full := room
	hour := traceInfo{records: 100, first: 0, last: time.Hour.Milliseconds()}
	for _, c := range []struct {
		name  string
		cfg   Config
		info  traceInfo
		d     time.Duration
		speed float64
	}{
		{"fitted", Config{Duration: 30 * time.Second}, hour, 30 * time.Second, 120 / room},
		{"at a speed, to its end", Config{Duration: 30 * time.Second, Speed: 60}, hour, time.Duration(float64(time.Minute) / full), 60},
		{"at a speed, cut off", Config{Duration: 30 * time.Second, Speed: 60, durationSet: true}, hour, 30 * time.Second, 60},
		{"all at one time", Config{Duration: 30 * time.Second, Speed: 60}, traceInfo{records: 100}, 30 * time.Second, 0},
	} {
		d, speed, err := c.info.plan(&c.cfg)
		if d != c.d || speed != c.speed || err != nil {
			t.Errorf("%s: %s at %g, %v; want %s at %g", c.name, d, speed, err, c.d, c.speed)
		}
	}
	if _, _, err := hour.plan(&Config{Speed: 3600}); err == nil || !strings.Contains(err.Error(), "want at most 367") {
		t.Errorf("too fast: %v", err)
	}
}

func TestReplay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace.csv")
	if err := os.WriteFile(path, []byte("unix_ms,key,load\n1000,a,1\n3000,b,2.5\n2000,c,1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	info, err := scanTrace(path)
	if err != nil || info != (traceInfo{records: 3, first: 1000, last: 3000, weighted: true}) {
		t.Fatalf("%+v, %v", info, err)
	}
	r, err := newReplay(path, info, 4*time.Second, .5)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	want := []arrival{{key: "a", load: 1}, {at: 4 * time.Second, key: "b", load: 2.5}, {at: 4 * time.Second, key: "c", load: 1}}
	for _, w := range want {
		if a, ok, err := r.next(); a != w || !ok || err != nil {
			t.Errorf("%+v %v %v, want %+v", a, ok, err, w)
		}
	}
	if _, ok, err := r.next(); ok || err != nil {
		t.Errorf("the trace does not end: %v %v", ok, err)
	}
	if err := os.WriteFile(path, []byte("unix_ms,key,load\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := scanTrace(path); err == nil || !strings.Contains(err.Error(), "is empty") {
		t.Errorf("an empty trace: %v", err)
	}
}

func sampleTick() *tick {
	return &tick{
		Second: 3, AtMS: 3001, Distributor: "127.0.0.1:4720", counts: counts{Requests: 100, Errors: 1, Misrouted: 2, Retried: 3, Hits: 50},
		HitRate: .5, Imbalance: 1.5, KeyChurn: .02, Generation: 17, Generations: 4, Slices: 400,
		Tasks:  []tickTask{{"cache-0", "running", 75, 50, .5}, {"cache-1", "dead", 25, 0, 0}},
		Events: []event{{2500, evKill, "cache-1", "without a word"}},
	}
}

func TestOutputs(t *testing.T) {
	cfg := &Config{Duration: 30 * time.Second, Tasks: 2, Clients: 4, QPS: 100}
	sum := &Summary{Requests: 100, Availability: .99, Failures: []string{"availability is low"}}

	var b bytes.Buffer
	j := &jsonOutput{&b}
	j.begin(cfg, addresses{"127.0.0.1:4720", "127.0.0.1:4730", "http://127.0.0.1:4721/"})
	if err := j.tick(sampleTick()); err != nil {
		t.Fatal(err)
	}
	if err := j.end(sum); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if len(lines) != 2 {
		t.Fatalf("%d lines of JSON:\n%s", len(lines), b.String())
	}
	var second map[string]any
	if err := json.Unmarshal([]byte(lines[0]), &second); err != nil || second["requests"] != 100. || second["imbalance"] != 1.5 || second["distributor"] != "127.0.0.1:4720" {
		t.Errorf("%v: %s", err, lines[0])
	}
	var last struct{ Summary map[string]any }
	if err := json.Unmarshal([]byte(lines[1]), &last); err != nil {
		t.Fatal(err)
	}
	for _, k := range []string{"requests", "errors", "availability", "misrouted", "imbalance_first", "imbalance_last", "key_churn_per_round", "generations", "lookup_p50_ns", "lookup_p99_ns", "events"} {
		if _, ok := last.Summary[k]; !ok {
			t.Errorf("the summary has no %s", k)
		}
	}

	b.Reset()
	p := &plainOutput{w: &b}
	p.begin(cfg, addresses{"127.0.0.1:4720", "127.0.0.1:4730", "http://127.0.0.1:4721/"})
	p.tick(sampleTick())
	p.end(sum)
	for _, want := range []string{"slicerctl --server 127.0.0.1:4720 inspect demo", "open http://127.0.0.1:4721/ in a browser", "The page at http://127.0.0.1:4721/ has ended", "2.5s  ** killed cache-1: without a word", "imbalance 1.50", "tasks 75 25(dead)", "FAILED: availability is low"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("plain output lacks %q:\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "\x1b") {
		t.Error("plain output has escape sequences")
	}

	b.Reset()
	s := &screenOutput{on: screen.Screen{W: &b, Size: func() (int, int) { return 60, 10 }}}
	s.begin(cfg, addresses{distributor: "127.0.0.1:4720"})
	b.Reset()
	s.tick(sampleTick())
	rows := strings.Split(strings.TrimSuffix(b.String(), "\x1b[J"), "\n")
	if len(rows) != 10 { // 9 and what follows the last line break
		t.Errorf("%d rows on a screen of 10:\n%s", len(rows), b.String())
	}
	for _, r := range rows {
		if n := len([]rune(strings.TrimSuffix(strings.TrimPrefix(r, "\x1b[H"), "\x1b[K"))); n > 60 {
			t.Errorf("%d columns on a screen of 60: %q", n, r)
		}
	}
	if !strings.Contains(b.String(), "cache-0  running") {
		t.Errorf("no bar of cache-0:\n%s", b.String())
	}
}

func TestOwned(t *testing.T) {
	var p assignment.Placement
	p.Add(0, 0)
	p.Add(assignment.KeyspaceEnd/2, 0, 1)
	task := func(name string, i uint32, s assignment.TaskState) assignment.Task {
		return assignment.Task{Name: name, Incarnation: 1, Address: "h:1", Index: i, Weight: 1, State: s}
	}
	a, err := assignment.Successor(nil, assignment.Header{Job: jobName, StoreID: 1, Generation: 1},
		[]assignment.Task{task("a", 0, assignment.TaskRunning), task("b", 1, assignment.TaskDraining)}, p)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{"a": 1, "b": .5, "c": 0} {
		if _, share := owned(a, name); share != want {
			t.Errorf("%s owns %v, want %v", name, share, want)
		}
	}
	if got := running(a); len(got) != 1 || got[0] != "a" {
		t.Errorf("running: %v", got)
	}
}

// The last window is as much of the load when the process is without the CPU for half of
// the time: as many calls, and as little chance.
func TestLastWindowIsOfTheLoad(t *testing.T) {
	c := Config{Duration: 30 * time.Second, Tasks: 8, QPS: 1000}
	window := lastWindow(&c)
	if want := 4800 * time.Millisecond; window != want {
		t.Fatalf("the window is %s, want %s", window, want)
	}
	for _, load := range []time.Duration{time.Second, time.Second / 2} { // of a second
		var shots []shot
		for i := range 60 {
			at := time.Duration(i) * load
			shots = recent(append(shots, shot{snapshot{total: counts{Requests: int64(at / time.Millisecond)}}, at}), window)
		}
		if n := shots[len(shots)-1].since(shots[0].snapshot).total.Requests; n < 4800 || n > 4800+load.Milliseconds() {
			t.Errorf("%d calls in the window with %s of load a second, want 4800 or a shot more", n, load)
		}
	}
	if one := []shot{{at: time.Second}}; len(recent(one, window)) != 1 {
		t.Error("the only shot is dropped")
	}
}

// TestCommand: what the demo prints works however the demo was started.
func TestCommand(t *testing.T) {
	for _, c := range []struct{ name, exe, there, want string }{
		{"slicer", "/usr/bin/slicer", "", "slicerctl"},
		{"bin/slicer", "/src/bin/slicer", "bin/slicerctl", "bin/slicerctl"},
		{"bin/slicer", "/src/bin/slicer", "", "slicerctl"},
		{"/tmp/go-build123/b001/exe/slicer", "/tmp/go-build123/b001/exe/slicer", "cmd/slicerctl", "go run ./cmd/slicerctl"},
		{"slicer", "/home/ada/.cache/go-build/0a/x-d/slicer", "", "go run github.com/slicer-project/slicer/cmd/slicerctl"},
		{"slicer", "/cache/0a/" + strings.Repeat("0a", 32) + "-d/slicer", "cmd/slicerctl", "go run ./cmd/slicerctl"},
	} {
		if got := commandAs("slicerctl", c.name, c.exe, func(path string) bool { return path == c.there }); got != c.want {
			t.Errorf("%s started as %s: %q, want %q", c.exe, c.name, got, c.want)
		}
	}
}
