package clerkhttp

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/loadbalance/policy"
)

// ProxyConfig says what a Proxy sends where.
type ProxyConfig struct {
	Rules Rules
	// Clerk makes the clerk of a job that a rule names, once a job. The proxy closes
	// it when no rule names the job any more.
	Clerk func(job string) (*clerk.Clerk, error)
	// Policy, Patience, ResponseTimeout and Base are as in Config. Of Base the proxy
	// changes how it compresses, which it does not, and which protocols it speaks.
	Policy          policy.Kind
	Patience        time.Duration
	ResponseTimeout time.Duration
	Base            *http.Transport
	// Logger may be nil, which is silent.
	Logger *slog.Logger
	// Registerer takes the metrics, those of the transports too; nil is none.
	Registerer prometheus.Registerer
}

// Proxy is a reverse proxy: a http.Handler that sends each request to a task that
// owns its key. It is net/http/httputil's ReverseProxy with another transport, so
// bodies stream, upgraded connections such as WebSockets pass, trailers too, and
// hop-by-hop headers end here. Headers that begin with Slicer- are taken out of
// requests and of answers. All methods are safe for concurrent use.
type Proxy struct {
	cfg     ProxyConfig
	log     *slog.Logger
	buffers buffers
	metrics *proxyMetrics

	table atomic.Pointer[table]
	mu    sync.Mutex // of changes to what follows
	jobs  map[string]*job
	over  bool
}

// table is the rules in force. It is never changed.
type table struct {
	rules    []*compiled
	handlers []*handler // by rule
}

// job is one that the rules name.
type job struct {
	clerk  *clerk.Clerk
	routes map[Upstream]*route
}

// route is the tasks of a job, spoken to in one way.
type route struct {
	job       string
	clerk     *clerk.Clerk
	transport *Transport
	counts    *routeCounts
}

// NewProxy validates the config and starts the clerks; it does not wait for their
// assignments. See Ready.
func NewProxy(cfg ProxyConfig) (*Proxy, error) {
	if cfg.Clerk == nil {
		return nil, &assignment.FieldError{Field: "clerk", Value: "none", Allowed: "a function that makes the clerk of a job"}
	}
	p := &Proxy{cfg: cfg, log: cfg.Logger, jobs: map[string]*job{}}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	var err error
	if p.metrics, err = newProxyMetrics(cfg.Registerer); err != nil {
		return nil, err
	}
	if err := p.SetRules(cfg.Rules); err != nil {
		p.metrics.close()
		return nil, err
	}
	return p, nil
}

// SetRules puts other rules in force, all at once: requests that are on their way
// stay on it. On an error the old rules stay in force.
func (p *Proxy) SetRules(rules Rules) error {
	list, err := rules.compile()
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return ErrClosed
	}
	next := &table{rules: list}
	named, used := map[string]bool{}, map[*route]bool{}
	var fresh []string
	for _, c := range list {
		j := p.jobs[c.Job]
		if j == nil {
			ck, err := p.cfg.Clerk(c.Job)
			if err != nil {
				p.dropLocked(fresh)
				return err
			}
			j = &job{clerk: ck, routes: map[Upstream]*route{}}
			p.jobs[c.Job] = j
			fresh = append(fresh, c.Job)
		}
		r := j.routes[c.Upstream]
		if r == nil {
			if r, err = p.newRoute(j.clerk, c.Upstream); err != nil {
				p.dropLocked(fresh)
				return err
			}
			j.routes[c.Upstream] = r
		}
		named[c.Job] = true
		used[r] = true
		next.handlers = append(next.handlers, p.newHandler(c, r, rules.TrustedProxies > 0))
	}
	p.table.Store(next)
	p.metrics.since.SetToCurrentTime()
	p.dropLocked(slices.DeleteFunc(p.namesLocked(), func(name string) bool { return named[name] }))
	for _, j := range p.jobs {
		for u, r := range j.routes {
			if !used[r] {
				delete(j.routes, u)
				r.close(p)
			}
		}
	}
	return nil
}

// Reload puts in force what read reads, as SetRules does, and counts it in the
// metric of reloads. On an error, be it read's, the old rules stay in force.
func (p *Proxy) Reload(read func() (Rules, error)) error {
	rules, err := read()
	if err == nil {
		err = p.SetRules(rules)
	}
	if err != nil {
		p.metrics.reloads.WithLabelValues("refused").Inc()
		return err
	}
	p.metrics.reloads.WithLabelValues("loaded").Inc()
	return nil
}

func (p *Proxy) namesLocked() (names []string) {
	for name := range p.jobs {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// dropLocked ends jobs. Requests on their way go on.
func (p *Proxy) dropLocked(names []string) {
	for _, name := range names {
		j := p.jobs[name]
		delete(p.jobs, name)
		for _, r := range j.routes {
			r.close(p)
		}
		if err := j.clerk.Close(); err != nil {
			p.log.Warn("closing a clerk", "job", name, "error", err)
		}
	}
}

func (p *Proxy) newRoute(ck *clerk.Clerk, u Upstream) (*route, error) {
	base := p.cfg.Base
	if base == nil {
		base = DefaultBase()
	}
	base = base.Clone()
	// What a client and a task agree on about compression is not the proxy's.
	base.DisableCompression = true
	base.Protocols = new(http.Protocols)
	switch u {
	case HTTP:
		base.Protocols.SetHTTP1(true)
	case HTTPS:
		base.Protocols.SetHTTP1(true)
		base.Protocols.SetHTTP2(true)
	case H2C:
		base.Protocols.SetUnencryptedHTTP2(true)
	}
	t, err := NewTransport(Config{
		Clerk: ck, Policy: p.cfg.Policy, Patience: p.cfg.Patience, ResponseTimeout: p.cfg.ResponseTimeout, Base: base, Registerer: p.cfg.Registerer,
	})
	if err != nil {
		return nil, err
	}
	return &route{job: ck.Job(), clerk: ck, transport: t, counts: p.metrics.of(ck.Job())}, nil
}

func (r *route) close(p *Proxy) {
	_ = r.transport.Close()
	p.metrics.drop(r.job)
}

// Ready says which job has no assignment yet, if any.
func (p *Proxy) Ready() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return ErrClosed
	}
	for _, name := range p.namesLocked() {
		if p.jobs[name].clerk.Assignment() == nil {
			return fmt.Errorf("job %q has no assignment yet", name)
		}
	}
	return nil
}

// Close ends the clerks and closes connections that have no request; those with
// one go on. Requests after it are answered by 404 or 503.
func (p *Proxy) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.over {
		p.over = true
		p.table.Store(nil)
		p.dropLocked(p.namesLocked())
		p.metrics.close()
	}
	return nil
}
