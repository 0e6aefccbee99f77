// Package enforce applies package access to the calls of a process: it reads the identity
// off the connection, refuses what the policy in force does not allow, and leaves a line in
// the log and a count for each refusal.
//
// A nil *Rights allows everything.
package enforce

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/access"
	"github.com/slicer-project/slicer/assignment/limiter/fair"
)

// refusalsLogged of one identity a second leave a line, so that none hides what others try;
// all of them are counted.
const refusalsLogged = 10

// Config says what Rights are made of.
type Config struct {
	// Policy is the first one in force; nil allows everything.
	Policy *access.Policy
	// Logger gets a line for each refusal, with the key audit. Nil is silent.
	Logger *slog.Logger
	// Registerer gets the metrics, if it is not nil.
	Registerer prometheus.Registerer
}

// Rights decide for the calls of a process by the newest policy. All methods are safe for
// concurrent use.
type Rights struct {
	*shared
	within bool
}

type shared struct {
	log     *slog.Logger
	refused *prometheus.CounterVec
	failed  prometheus.Counter
	loaded  prometheus.Gauge
	stale   prometheus.Gauge
	current atomic.Pointer[inForce]

	mu     sync.Mutex
	logged *fair.Lines // by identity
}

// inForce is a policy and what is closed when another one takes its place.
type inForce struct {
	policy  *access.Policy
	changed chan struct{}
}

// New makes Rights.
func New(cfg Config) (*Rights, error) {
	log := cfg.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &shared{
		log: log, logged: fair.NewLines(time.Second/refusalsLogged, refusalsLogged),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slicer_access_refused_total", Help: "Calls and streams that the policy does not allow, by what was asked for: own, watch, read, order, configure, plane, or admin.",
		}, []string{"verb"}),
	}
	s.failed = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "slicer_access_policy_reload_failures_total", Help: "Changes of the policy's file that could not be read, so that the policy in force stayed.",
	})
	s.loaded = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "slicer_access_policy_loaded_timestamp_seconds", Help: "When the policy in force was read, in seconds since 1970; 0 if there is none.",
	})
	s.stale = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "slicer_access_policy_stale", Help: "1 while the policy's file holds something that is no good, or is gone, so that what was read before is in force.",
	})
	s.current.Store(&inForce{cfg.Policy, make(chan struct{})})
	if cfg.Policy != nil {
		s.loaded.SetToCurrentTime()
	}
	if cfg.Registerer != nil {
		for _, c := range []prometheus.Collector{s.refused, s.failed, s.loaded, s.stale} {
			if err := cfg.Registerer.Register(c); err != nil {
				return nil, err
			}
		}
	}
	return &Rights{shared: s}, nil
}

// Within are the same rights for a server that only this process can reach: its peers
// are the control plane's own.
func (r *Rights) Within() *Rights {
	if r == nil {
		return nil
	}
	return &Rights{r.shared, true}
}

// Policy is the one in force, and changed is closed when another one is: then what was
// allowed to streams has to be asked anew.
func (r *Rights) Policy() (p *access.Policy, changed <-chan struct{}) {
	if r == nil {
		return nil, nil
	}
	c := r.current.Load()
	return c.policy, c.changed
}

// SetPolicy puts another policy in force, for all that share these rights.
func (r *Rights) SetPolicy(p *access.Policy) {
	close(r.current.Swap(&inForce{p, make(chan struct{})}).changed)
	r.loaded.SetToCurrentTime()
	r.stale.Set(0)
}

// PolicyFailed counts a new policy that could not be read, so that the one in force stays
// until SetPolicy is called.
func (r *Rights) PolicyFailed() {
	r.failed.Inc()
	r.stale.Set(1)
}

// May reports whether the caller may do what is asked, and by which rule. It leaves nothing
// in the log: it is for what is left out of an answer, where Check is for what is refused.
// The question's identity is the caller's.
func (r *Rights) May(c Caller, q access.Question) (rule string, ok bool) {
	q.Identity = c.Identity
	if c.own && q.Verb == assignment.Read {
		return "this process", true
	}
	policy, _ := r.Policy()
	return policy.May(q)
}

// refusal is what was refused, for the log.
type refusal struct{ verb, rule, job, task, method string }

// refuse counts a refusal and leaves a line, unless there are too many.
func (r *Rights) refuse(c Caller, x refusal) {
	r.refused.WithLabelValues(x.verb).Inc()
	r.mu.Lock()
	left, ok := r.logged.Allow(time.Now(), string(c.Identity))
	r.mu.Unlock()
	if ok {
		r.log.Warn("refused by the policy", "audit", "refused", "identity", string(c.Identity), "peer", c.From(),
			"verb", x.verb, "job", x.job, "task", x.task, "method", x.method, "rule", x.rule, "unlogged", left)
	}
}
