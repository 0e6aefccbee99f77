//go:build system

package page_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/cmd/internal/ctl"
	"github.com/slicer-project/slicer/cmd/internal/demo"
	"github.com/slicer-project/slicer/cmd/internal/page"
	"github.com/slicer-project/slicer/cmd/internal/run/runtest"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/test/kit/bed"
	"github.com/slicer-project/slicer/test/kit/browser"
)

const wide, high = 1400, 1000

// median of an odd number of times.
func median(all []time.Duration) time.Duration {
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}

// lines hands on what is written to it, line by line.
type lines struct {
	mu   sync.Mutex
	rest []byte
	each func(line []byte)
}

func (l *lines) Write(data []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, data...)
	for {
		line, rest, ok := bytes.Cut(l.rest, []byte("\n"))
		if !ok {
			return len(data), nil
		}
		l.each(line)
		l.rest = bytes.Clone(rest)
	}
}

// TestDemoInBrowser looks at the page of the running demo, behind a proxy that has it below a
// path: its heat map agrees with slicerctl
// inspect --slices, slice by slice and in colour; tasks, keys and decisions are there; and it
// can be used by keyboard.
func TestDemoInBrowser(t *testing.T) {
	b := browser.Start(t)
	at := make(chan [2]string, 1)
	out := &lines{each: func(line []byte) {
		var tick struct{ Page, Distributor string }
		if json.Unmarshal(line, &tick) == nil && tick.Page != "" {
			select {
			case at <- [2]string{tick.Page, tick.Distributor}:
			default:
			}
		}
	}}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := demo.Run(ctx, demo.Config{Duration: 10 * time.Minute, Tasks: 8, Clients: 2, QPS: 500, Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0", JSON: true}, out, nil)
		done <- err
	}()
	defer func() { cancel(); <-done }()
	var shown, server string
	select {
	case where := <-at:
		shown, server = where[0], where[1]
	case err := <-done:
		t.Fatal(err)
	case <-time.After(2 * limit):
		t.Fatal("the demo does not begin")
	}
	tab := b.Open(t, behindPrefix(t, shown), wide, high)
	tab.Until("document.querySelector('#rows th')?.innerText === 'demo' && document.querySelector('#rows svg path')")
	tab.Screenshot("overview-light")
	tab.Dark(true)
	tab.Screenshot("overview-dark")
	tab.Dark(false)
	tab.Eval("document.querySelector('#rows a').click()", nil)
	tab.Until("document.body.dataset.state > 3 && canvas.heatmap?.loads && document.querySelectorAll('#keys button').length > 3")
	agrees(t, tab, server, "demo")
	for _, want := range []string{"cache-0", "cache-7", "clerks", "None: the assigner decides by itself", "Decisions"} {
		if text := tab.Text("body"); !strings.Contains(text, want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
	tab.Until("document.querySelectorAll('#entries li').length > 1")
	tab.Screenshot("job-light")
	tab.Dark(true)
	tab.Eval("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(() => r(true))))", nil)
	tab.Screenshot("job-dark")
	keyboard(t, tab)
	tab.Screenshot("key-dark")
	tab.Dark(false)
	tab.Call("Emulation.setDeviceMetricsOverride", map[string]any{"width": 420, "height": 900, "deviceScaleFactor": 1, "mobile": false}, nil)
	tab.Until("canvas.heatmap.at.lines === 16 && canvas.clientWidth < 420")
	tab.Screenshot("job-narrow")
	if wrong := tab.Wrong(); len(wrong) > 0 {
		t.Errorf("the browser finds wrong: %q", wrong)
	}
}

// behindPrefix is the URL of a proxy that has a page below a path.
func behindPrefix(t *testing.T, page string) string {
	t.Helper()
	to, err := url.Parse(page)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }, Transport: &http.Transport{DisableKeepAlives: true}, ErrorLog: log.New(io.Discard, "", 0)}
	lis := bed.Listen(t)
	mux := http.NewServeMux()
	mux.Handle("GET /ops/slicer/", http.StripPrefix("/ops/slicer", proxy))
	bed.ServeHTTP(t, lis, mux, func() error { return nil })
	return "http://" + lis.Addr().String() + "/ops/slicer/"
}

// agrees compares the slices that a page shows with those of slicerctl, of one generation.
func agrees(t *testing.T, tab *browser.Tab, server, job string) {
	t.Helper()
	for range 100 {
		told := inspect(t, server, job)
		var shown struct {
			Generation int64
			List       []slice
		}
		tab.Eval("({ generation: canvas.heatmap.slices.generation, list: canvas.heatmap.list() })", &shown)
		if shown.Generation != told.Generation {
			continue // there is another one between the two
		}
		if !slices.EqualFunc(shown.List, told.Slices, func(x, y slice) bool {
			return x.Start == y.Start && x.End == y.End && slices.Equal(x.Tasks, y.Tasks)
		}) {
			t.Fatalf("of generation %d the page shows %d slices, slicerctl %d, and they differ", told.Generation, len(shown.List), len(told.Slices))
		}
		var colors []struct{ Drawn, Meant string }
		tab.Eval(`new Promise(r => requestAnimationFrame(() => setTimeout(() => {
			const m = canvas.heatmap;
			r(m.slices.generation !== `+fmt.Sprint(told.Generation)+` ? [] : Array.from({length: m.slices.count}, (_, i) => m.shown(i)).filter(x => x));
		}, 0)))`, &colors)
		if len(colors) == 0 {
			continue
		}
		for i, c := range colors {
			if c.Drawn != c.Meant {
				t.Fatalf("slice %d is drawn %s and not %s", i, c.Drawn, c.Meant)
			}
		}
		t.Logf("generation %d: %d slices agree with slicerctl's, %d of them were found in their owner's colour", told.Generation, len(told.Slices), len(colors))
		return
	}
	t.Fatal("page and slicerctl are never on one generation")
}

// keyboard goes through the page without a mouse, and asks about a key.
func keyboard(t *testing.T, tab *browser.Tab) {
	t.Helper()
	tab.Eval("document.getElementById('canvas').focus()", nil)
	for range 3 {
		tab.Press("ArrowRight")
	}
	tab.Until("document.getElementById('at').innerText.includes(canvas.heatmap.slices.start(canvas.heatmap.cursor))")
	tab.Press("Enter")
	tab.Until("document.body.dataset.answers > 0 && document.getElementById('answer').innerText.includes('Owner')")
	seen := map[string]bool{}
	tab.Eval("document.body.tabIndex = -1; document.body.focus()", nil)
	for range 120 {
		tab.Press("Tab")
		var id string
		tab.Eval("(e => e === document.body ? '' : e.id || e.className || e.innerText)(document.activeElement)", &id)
		seen[id] = true
	}
	for _, want := range []string{"skip", "key", "canvas", "find", "Who owns it?", "Load"} {
		if !seen[want] {
			t.Errorf("%q is not reached by Tab: %v", want, seen)
		}
	}
	tab.Eval("document.getElementById('key').value = 'user/4711'; document.getElementById('ask').requestSubmit()", nil)
	tab.Until("document.getElementById('answer').innerText.includes('" + assignment.KeyOf("user/4711").String() + "')")
}

// markup is what a page that takes text for its own would show as a picture.
const markup = "<img src=x>"

// TestHotKeyInBrowser: when another key becomes hot, and when the hot key is given to another
// task, a page shows it within 2 s, in the median of 5.
func TestHotKeyInBrowser(t *testing.T) {
	b := browser.Start(t)
	r := newRig(t, nil)
	tasks := r.job(assignment.JobConfig{Name: "cache", MaxReplicas: 1, HeartbeatTimeout: 10 * time.Second}, 3)
	stop := ask(t, tasks, 200, "key-0")
	tab := b.Open(t, r.page()+"job?name=cache", wide, high)
	hottest := func(key string) string {
		return "document.querySelector('#keys button')?.innerText === '" + assignment.KeyOf(key).String() + "'"
	}
	tab.Until(hottest("key-0"))
	var shifts, moves []time.Duration
	for i := range 5 {
		stop()
		next := fmt.Sprintf("key-%d", i+1)
		stop = ask(t, tasks, 200, next)
		shifts = append(shifts, tab.Until(hottest(next)))
	}
	for i := range 6 {
		to := fmt.Sprintf("t-%d", i%3)
		if code, _, errs := runtest.Execute(ctl.New(), "--server", r.at, "pin", "cache", "--key", "key-5", "--task", to, "--as", "test"); code != 0 {
			t.Fatalf("pin: exit %d: %s", code, errs)
		}
		took := tab.Until("document.querySelector('#keys tr td:last-child')?.innerText === '" + to + "'")
		if i > 0 { // it may have been there before
			moves = append(moves, took)
		}
	}
	t.Logf("seen in the page after: another hot key %s, median %s; another owner of the hot key %s, median %s", shifts, median(shifts), moves, median(moves))
	if m := max(median(shifts), median(moves)); m > 2*time.Second {
		t.Errorf("it takes %s until the page shows it", m)
	}
	tab.Screenshot("pinned-light")
	if code, _, errs := runtest.Execute(ctl.New(), "--server", r.at, "freeze", "cache", "--as", "test", "--reason", "incident 4711"+markup); code != 0 {
		t.Fatalf("freeze: exit %d: %s", code, errs)
	}
	tab.Until("document.getElementById('state').innerText === 'frozen' && document.getElementById('notices').innerText.includes('incident 4711" + markup + "') && document.getElementById('inforce').innerText.includes('slicerctl unfreeze cache')")
	tab.Screenshot("frozen-light")
	var pictures int
	if tab.Eval("document.querySelectorAll('main img').length", &pictures); pictures > 0 || len(tab.Wrong()) > 0 {
		t.Errorf("what operators write becomes part of the page: %d pictures, %q", pictures, tab.Wrong())
	}
}

// large answers for a job of many tasks and slices, of which each reading finds another
// generation, and for one that has nothing.
type large struct {
	slicerv1.UnimplementedAdminServiceServer
	mu      sync.Mutex
	tasks   []assignment.Task
	owners  []uint32
	starts  []assignment.SliceKey
	reading int64
	fixed   bool
}

const largeTasks, largeSlices = 1000, 100_000

func newLarge(fixed bool) *large {
	rng := rand.New(rand.NewPCG(5, 6))
	l := &large{fixed: fixed}
	for i := range largeTasks {
		l.tasks = append(l.tasks, assignment.Task{Name: fmt.Sprintf("task-%04d", i), Incarnation: 1, Address: fmt.Sprintf("10.0.%d.%d:80", i/250, i%250), Zone: "eu-1", Index: uint32(i), Weight: 1, State: assignment.TaskRunning})
	}
	seen := map[assignment.SliceKey]bool{0: true}
	for len(seen) < largeSlices {
		seen[assignment.SliceKey(rng.Uint64()>>1)] = true
	}
	for k := range seen {
		l.starts = append(l.starts, k)
		l.owners = append(l.owners, uint32(rng.IntN(largeTasks)))
	}
	slices.Sort(l.starts)
	return l
}

func (l *large) InspectJob(_ context.Context, m *slicerv1.InspectJobRequest) (*slicerv1.InspectJobResponse, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := &slicerv1.InspectJobResponse{AssignerId: "a", Preferred: true, Job: &slicerv1.Job{Config: &slicerv1.JobConfig{Name: m.GetJob(), LoadMetric: "requests", MaxReplicas: 1, MinReplicas: 1}}}
	if m.GetJob() == "empty" {
		return out, nil
	}
	if !l.fixed || l.reading == 0 {
		l.reading++
	}
	out.Generation, out.GenerationUnixMs, out.Imbalance, out.Floor = 1795000000000+l.reading, 1795000000000, 1.2, 1
	for i, t := range l.tasks {
		out.Tasks = append(out.Tasks, &slicerv1.TaskStatus{Task: wire.TaskToProto(t), Connected: true, Load: 100 + float64((i*7919+int(l.reading)*131)%50), CpuUtilization: .3, LastReportAgeMs: 200})
	}
	return out, nil
}

func (l *large) InspectSlices(_ context.Context, m *slicerv1.InspectSlicesRequest) (*slicerv1.InspectSlicesResponse, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := &slicerv1.InspectSlicesResponse{}
	if m.GetJob() == "empty" {
		return out, nil
	}
	out.Generation = 1795000000000 + l.reading
	if out.Generation != m.GetKnownGeneration() {
		for i := range 1000 { // a hundredth of them moves
			l.owners[(i*97+int(l.reading)*1009)%largeSlices] = uint32((i + int(l.reading)) % largeTasks)
		}
		a, err := assignment.Successor(nil, assignment.Header{Job: "large", StoreID: 1, Generation: assignment.Generation(out.Generation)}, l.tasks, assignment.Placement{Starts: l.starts, Owners: slices.Clone(l.owners)})
		if err != nil {
			return nil, err
		}
		if out.Assignment, err = wire.EncodeAssignment(a); err != nil {
			return nil, err
		}
	}
	for i := range largeSlices {
		out.Load = append(out.Load, float32((i*2654435761+int(l.reading)*40503)%1000)/100)
	}
	for i := range 20 {
		out.HotKey, out.HotRate = append(out.HotKey, uint64(l.starts[i*5000])), append(out.HotRate, float32(400-10*i))
	}
	return out, nil
}

func (l *large) GetHistory(context.Context, *slicerv1.GetHistoryRequest) (*slicerv1.GetHistoryResponse, error) {
	return &slicerv1.GetHistoryResponse{}, nil
}

// TestLargeJobInBrowser: 10^5 slices and 1,000 tasks open at most 1 s slower than a job that has
// nothing, and an update, with a new generation each time, takes at most 100 ms of script, in
// the median of 5.
func TestLargeJobInBrowser(t *testing.T) {
	b := browser.Start(t)
	url := show(t, page.Config{Kind: "test", ID: "t", Admin: newLarge(false)})
	const shown = "document.body.dataset.state > 0 && (canvas.heatmap.slices?.count === 0 || canvas.heatmap.which)"
	opens := func(job string) time.Duration {
		began := time.Now()
		tab := b.Open(t, url+"job?name="+job, wide, high)
		tab.Until(shown)
		took := time.Since(began)
		tab.Close()
		return took
	}
	opens("empty") // what is read for the first time, and compiled
	var empty, full []time.Duration
	for range 5 {
		empty = append(empty, opens("empty"))
		full = append(full, opens("large"))
	}
	tab := b.Open(t, url+"job?name=large", wide, high)
	tab.Until(shown)
	var scripts, tasks []time.Duration
	seconds := func(name string) time.Duration { return time.Duration(tab.Metric(name) * float64(time.Second)) }
	for range 6 {
		var before int
		tab.Eval("Number(document.body.dataset.state)", &before)
		script, task := seconds("ScriptDuration"), seconds("TaskDuration")
		// To ask is script, too: so this is asked once, and answered after what is drawn.
		tab.Eval(fmt.Sprintf(`new Promise(r => { const o = new MutationObserver(() => {
			if (Number(document.body.dataset.state) > %d) { o.disconnect(); requestAnimationFrame(() => setTimeout(() => r(true), 0)); }
		}); o.observe(document.body, {attributes: true}); })`, before), nil)
		scripts, tasks = append(scripts, seconds("ScriptDuration")-script), append(tasks, seconds("TaskDuration")-task)
	}
	scripts, tasks = scripts[1:], tasks[1:] // the first is compiled while it runs
	t.Logf("opened after: nothing %s, median %s; %d slices and %d tasks %s, median %s", empty, median(empty), largeSlices, largeTasks, full, median(full))
	t.Logf("an update takes script of %s, median %s; all that the page does of %s, median %s", scripts, median(scripts), tasks, median(tasks))
	if d := median(full) - median(empty); d > time.Second {
		t.Errorf("a large job opens %s slower", d)
	}
	if m := median(scripts); m > 100*time.Millisecond {
		t.Errorf("an update takes %s of script", m)
	}
	tab.Screenshot("large-light")
	tab.Eval("document.querySelector('#taskrows button').click()", nil)
	tab.Screenshot("chosen-light")
	if wrong := tab.Wrong(); len(wrong) > 0 {
		t.Errorf("the browser finds wrong: %q", wrong)
	}
}

// TestViewersCostLittle: five viewers of a job cost "slicer serve" at most 2 % of a core.
func TestViewersCostLittle(t *testing.T) {
	p := runtest.Start(t, "serve", "--store=pebble://"+t.TempDir(), "--listen=127.0.0.1:0", "--backup-listen=127.0.0.1:0", "--http=127.0.0.1:0")
	w := p.Where()
	ready(t, "http://"+w["http"])
	file := filepath.Join(t.TempDir(), "cache.yaml")
	if err := os.WriteFile(file, []byte("name: cache\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := runtest.Execute(ctl.New(), "--server", w["listen"], "job", "apply", "-f", file, "--as", "test"); code != 0 {
		t.Fatalf("job apply: exit %d: %s", code, errs)
	}
	var tasks []*slicelet.Slicelet
	for i := range 8 {
		s, err := slicelet.New(slicelet.Config{Job: "cache", Task: fmt.Sprintf("t-%d", i), Address: fmt.Sprintf("127.0.0.1:%d", 100+i), Distributors: []string{w["listen"]}})
		if err != nil {
			t.Fatal(err)
		}
		bed.CloseAtEnd(t, s.Close)
		tasks = append(tasks, s)
	}
	var keys []string
	for i := range 50 {
		keys = append(keys, fmt.Sprintf("key-%d", i))
	}
	ask(t, tasks, 20, keys...)
	url := "http://" + w["http"] + "/"
	t.Run("loaded", func(t *testing.T) {
		until(watch(t, url+"events?job=cache"), "state", func(s *state) bool { return s.Load > 500 })
	})
	const took = 10 * time.Second
	cost := func() float64 {
		before := cpuOf(t, url)
		<-time.After(took)
		return (cpuOf(t, url) - before).Seconds() / took.Seconds()
	}
	var alone, watched []float64
	var news atomic.Int64
	for range 3 {
		t.Run("alone", func(*testing.T) { alone = append(alone, cost()) })
		t.Run("watched", func(t *testing.T) {
			for range 5 {
				s := watch(t, url+"events?job=cache")
				until(s, "state", func(*state) bool { return true })
				go func() {
					for range s.events {
						news.Add(1)
					}
				}()
			}
			watched = append(watched, cost())
		})
	}
	slices.Sort(alone)
	slices.Sort(watched)
	t.Logf("share of a core: without viewers %.4f, with five %.4f (medians of 3, 10 s each), which were sent %d events", alone[1], watched[1], news.Load())
	if n := news.Load(); n < 3*5*10 {
		t.Errorf("the viewers were sent %d events, less than one a second", n)
	}
	if d := watched[1] - alone[1]; d > .02 {
		t.Errorf("five viewers cost %.2f %% of a core", 100*d)
	}
}

// cpuOf is what a process has used, as it tells itself.
func cpuOf(t *testing.T, url string) time.Duration {
	t.Helper()
	_, _, body := get(t, url+"metrics")
	for line := range strings.Lines(body) {
		if text, ok := strings.CutPrefix(line, "process_cpu_seconds_total "); ok {
			seconds, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
			if err != nil {
				t.Fatal(err)
			}
			return time.Duration(seconds * float64(time.Second))
		}
	}
	t.Fatal("it does not tell what it has used")
	return 0
}

// inspected is what slicerctl tells.
type inspected struct {
	Generation int64
	Slices     []slice `json:"slice_list"`
}

type slice struct {
	Start, End string
	Tasks      []string
}

func inspect(t *testing.T, at, job string) (v inspected) {
	t.Helper()
	code, out, errs := runtest.Execute(ctl.New(), "--server", at, "inspect", job, "--slices", "--json")
	if code != 0 {
		t.Fatalf("slicerctl inspect: exit %d: %s", code, errs)
	}
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// ready waits until a process can do its work.
func ready(t *testing.T, url string) {
	t.Helper()
	readyWith(t, &http.Client{Timeout: limit, Transport: &http.Transport{DisableKeepAlives: true}}, url)
}
