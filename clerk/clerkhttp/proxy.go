package clerkhttp

import (
	"crypto/tls"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/front"
	"github.com/slicer-project/slicer/loadbalance/policy"
)

// ProxyConfig says what a Proxy sends where.
type ProxyConfig struct {
	Rules Rules
	// Clerk makes the clerk of a job that a rule names, once a job. The proxy closes
	// it when no rule names the job any more.
	Clerk func(job string) (*clerk.Clerk, error)
	// Policy, Patience, ResponseTimeout, Base and TLS are as in Config. Of Base the proxy
	// changes how it compresses, which it does not, and which protocols it speaks.
	Policy          policy.Kind
	Patience        time.Duration
	ResponseTimeout time.Duration
	Base            *http.Transport
	TLS             func() *tls.Config
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
	buffers front.Buffers
	front   *front.Front[*route, *handler]
}

// route is the tasks of a job, spoken to in one way.
type route struct {
	job       string
	clerk     *clerk.Clerk
	transport *Transport
}

// NewProxy validates the config and starts the clerks; it does not wait for their
// assignments. See Ready.
func NewProxy(cfg ProxyConfig) (*Proxy, error) {
	p := &Proxy{cfg: cfg, log: cfg.Logger}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	var err error
	p.front, err = front.New(front.Config[*route, *handler]{
		Rules: cfg.Rules, Clerk: cfg.Clerk, Open: p.newRoute, Close: func(r *route) { _ = r.transport.Close() },
		Handler: p.newHandler, Results: classNames[:], Logger: p.log, Registerer: cfg.Registerer,
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// SetRules puts other rules in force, all at once: requests that are on their way
// stay on it, and limits begin anew. On an error the old rules stay in force.
func (p *Proxy) SetRules(rules Rules) error { return p.front.SetRules(rules) }

// Reload puts in force what read reads, as SetRules does, and counts it in the
// metric of reloads. On an error, be it read's, the old rules stay in force.
func (p *Proxy) Reload(read func() (Rules, error)) error { return p.front.Reload(read) }

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
		Clerk: ck, Policy: p.cfg.Policy, Patience: p.cfg.Patience, ResponseTimeout: p.cfg.ResponseTimeout, Base: base, TLS: p.cfg.TLS, Registerer: p.cfg.Registerer,
	})
	if err != nil {
		return nil, err
	}
	return &route{job: ck.Job(), clerk: ck, transport: t}, nil
}

// Ready says which job has no assignment yet, if any.
func (p *Proxy) Ready() error { return p.front.Ready() }

// Close ends the clerks and closes connections that have no request; those with
// one go on. Requests after it are answered by 404 or 503.
func (p *Proxy) Close() error { return p.front.Close() }
