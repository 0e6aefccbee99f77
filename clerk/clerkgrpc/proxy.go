package clerkgrpc

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/textproto"
	"net/url"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/encoding/gzip" // clients and tasks may compress
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/front"
	"github.com/slicer-project/slicer/loadbalance/overload"
	"github.com/slicer-project/slicer/loadbalance/policy"
)

// What a ProxyConfig may say, and what holds if it does not.
const (
	DefaultMaxMessage   = 4 << 20
	MaxMaxMessage       = 1 << 30
	DefaultPatience     = 10 * time.Second
	MaxPatience         = time.Hour
	maxStreams          = 1000 // RPCs at a time on one connection of a client
	proxyConnectTimeout = 10 * time.Second
)

// ProxyConfig says what a Proxy sends where.
type ProxyConfig struct {
	// Rules are as for a proxy of HTTP, where :authority is the host, the full method, such as
	// /helloworld.Greeter/SayHello, the path, and metadata are headers. Upstream is left out.
	Rules front.Rules
	// Clerk makes the clerk of a job that a rule names, once a job. The proxy closes
	// it when no rule names the job any more.
	Clerk func(job string) (*clerk.Clerk, error)
	// Criticality is that of RPCs whose rule says none; 0 stands for overload.SheddablePlus:
	// the proxy is for batch work.
	Criticality overload.Criticality
	// Patience is how long an RPC waits for its job's first assignment, if its deadline is
	// not before: up to MaxPatience, 0 stands for DefaultPatience. For a connection, and in
	// consistent mode for the owner, it waits until its deadline.
	Patience time.Duration
	// MaxMessage is the most bytes of a message in either direction, not compressed: up to
	// MaxMaxMessage, 0 stands for DefaultMaxMessage. With a larger one an RPC fails with
	// RESOURCE_EXHAUSTED.
	MaxMessage int
	// Policy, IdleClose and Authority are as in Config.
	Policy    policy.Kind
	IdleClose time.Duration
	Authority func(assignment.Task) string
	// DialOptions are for the connections to tasks: credentials at least.
	DialOptions []grpc.DialOption
	// Logger may be nil, which is silent.
	Logger *slog.Logger
	// Registerer takes the metrics; nil is none.
	Registerer prometheus.Registerer
}

func (c ProxyConfig) config(ck *clerk.Clerk) Config {
	return Config{
		Shared: ck, Clerk: clerk.Config{Registerer: c.Registerer}, Keyless: AnyTask,
		Policy: c.Policy, IdleClose: c.IdleClose, Authority: c.Authority,
	}
}

func (c *ProxyConfig) validate() error {
	bad := func(field string, value any, allowed string) error {
		return &assignment.FieldError{Field: field, Value: value, Allowed: allowed}
	}
	switch {
	case c.Criticality != 0 && !c.Criticality.Valid():
		return bad("criticality", uint8(c.Criticality), "0, or one of package overload")
	case c.Patience < 0 || c.Patience > MaxPatience:
		return bad("patience", c.Patience, "0 to "+MaxPatience.String())
	case c.MaxMessage < 0 || c.MaxMessage > MaxMaxMessage:
		return bad("max_message", c.MaxMessage, fmt.Sprintf("0 to %d bytes", MaxMaxMessage))
	}
	if c.Criticality == 0 {
		c.Criticality = overload.SheddablePlus
	}
	if c.Patience == 0 {
		c.Patience = DefaultPatience
	}
	if c.MaxMessage == 0 {
		c.MaxMessage = DefaultMaxMessage
	}
	return c.config(new(clerk.Clerk)).Validate()
}

// CheckRule returns a *assignment.FieldError for what a rule may not say in a Proxy.
func CheckRule(r front.Rule) error {
	if r.Upstream != 0 {
		return &assignment.FieldError{Field: "upstream", Value: r.Upstream.String(), Allowed: "none: tasks speak gRPC"}
	}
	return nil
}

