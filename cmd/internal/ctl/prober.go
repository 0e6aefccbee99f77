package ctl

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/backoff"
	"github.com/slicer-project/slicer/cmd/internal/run"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// probesAtOnce bounds the probes of one target that run at once.
const probesAtOnce = 8

type probeView struct {
	At     time.Time `json:"at"`
	Target string    `json:"target"`
	Job    string    `json:"job"`
	OK     bool      `json:"ok"`
	// LatencyMS is how long the whole assignment took to arrive, or the failure.
	LatencyMS  float64 `json:"latency_ms"`
	Generation int64   `json:"generation,omitempty"`
	Slices     int     `json:"slices,omitempty"`
	// Selected says that the assignment has a task for some key.
	Selected bool `json:"selected"`
	// Behind says that another target had a newer generation before this one was asked.
	Behind bool `json:"behind,omitempty"`
	// Empty says that the job is there, and has no assignment at any target since none
	// of its servers has reported yet. That is no failure.
	Empty bool   `json:"empty,omitempty"`
	Error string `json:"error,omitempty"`

	absent bool // there is no such job, or no assignment, at any target
}

// prober asks servers for assignments as a subscriber would.
type prober struct {
	jobs    []string // empty is all there are
	clients []*client
	listed  []string         // the jobs, when a target last named them
	newest  map[string]int64 // of each job, that any target had in an earlier round
	m       *probeMetrics
	errs    io.Writer
}

type probeMetrics struct {
	selections *prometheus.CounterVec
	probes     *prometheus.CounterVec
	latency    *prometheus.HistogramVec
	generation *prometheus.GaugeVec
	lists      *prometheus.CounterVec
}

func newProbeMetrics(r prometheus.Registerer) *probeMetrics {
	m := &probeMetrics{
		selections: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "slicer_probe_selections_total",
			Help: "Selections of a task for some key by the assignment that was asked for, by whether there was one: found or not_found."}, []string{"job", "target", "result"}),
		probes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "slicer_probe_total",
			Help: "Assignments that were asked for, by whether they came whole, were behind another server's, were none since the job has no servers yet, or failed."}, []string{"job", "target", "result"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "slicer_probe_latency_seconds",
			Help:    "Time until the whole assignment had come.",
			Buckets: []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10}}, []string{"job", "target"}),
		generation: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "slicer_probe_generation",
			Help: "Generation that the server has sent last."}, []string{"job", "target"}),
	}
	m.lists = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "slicer_probe_lists_total",
		Help: "Lists of all jobs that were asked for, by whether they came whole (ok), or without the jobs of a store, or not at all (failed), so that those listed before are probed."}, []string{"result"})
	r.MustRegister(m.selections, m.probes, m.latency, m.generation, m.lists)
	return m
}

// dialAll makes a client of every address of every target.
func (a *app) dialAll(ctx context.Context, p *prober, at *target, targets []string) error {
	for _, t := range targets {
		for _, addr := range addresses(ctx, t, a.timeout) {
			if len(p.clients) == maxTargets {
				return run.Usagef("--target: more than %d are too many", maxTargets)
			}
			host, _, _ := net.SplitHostPort(t)
			c, err := a.dialTo(at, addr, host)
			if err != nil {
				return err
			}
			p.clients = append(p.clients, c)
		}
	}
	return nil
}

