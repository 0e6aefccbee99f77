// Package front is what reverse proxies that shard have in common, of HTTP (package
// clerkhttp) and of gRPC (package clerkgrpc): rules that say which requests go to which job's
// tasks, and where their keys are (Slicer paper, section 2.3); the clerks of those jobs, made and
// closed as rules change; limits; metrics.
package front

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/clerk"
)

// ErrClosed is what is closed already, in this package and those that use it.
var ErrClosed = errors.New("closed")

// Config says what a Front does when its rules change. B is what leads to the tasks of a job,
// H what handles the requests of a rule.
type Config[B, H any] struct {
	Rules Rules
	// Clerk makes the clerk of a job that a rule names, once a job. The Front closes
	// it when no rule names the job any more.
	Clerk func(job string) (*clerk.Clerk, error)
	// Open makes what leads to the tasks of a job, once for each Upstream that rules name;
	// Close ends it before the clerk is closed.
	Open  func(ck *clerk.Clerk, u Upstream) (B, error)
	Close func(B)
	// Handler makes what handles the requests of a rule, by the rules in whole.
	Handler func(rules *Rules, m *Matcher, backend B, counts *Counts) H
	// Check may be nil: it returns a *assignment.FieldError for what a rule may not say here.
	Check func(Rule) error
	// Results are the names of how requests end, for Counts.
	Results []string
	// Logger may be nil, which is silent.
	Logger *slog.Logger
	// Registerer takes the metrics; nil is none.
	Registerer prometheus.Registerer
}

// Front is the rules in force, and what they need. All methods are safe for concurrent use.
type Front[B, H any] struct {
	cfg     Config[B, H]
	metrics *metrics

	table atomic.Pointer[table[H]]
	mu    sync.Mutex // of changes to what follows
	jobs  map[string]*job[B]
	over  bool
}

// table is the rules in force. It is never changed.
type table[H any] struct {
	matchers []*Matcher
	handlers []H // by rule
}

// job is one that the rules name.
type job[B any] struct {
	clerk    *clerk.Clerk
	counts   *Counts
	backends map[Upstream]B
}

// New validates the config and starts the clerks; it does not wait for their
// assignments. See Ready.
func New[B, H any](cfg Config[B, H]) (*Front[B, H], error) {
	if cfg.Clerk == nil {
		return nil, &assignment.FieldError{Field: "clerk", Value: "none", Allowed: "a function that makes the clerk of a job"}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	f := &Front[B, H]{cfg: cfg, jobs: map[string]*job[B]{}}
	var err error
	if f.metrics, err = newMetrics(cfg.Registerer, cfg.Results); err != nil {
		return nil, err
	}
	if err := f.SetRules(cfg.Rules); err != nil {
		f.metrics.unregister()
		return nil, err
	}
	return f, nil
}

// SetRules puts other rules in force, all at once: requests that are on their way
// stay on it, and limits begin anew. On an error the old rules stay in force.
func (f *Front[B, H]) SetRules(rules Rules) error {
	list, err := rules.compile(f.cfg.Check)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		return ErrClosed
	}
	next := &table[H]{matchers: list}
	used := map[string]map[Upstream]bool{}
	var fresh []string
	for _, m := range list {
		j := f.jobs[m.Job]
		if j == nil {
			ck, err := f.cfg.Clerk(m.Job)
			if err != nil {
				f.dropLocked(fresh)
				return err
			}
			j = &job[B]{clerk: ck, counts: f.metrics.of(m.Job), backends: map[Upstream]B{}}
			f.jobs[m.Job] = j
			fresh = append(fresh, m.Job)
		}
		b, ok := j.backends[m.Upstream]
		if !ok {
			if b, err = f.cfg.Open(j.clerk, m.Upstream); err != nil {
				f.dropLocked(fresh)
				return err
			}
			j.backends[m.Upstream] = b
		}
		if used[m.Job] == nil {
			used[m.Job] = map[Upstream]bool{}
		}
		used[m.Job][m.Upstream] = true
		next.handlers = append(next.handlers, f.cfg.Handler(&rules, m, b, j.counts))
	}
	f.table.Store(next)
	f.metrics.since.SetToCurrentTime()
	f.dropLocked(slices.DeleteFunc(f.namesLocked(), func(name string) bool { return used[name] != nil }))
	for name, j := range f.jobs {
		for u, b := range j.backends {
			if !used[name][u] {
				delete(j.backends, u)
				f.cfg.Close(b)
			}
		}
	}
	return nil
}

// Reload puts in force what read reads, as SetRules does, and counts it in the
// metric of reloads. On an error, be it read's, the old rules stay in force.
func (f *Front[B, H]) Reload(read func() (Rules, error)) error {
	rules, err := read()
	if err == nil {
		err = f.SetRules(rules)
	}
	if err != nil {
		f.metrics.reloads.WithLabelValues("refused").Inc()
		return err
	}
	f.metrics.reloads.WithLabelValues("loaded").Inc()
	return nil
}

// Find returns what handles a request; it is not ok, and counted, if no rule fits.
func (f *Front[B, H]) Find(req *http.Request) (h H, ok bool) {
	if t := f.table.Load(); t != nil {
		for i, m := range t.matchers {
			if m.fits(req) {
				return t.handlers[i], true
			}
		}
	}
	f.metrics.noRule.Inc()
	return h, false
}

func (f *Front[B, H]) namesLocked() (names []string) {
	for name := range f.jobs {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// dropLocked ends jobs.
func (f *Front[B, H]) dropLocked(names []string) {
	for _, name := range names {
		j := f.jobs[name]
		delete(f.jobs, name)
		for _, b := range j.backends {
			f.cfg.Close(b)
		}
		f.metrics.drop(name)
		if err := j.clerk.Close(); err != nil {
			f.cfg.Logger.Warn("closing a clerk", "job", name, "error", err)
		}
	}
}

// Ready says which job has no assignment yet, if any.
func (f *Front[B, H]) Ready() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		return ErrClosed
	}
	for _, name := range f.namesLocked() {
		if f.jobs[name].clerk.Assignment() == nil {
			return fmt.Errorf("job %q has no assignment yet", name)
		}
	}
	return nil
}

// Close ends all that was opened, and the clerks. No rule fits any more.
func (f *Front[B, H]) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.over {
		f.over = true
		f.table.Store(nil)
		f.dropLocked(f.namesLocked())
		f.metrics.unregister()
	}
	return nil
}
