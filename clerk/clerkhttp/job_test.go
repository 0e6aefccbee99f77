package clerkhttp

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/test/bufconn"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/httpkey"
	"github.com/slicer-project/slicer/assignment/subscriber/subscribertest"
	"github.com/slicer-project/slicer/clerk"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

const distributor = "10.0.0.1:1"

// testJob is a job with a Distributor and HTTP servers, all in memory, so that
// tests run on virtual time.
type testJob struct {
	t       *testing.T
	net     *subscribertest.Network
	server  *subscribertest.Server
	clerk   *clerk.Clerk
	metrics *prometheus.Registry
	last    *assignment.Assignment

	mu    sync.Mutex
	tasks map[string]*testTask // by address
}

// testTask is a server that answers with its name.
type testTask struct {
	name    string
	lis     *bufconn.Listener
	srv     *http.Server
	handler http.HandlerFunc // instead of the usual one

	mu       sync.Mutex
	requests []*http.Request
	bodies   []string
	dials    int
}

// newTestJob starts tasks a, b, c and so on, of which each owns as many slices
// as owners says.
func newTestJob(t *testing.T, mode slicerv1.Mode, owners string) *testJob {
	t.Helper()
	return newTestJobOf(t, mode, owners, clerk.Config{})
}

// newTestJobOf is newTestJob with a clerk that is not the usual one.
func newTestJobOf(t *testing.T, mode slicerv1.Mode, owners string, cfg clerk.Config) *testJob {
	t.Helper()
	j := &testJob{t: t, net: subscribertest.NewNetwork(), metrics: prometheus.NewRegistry(), tasks: map[string]*testTask{}}
	j.server = j.net.Start(distributor)
	j.server.Say(&slicerv1.Status{TakesReports: true, Mode: mode})
	for _, name := range slices.Sorted(maps.Keys(set(owners))) {
		j.start(string(name))
	}
	var err error
	cfg.Job, cfg.Distributors, cfg.DialOptions, cfg.Registerer = "job", []string{distributor}, j.net.DialOptions(), j.metrics
	j.clerk, err = clerk.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	j.assign(1, owners)
	return j
}

func set(s string) map[rune]bool {
	m := map[rune]bool{}
	for _, r := range s {
		m[r] = true
	}
	return m
}

func address(name string) string { return name + ".example:80" }

func (j *testJob) start(name string) *testTask {
	task := &testTask{name: name, lis: bufconn.Listen(1 << 16)}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	task.srv = &http.Server{Handler: http.HandlerFunc(task.serve), Protocols: protocols}
	j.mu.Lock()
	j.tasks[address(name)] = task
	j.mu.Unlock()
	go func() { _ = task.srv.Serve(inTime{task.lis}) }()
	return task
}

// inTime is a bufconn.Listener on whose connections a deadline that has passed takes
// effect while all else waits. A server sets one to end its look for what follows a
// request and takes it back as soon as that has ended; bufconn's timer, if it runs at
// once, may come after that, and the next read fails.
type inTime struct{ *bufconn.Listener }

func (l inTime) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return inTimeConn{c}, nil
}

type inTimeConn struct{ net.Conn }

func (c inTimeConn) SetReadDeadline(t time.Time) error {
	if soon := time.Now().Add(1); !t.IsZero() && t.Before(soon) {
		t = soon
	}
	return c.Conn.SetReadDeadline(t)
}

func (t *testTask) serve(w http.ResponseWriter, r *http.Request) {
	t.mu.Lock()
	handler := t.handler
	t.requests = append(t.requests, r)
	t.mu.Unlock()
	if handler != nil {
		handler(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	t.mu.Lock()
	t.bodies = append(t.bodies, string(body))
	t.mu.Unlock()
	fmt.Fprint(w, t.name)
}

func (t *testTask) answers(h http.HandlerFunc) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.handler = h
}

func (t *testTask) served() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.requests)
}

// task finds one by name.
func (j *testJob) task(name string) *testTask {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.tasks[address(name)]
}

func (j *testJob) kill(name string) { j.task(name).srv.Close() }

func (j *testJob) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	j.mu.Lock()
	task := j.tasks[addr]
	j.mu.Unlock()
	if task == nil {
		return nil, fmt.Errorf("dial %s: no such host", addr)
	}
	task.mu.Lock()
	task.dials++
	task.mu.Unlock()
	return task.lis.DialContext(ctx)
}