// addresses are those of a name that has several, else the target as it is.
func addresses(ctx context.Context, target string, timeout time.Duration) []string {
	host, port, err := net.SplitHostPort(target)
	if err != nil || net.ParseIP(host) != nil {
		return []string{target}
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	ips, err := net.DefaultResolver.LookupIP(ctx, "ip4", host)
	if err != nil || len(ips) < 2 {
		return []string{target}
	}
	var all []string
	for _, ip := range ips {
		all = append(all, net.JoinHostPort(ip.String(), port))
	}
	slices.Sort(all)
	return all
}

func (p *prober) close() {
	for _, c := range p.clients {
		_ = c.conn.Close()
	}
}

// loop probes in rounds. With one round only, a failure is an error.
func (p *prober) loop(ctx context.Context, every time.Duration, show func([]probeView) error) error {
	for {
		began := time.Now()
		jobs, missing := p.list(ctx)
		vs := p.round(ctx, jobs)
		if ctx.Err() != nil && every != 0 {
			return nil // that is how it ends
		}
		if err := show(vs); err != nil {
			return err
		}
		if every == 0 {
			return cmp.Or(failures(vs), missing)
		}
		if missing != nil {
			fmt.Fprintln(p.errs, missing)
		}
		if !backoff.Sleep(ctx, time.Until(began.Add(every))) {
			return nil
		}
	}
}

// list is the jobs to ask for: what any target names. The error says whose jobs
// are not known.
func (p *prober) list(ctx context.Context) ([]string, error) {
	if len(p.jobs) > 0 {
		return p.jobs, nil
	}
	type answer struct {
		c    *client
		resp *slicerv1.ListJobsResponse
		err  error
	}
	answers := make(chan answer, len(p.clients))
	for _, c := range p.clients {
		go func() {
			resp, err := call(ctx, c, c.admin.ListJobs, &slicerv1.ListJobsRequest{})
			answers <- answer{c, resp, err}
		}()
	}
	names := map[string]bool{}
	var failed error
	answered, silent := false, []string(nil)
	for i := range p.clients {
		a := <-answers
		if a.err != nil {
			failed = a.c.explain(a.err)
			continue
		}
		for _, j := range a.resp.GetJobs() {
			names[j.GetConfig().GetName()] = true
		}
		if i == 0 || !answered || len(a.resp.GetUnanswered()) < len(silent) {
			silent = a.resp.GetUnanswered()
		}
		answered = true
	}
	var jobs []string
	for name := range names {
		jobs = append(jobs, name)
	}
	slices.Sort(jobs)
	switch {
	case !answered:
		p.m.lists.WithLabelValues("failed").Inc()
		// Those that were there go on being probed.
		return p.listed, &codedError{fmt.Sprintf("which jobs there are is not known: %v", failed), exitUnreachable}
	case len(silent) > 0:
		p.m.lists.WithLabelValues("failed").Inc()
		for _, j := range p.listed {
			if !names[j] {
				jobs = append(jobs, j)
			}
		}
		slices.Sort(jobs)
		return jobs, &codedError{fmt.Sprintf("not probed: the jobs of store %s, which does not answer", strings.Join(silent, ", ")), exitUnreachable}
	}
	p.m.lists.WithLabelValues("ok").Inc()
	p.listed = jobs
	return jobs, nil
}

// failures is an error if a target has failed, and another one if they only had
// nothing to give.
func failures(vs []probeView) error {
	var failed, empty, unknown []string
	for _, v := range vs {
		switch {
		case v.OK:
		case v.Empty:
			empty = append(empty, v.Job)
		case v.absent:
			unknown = append(unknown, v.Job)
		default:
			failed = append(failed, v.Target)
		}
	}
	names := func(all []string) string {
		slices.Sort(all)
		return strings.Join(slices.Compact(all), ", ")
	}
	switch {
	case failed != nil:
		n := len(failed)
		return &codedError{fmt.Sprintf("%d of %s failed: %s", n, plural(len(vs), "probe"), names(failed)), exitUnreachable}
	case unknown != nil:
		return notFoundf("there is no such job: %s", names(unknown))
	case empty != nil:
		return notFoundf("every target answered; no servers yet: %s", names(empty))
	}
	return nil
}

// round asks all targets at once. The views are in order of job, then of target.
func (p *prober) round(ctx context.Context, jobs []string) []probeView {
	vs := make([]probeView, len(jobs)*len(p.clients))
	var wg sync.WaitGroup
	for i, c := range p.clients {
		next := make(chan int, len(jobs))
		for j := range jobs {
			next <- j
		}
		close(next)
		for range min(probesAtOnce, len(jobs)) {
			wg.Go(func() {
				for j := range next {
					vs[j*len(p.clients)+i] = p.probe(ctx, c, jobs[j])
				}
			})
		}
	}
	wg.Wait()
	newest := map[string]int64{}
	held := map[string]bool{} // by some target
	for i := range vs {
		held[vs[i].Job] = held[vs[i].Job] || vs[i].OK
	}
	for i := range vs {
		v := &vs[i]
		if held[v.Job] {
			v.absent, v.Empty = false, false // what others have is not absent
		}
		v.Behind = v.OK && v.Generation < p.newest[v.Job]
		newest[v.Job] = max(newest[v.Job], v.Generation, p.newest[v.Job])
		p.note(v)
	}
	p.newest = newest
	return vs
}

func (p *prober) probe(ctx context.Context, c *client, job string) probeView {
	v := probeView{At: time.Now().UTC(), Target: c.server, Job: job}
	began := time.Now()
	a, err := c.fetch(ctx, job)
	v.LatencyMS = float64(time.Since(began).Microseconds()) / 1000
	if err != nil {
		v.Error = c.explain(err).Error()
		if v.absent = status.Code(err) == codes.NotFound; v.absent {
			_, err := call(ctx, c, c.admin.GetJob, &slicerv1.GetJobRequest{Name: job})
			v.Empty = err == nil
		}
		return v
	}
	v.OK, v.Generation, v.Slices = true, int64(a.Generation()), a.NumSlices()
	v.Selected = selects(a, assignment.SliceKey(rand.Uint64()>>1))
	return v
}

// selects reports whether a clerk would find a task for the key.
func selects(a *assignment.Assignment, k assignment.SliceKey) bool {
	for t := range a.Lookup(k).All() {
		if t.State != assignment.TaskDead {
			return true
		}
	}
	return false
}

func (p *prober) note(v *probeView) {
	result, selection := "ok", "found"
	switch {
	case v.Empty:
		p.m.probes.WithLabelValues(v.Job, v.Target, "empty").Inc()
		return // there was nothing to select from, and nothing wrong
	case !v.OK:
		result = "failed"
	case v.Behind:
		result = "behind"
	}
	if !v.Selected {
		selection = "not_found"
	}
	p.m.probes.WithLabelValues(v.Job, v.Target, result).Inc()
	p.m.selections.WithLabelValues(v.Job, v.Target, selection).Inc()
	if v.OK {
		p.m.latency.WithLabelValues(v.Job, v.Target).Observe(v.LatencyMS / 1000)
		p.m.generation.WithLabelValues(v.Job, v.Target).Set(float64(v.Generation))
	}
}

// printProbes prints a table, or with lines one line a probe.
func (a *app) printProbes(w io.Writer, vs []probeView, lines bool) error {
	switch {
	case a.json && lines:
		for i := range vs {
			if err := printLine(w, vs[i]); err != nil {
				return err
			}
		}
		return nil
	case a.json:
		return printJSON(w, vs)
	case lines:
		for i := range vs {
			if _, err := fmt.Fprintf(w, "%s %s\n", vs[i].At.Local().Format("15:04:05.000"), vs[i].line()); err != nil {
				return err
			}
		}
		return nil
	}
	t := newTable("JOB", "TARGET", ">GENERATION", ">SLICES", ">LATENCY", "RESULT")
	for _, v := range vs {
		generation, size := "-", "-"
		if v.OK {
			generation, size = fmt.Sprint(v.Generation), fmt.Sprint(v.Slices)
		}
		t.row(v.Job, v.Target, generation, size, v.latency(), v.result())
	}
	t.print(w)
	return nil
}

func (v *probeView) latency() string { return fmt.Sprintf("%.1fms", v.LatencyMS) }

func (v *probeView) result() string {
	switch {
	case v.Empty:
		return "no servers yet"
	case !v.OK:
		return v.Error
	case !v.Selected:
		return "no task for some keys"
	case v.Behind:
		return "behind"
	}
	return "ok"
}

func (v *probeView) line() string {
	if v.Empty {
		return fmt.Sprintf("%s %s %s, after %s", v.Job, v.Target, v.result(), v.latency())
	}
	if !v.OK {
		return fmt.Sprintf("%s %s failed after %s: %s", v.Job, v.Target, v.latency(), v.Error)
	}
	return fmt.Sprintf("%s %s generation %d in %s: %s", v.Job, v.Target, v.Generation, v.latency(), v.result())
}