// Proxy is a reverse proxy that knows no service: it passes on whatever RPC its rules fit,
// unary or streaming, to a task that owns its key, as bytes. Messages, metadata, trailers,
// errors with their details, deadlines and cancellations pass through. Three kinds of metadata do
// not, in either direction: what begins with slicer-, which nothing from outside may say; reports
// of tasks' load (ORCA); and slice-key, by which stock clients name the slice. Messages are
// decompressed, and compressed anew for clients that compress. :authority and user-agent are
// the proxy's own; x-forwarded-host has the client's :authority.
//
// RPCs go by clerkgrpc as those of streams: one that a task refuses for want of room or
// ownership is sent again as long as no answer has come, and of up to eight messages of 256 KiB,
// or one of any size.
//
// All methods are safe for concurrent use.
type Proxy struct {
	cfg   ProxyConfig
	front *front.Front[*upstream, *proxied]

	rpcs sync.WaitGroup // and their goroutines
	mu   sync.Mutex
	open map[*upstream]struct{}
}

// upstream is the connection to a job.
type upstream struct {
	clerk *clerk.Clerk
	conn  *grpc.ClientConn

	mu   sync.Mutex
	rpcs int
	over bool // to be closed with the last RPC
}

// proxied is what the RPCs of a rule go by.
type proxied struct {
	*upstream
	rule    *front.Matcher
	counts  *front.Counts
	trusted bool // what proxies before this one say
}

// NewProxy validates the config and starts the clerks; it does not wait for their
// assignments. See Ready.
func NewProxy(cfg ProxyConfig) (*Proxy, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	p := &Proxy{cfg: cfg, open: make(map[*upstream]struct{})}
	results := make([]string, numCodes)
	for c := range results {
		results[c] = codes.Code(c).String()
	}
	var err error
	p.front, err = front.New(front.Config[*upstream, *proxied]{
		Rules: cfg.Rules, Clerk: cfg.Clerk, Check: CheckRule, Results: results, Logger: cfg.Logger, Registerer: cfg.Registerer,
		Open:  func(ck *clerk.Clerk, _ front.Upstream) (*upstream, error) { return p.dial(ck) },
		Close: p.shut,
		Handler: func(rules *front.Rules, m *front.Matcher, u *upstream, counts *front.Counts) *proxied {
			return &proxied{upstream: u, rule: m, counts: counts, trusted: rules.TrustedProxies > 0}
		},
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// numCodes is how many gRPC has.
const numCodes = codes.Unauthenticated + 1

// ServerOptions are for the gRPC server that serves the proxy: it needs no service
// registered, and one that is takes its RPCs away from the proxy but finds messages to be
// bytes. Stop waits until RPCs have ended.
func (p *Proxy) ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.UnknownServiceHandler(p.serve),
		grpc.ForceServerCodecV2(rawCodec{}),
		grpc.MaxRecvMsgSize(p.cfg.MaxMessage),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.ConnectionTimeout(proxyConnectTimeout),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.WaitForHandlers(true),
	}
}

// SetRules puts other rules in force, all at once: RPCs that are on their way
// stay on it, and limits begin anew. On an error the old rules stay in force.
func (p *Proxy) SetRules(rules front.Rules) error { return p.front.SetRules(rules) }

// Reload puts in force what read reads, as SetRules does, and counts it in the
// metric of reloads. On an error, be it read's, the old rules stay in force.
func (p *Proxy) Reload(read func() (front.Rules, error)) error { return p.front.Reload(read) }

// Ready says which job has no assignment yet, if any.
func (p *Proxy) Ready() error { return p.front.Ready() }

// Close ends the clerks and the connections to tasks, and returns when the RPCs under way have
// ended: stop the server first.
func (p *Proxy) Close() error {
	err := p.front.Close()
	p.mu.Lock()
	for u := range p.open {
		_ = u.conn.Close() // it fails if it is closed already
	}
	p.mu.Unlock()
	p.rpcs.Wait()
	return err
}

func (p *Proxy) dial(ck *clerk.Clerk) (*upstream, error) {
	opts := append(DialOptions(p.cfg.config(ck)), grpc.WithDefaultCallOptions(
		grpc.ForceCodecV2(rawCodec{}), grpc.MaxCallRecvMsgSize(p.cfg.MaxMessage), grpc.MaxCallSendMsgSize(p.cfg.MaxMessage)))
	conn, err := grpc.NewClient(Scheme+":///"+ck.Job(), append(opts, p.cfg.DialOptions...)...)
	if err != nil {
		return nil, err
	}
	conn.Connect()
	u := &upstream{clerk: ck, conn: conn}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open[u] = struct{}{}
	return u, nil
}

// shut closes a connection when its last RPC has ended.
func (p *Proxy) shut(u *upstream) {
	u.mu.Lock()
	u.over = true
	last := u.rpcs == 0
	u.mu.Unlock()
	if last {
		p.forget(u)
	}
}

func (p *Proxy) forget(u *upstream) {
	p.mu.Lock()
	delete(p.open, u)
	p.mu.Unlock()
	_ = u.conn.Close()
}

// enter counts an RPC. It reports false if the connection is closed, or will be.
func (u *upstream) enter() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.over {
		return false
	}
	u.rpcs++
	return true
}

