// Package enforce applies package access to the calls of a process: it reads the identity
// off the connection, refuses what the policy in force does not allow, and leaves a line in
// the log and a count for each refusal.
//
// A nil *Rights allows everything.
package enforce

import (
	"context"
	"crypto/x509"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/access"
	"github.com/slicer-project/slicer/assignment/limiter/fair"
)

// identityHeader carries the identity that a Distributor passes a call on for.
const identityHeader = "slicer-identity"

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
	current atomic.Pointer[inForce]

	mu     sync.Mutex
	logged *fair.Rate
	silent int // refusals without a line since the last one
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
		log: log, logged: fair.NewRate(time.Second/refusalsLogged, refusalsLogged),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slicer_access_refused_total", Help: "Calls and streams that the policy does not allow, by what was asked for: own, watch, read, order, configure, or plane.",
		}, []string{"verb"}),
	}
	s.failed = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "slicer_access_policy_reload_failures_total", Help: "Changes of the policy's file that could not be read, so that the policy in force stayed.",
	})
	s.loaded = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "slicer_access_policy_loaded_timestamp_seconds", Help: "When the policy in force was read, in seconds since 1970; 0 if there is none.",
	})
	s.current.Store(&inForce{cfg.Policy, make(chan struct{})})
	if cfg.Policy != nil {
		s.loaded.SetToCurrentTime()
	}
	if cfg.Registerer != nil {
		for _, c := range []prometheus.Collector{s.refused, s.failed, s.loaded} {
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
}

// PolicyFailed counts a new policy that could not be read, so that the one in force stays.
func (r *Rights) PolicyFailed() { r.failed.Inc() }

// Caller is who a call or stream comes from.
type Caller struct {
	// Identity is that of the peer's certificate, or the one that a peer of the control plane
	// passes the call on for.
	Identity access.Identity
	// Address is the peer's.
	Address string
	// Plane reports whether the peer itself is one of the control plane's.
	Plane bool
	// Carrier reports whether its connections carry the streams of many.
	Carrier bool
	// own reports whether it is this process itself, see Own.
	own bool
}

type ownKey struct{}

// Own is the context of a call that a process makes of one of its own parts, for itself and
// not for a peer: it may read every job. The identity is what the call is passed on for to
// other processes, which go by their policies: that of the process's own certificate.
func Own(ctx context.Context, id access.Identity) context.Context {
	return context.WithValue(ctx, ownKey{}, id)
}

// Caller reads it off a call's context.
func (r *Rights) Caller(ctx context.Context) Caller {
	c := r.Peer(ctx)
	if c.Plane {
		if id, ok := forwarded(ctx); ok {
			c.Identity = id
		}
	}
	return c
}

// Peer is the Caller where no call is passed on: its identity is always that of the peer
// itself.
func (r *Rights) Peer(ctx context.Context) Caller {
	if id, ok := ctx.Value(ownKey{}).(access.Identity); ok {
		return Caller{Identity: id, own: true}
	}
	c := Caller{Identity: PeerIdentity(ctx)}
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		c.Address = p.Addr.String()
	}
	policy, _ := r.Policy()
	c.Plane = r != nil && r.within || policy.Plane(c.Identity)
	c.Carrier = policy.Carrier(c.Identity)
	return c
}

// PeerIdentity is the one in the verified certificate of a call's peer.
func PeerIdentity(ctx context.Context) access.Identity {
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			return access.Of(verified(info))
		}
	}
	return access.Anonymous
}

// verified is the peer's certificate, nil if there is none that was verified.
func verified(info credentials.TLSInfo) *x509.Certificate {
	if len(info.State.VerifiedChains) == 0 || len(info.State.VerifiedChains[0]) == 0 {
		return nil
	}
	return info.State.VerifiedChains[0][0]
}

// forwarded is the identity that the peer says it passes a call on for. One that cannot be
// one is Anonymous.
func forwarded(ctx context.Context) (id access.Identity, ok bool) {
	md, _ := metadata.FromIncomingContext(ctx)
	given := md.Get(identityHeader)
	if len(given) == 0 {
		return "", false
	}
	if id = access.Identity(given[0]); len(given) > 1 || !id.Valid() {
		id = access.Anonymous
	}
	return id, true
}

// Forward is the context for passing a call on in the name of its caller.
func Forward(ctx context.Context, c Caller) context.Context {
	return metadata.AppendToOutgoingContext(ctx, identityHeader, string(c.Identity))
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

// Check returns nil if the caller may do what is asked, and else PERMISSION_DENIED, which
// names identity, verb and job, and no rule. The question's identity is the caller's.
func (r *Rights) Check(c Caller, q access.Question) error {
	rule, ok := r.May(c, q)
	if ok {
		return nil
	}
	r.refuse(c, refusal{q.Verb.String(), rule, q.Job, q.Task, ""})
	return status.Errorf(codes.PermissionDenied, "identity %s may not %s job %s%s", c.Identity, q.Verb, q.Job, asTask(q.Task))
}

func asTask(name string) string {
	if name == "" {
		return ""
	}
	return " as task " + name
}

// CheckPlane returns nil if the caller's peer is one of the control plane's, and else
// PERMISSION_DENIED.
func (r *Rights) CheckPlane(c Caller, method string) error {
	if r == nil || c.Plane {
		return nil
	}
	r.refuse(c, refusal{verb: "plane", rule: "policy plane: no pattern", method: method})
	return status.Errorf(codes.PermissionDenied, "identity %s may not be part of the control plane (%s)", c.Identity, method)
}

// CheckNamed returns nil if the caller has an identity, and else PERMISSION_DENIED: it is
// for what is about no job and for all that the authority knows.
func (r *Rights) CheckNamed(c Caller, method string) error {
	if policy, _ := r.Policy(); policy == nil || c.Identity != access.Anonymous || c.own {
		return nil
	}
	r.refuse(c, refusal{verb: assignment.Read.String(), rule: "anonymous", method: method})
	return status.Errorf(codes.PermissionDenied, "identity %s may not call %s: it takes a certificate", c.Identity, method)
}

// RefuseName returns PERMISSION_DENIED for a peer of the control plane that takes a name
// which is another one's for now.
func (r *Rights) RefuseName(c Caller, method, name string) error {
	r.refuse(c, refusal{verb: "plane", rule: "the name of another identity: " + name, method: method})
	return status.Errorf(codes.PermissionDenied, "identity %s may not be %s (%s): another identity is", c.Identity, name, method)
}

// refusal is what was refused, for the log.
type refusal struct{ verb, rule, job, task, method string }

// refuse counts a refusal and leaves a line, unless there are too many.
func (r *Rights) refuse(c Caller, x refusal) {
	r.refused.WithLabelValues(x.verb).Inc()
	r.mu.Lock()
	left, lineFor := 0, r.logged.Allow(time.Now(), string(c.Identity))
	if lineFor {
		left, r.silent = r.silent, 0
	} else {
		r.silent++
	}
	r.mu.Unlock()
	if lineFor {
		r.log.Warn("refused by the policy", "audit", "refused", "identity", string(c.Identity), "peer", c.Address,
			"verb", x.verb, "job", x.job, "task", x.task, "method", x.method, "rule", x.rule, "unlogged", left)
	}
}