// assign makes an assignment of slices of equal width whose owners are given by
// name, and waits until it has arrived.
func (j *testJob) assign(gen assignment.Generation, owners string) {
	j.t.Helper()
	var tasks []assignment.Task
	var pos []uint32
	names := slices.Sorted(maps.Keys(set(owners)))
	for _, name := range names {
		tasks = append(tasks, subscribertest.Task(string(name), uint32(name-'a')))
	}
	for _, o := range owners {
		pos = append(pos, uint32(slices.Index(names, o)))
	}
	j.last = subscribertest.Equal(j.t, j.last, assignment.Header{Job: "job", StoreID: 1, Generation: gen}, tasks, pos...)
	j.server.Put(j.last)
	synctest.Wait()
}

// replicate gives all keys to the first tasks.
func (j *testJob) replicate(gen assignment.Generation, owners uint32) {
	j.t.Helper()
	var p assignment.Placement
	var pos []uint32
	for i := range owners {
		pos = append(pos, i)
	}
	p.Add(0, pos...)
	next, err := assignment.Successor(j.last, assignment.Header{Job: "job", StoreID: 1, Generation: gen}, slices.Collect(func(yield func(assignment.Task) bool) {
		for _, t := range j.last.Tasks() {
			if !yield(t) {
				return
			}
		}
	}), p)
	if err != nil {
		j.t.Fatal(err)
	}
	j.last = next
	j.server.Put(next)
	synctest.Wait()
}

func (j *testJob) transport(change func(*Config)) *Transport {
	j.t.Helper()
	cfg := Config{Clerk: j.clerk, Base: &http.Transport{DialContext: j.dial, MaxIdleConnsPerHost: 8}, Registerer: j.metrics}
	if change != nil {
		change(&cfg)
	}
	tr, err := NewTransport(cfg)
	if err != nil {
		j.t.Fatal(err)
	}
	return tr
}

func (j *testJob) stop(closers ...io.Closer) {
	j.t.Helper()
	for _, c := range closers {
		if err := c.Close(); err != nil {
			j.t.Error(err)
		}
	}
	if err := j.clerk.Close(); err != nil {
		j.t.Error(err)
	}
	j.server.Stop()
	for _, task := range j.tasks {
		task.srv.Close()
	}
	synctest.Wait()
}

// metric is what the registry says, a line of the text format.
func (j *testJob) metric(line string) {
	j.t.Helper()
	name, rest, _ := strings.Cut(line, "{")
	labels, value, _ := strings.Cut(rest, "} ")
	families, err := j.metrics.Gather()
	if err != nil {
		j.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.Metric {
			all := true
			have := map[string]string{}
			for _, l := range m.Label {
				have[l.GetName()] = l.GetValue()
			}
			for pair := range strings.SplitSeq(labels, ",") {
				k, v, _ := strings.Cut(pair, "=")
				all = all && have[k] == v
			}
			if all {
				if got := fmt.Sprint(m.GetCounter().GetValue() + m.GetGauge().GetValue()); got != value {
					j.t.Errorf("%s{%s} is %s, want %s", name, labels, got, value)
				}
				return
			}
		}
	}
	j.t.Errorf("no metric %s{%s}", name, labels)
}

func (j *testJob) lint() {
	j.t.Helper()
	if problems, err := testutil.GatherAndLint(j.metrics); err != nil || len(problems) > 0 {
		j.t.Errorf("%v, %v", problems, err)
	}
}

// keyIn is a key of the i-th of n slices of equal width.
func keyIn(i, n int) string {
	for k := 0; ; k++ {
		key := fmt.Sprint("key ", k)
		if starts := assignment.Equal(n); assignment.KeyOf(key) >= starts[i] && (i+1 == n || assignment.KeyOf(key) < starts[i+1]) {
			return key
		}
	}
}

// get asks for a key, or for none if it is "-", and returns who answered.
func get(t *testing.T, tr http.RoundTripper, key string) (string, error) {
	t.Helper()
	ctx := t.Context()
	if key != "-" {
		ctx = clerk.WithKey(ctx, key)
	}
	req, err := http.NewRequestWithContext(ctx, "GET", "http://profiles/x", nil)
	if err != nil {
		t.Fatal(err)
	}
	return do(t, tr, req)
}

func do(t *testing.T, tr http.RoundTripper, req *http.Request) (string, error) {
	t.Helper()
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Sprint(resp.StatusCode), nil
	}
	return string(body), nil
}

// refuse is how a task of a consistent job refuses keys.
func refuse(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(httpkey.HeaderRefused, name)
		w.Header().Set(httpkey.HeaderGeneration, "1")
		w.WriteHeader(http.StatusMisdirectedRequest)
	}
}

// lose is how a task of a consistent job holds an answer back.
func lose(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(httpkey.HeaderLost, name)
		w.Header().Set(httpkey.HeaderGeneration, "1")
		w.WriteHeader(http.StatusConflict)
	}
}