func (p *Proxy) leave(u *upstream) {
	u.mu.Lock()
	u.rpcs--
	last := u.over && u.rpcs == 0
	u.mu.Unlock()
	if last {
		p.forget(u)
	}
}

// find returns what the first rule that fits leads to, entered.
func (p *Proxy) find(req *http.Request) (*proxied, bool) {
	for {
		l, ok := p.front.Find(req)
		if !ok || l.enter() {
			return l, ok
		}
		// Other rules have come in between.
	}
}

// serve is the handler of all RPCs.
func (p *Proxy) serve(_ any, in grpc.ServerStream) error {
	p.rpcs.Add(1)
	defer p.rpcs.Done()
	ctx := in.Context()
	method, _ := grpc.MethodFromServerStream(in)
	md, _ := metadata.FromIncomingContext(ctx)
	req := requestOf(ctx, method, md)
	l, ok := p.find(req)
	if !ok {
		return status.Errorf(codes.Unimplemented, "slicer: no rule fits authority %q and method %q", assignment.Clip(req.Host, 100), assignment.Clip(method, 100))
	}
	defer p.leave(l.upstream)
	if err := l.rule.Enter(req, p.cfg.Criticality); err != nil {
		l.counts.Limited.Inc()
		return status.Error(codes.ResourceExhausted, "slicer: "+err.Error())
	}
	defer l.rule.Leave()
	begun := time.Now()
	key, keyed, err := l.rule.Key(req)
	if err != nil {
		l.counts.NoKey.Inc()
		return status.Error(codes.InvalidArgument, "slicer: "+err.Error())
	}
	if d := l.rule.Timeout; d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d)
		defer cancel()
	}
	if keyed {
		ctx = clerk.WithKey(ctx, key)
	}
	ctx = overload.WithLabels(ctx, l.rule.Labels(req).Or(overload.Labels{Criticality: p.cfg.Criticality}))
	if err = p.await(ctx, l.clerk); err == nil {
		ctx = metadata.NewOutgoingContext(ctx, outgoing(md, req, l.trusted))
		err = p.relay(ctx, in, l.conn, method, subtype(req.Header))
	}
	l.counts.Seconds.Observe(time.Since(begun).Seconds())
	if in.Context().Err() == context.Canceled {
		l.counts.Gone.Inc()
	} else {
		l.counts.Results[min(status.Code(err), numCodes-1)].Inc()
	}
	return err
}

// await waits for a job's first assignment.
func (p *Proxy) await(ctx context.Context, ck *clerk.Clerk) error {
	if ck.Assignment() != nil {
		return nil
	}
	wait, cancel := context.WithTimeout(ctx, p.cfg.Patience)
	defer cancel()
	err := ck.Ready(wait)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return status.Error(status.FromContextError(ctx.Err()).Code(), "slicer: no assignment: "+err.Error())
	}
	return status.Errorf(codes.Unavailable, "slicer: job %q has no task to send the RPC to: %v", ck.Job(), err)
}

// requestOf is an RPC as rules look at it.
func requestOf(ctx context.Context, method string, md metadata.MD) *http.Request {
	req := &http.Request{Method: http.MethodPost, URL: &url.URL{Path: method}, Header: make(http.Header, len(md))}
	for name, values := range md {
		req.Header[textproto.CanonicalMIMEHeaderKey(name)] = values
	}
	if v := md[":authority"]; len(v) > 0 {
		req.Host = v[0]
	}
	if from, ok := peer.FromContext(ctx); ok {
		req.RemoteAddr = from.Addr.String()
		if from.AuthInfo != nil && from.AuthInfo.AuthType() == "tls" {
			req.URL.Scheme = "https"
		}
	}
	return req
}
