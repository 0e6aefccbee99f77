package sidecar

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/httpkey"
	"github.com/slicer-project/slicer/clerk/clerkgrpc"
	"github.com/slicer-project/slicer/clerk/clerkhttp"
	"github.com/slicer-project/slicer/clerk/front"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/slicelet/slicelethttp"
)

const (
	// idleUpstream is how long a connection to the server is kept without a request: less than
	// servers keep theirs, such as gunicorn for 2 s and Node for 5 s, so that none is closed while
	// a request is on its way.
	idleUpstream = time.Second
	// maxIdleUpstream bounds them.
	maxIdleUpstream = 1024
)

// paths lead to the server, and to other sidecars.
type paths struct {
	http1, http2 *http.Transport
	others       *http.Transport  // nil unless requests are forwarded
	relay        *clerkgrpc.Relay // of gRPC
	buffers      front.Buffers
	server       httputil.ReverseProxy
	forward      httputil.ReverseProxy
}

func (p *paths) open(s *Sidecar) {
	cfg := &s.cfg
	base := func(idle time.Duration) *http.Transport {
		t := clerkhttp.DefaultBase()
		t.DisableCompression = true
		t.MaxIdleConnsPerHost, t.IdleConnTimeout = maxIdleUpstream, idle
		t.Protocols = new(http.Protocols)
		return t
	}
	p.http1, p.http2 = base(idleUpstream), base(idleUpstream)
	p.http1.Protocols.SetHTTP1(true)
	p.http2.Protocols.SetUnencryptedHTTP2(true)
	log := slog.NewLogLogger(s.log.Handler(), slog.LevelDebug)
	p.server = httputil.ReverseProxy{
		Rewrite: s.rewrite, Transport: p, BufferPool: &p.buffers, ModifyResponse: answer, ErrorHandler: s.failed, ErrorLog: log,
	}
	if cfg.H2C {
		p.server.Transport = p.http2
	}
	if cfg.Misrouted != Forward {
		return
	}
	p.others = base(time.Minute)
	p.others.Protocols.SetHTTP1(true)
	scheme := "http"
	if cfg.TLS != nil {
		scheme = "https"
		p.others.TLSClientConfig = cfg.TLS()
		p.others.Protocols.SetHTTP2(true)
	}
	p.forward = httputil.ReverseProxy{
		Rewrite: func(pr *httputil.ProxyRequest) {
			owner, _ := pr.In.Context().Value(ownerOfContext{}).(string)
			pr.Out.URL.Scheme, pr.Out.URL.Host = scheme, owner
			pr.Out.Header[httpkey.HeaderForwarded] = []string{"1"}
			forwarded(pr)
		},
		Transport: p.others, BufferPool: &p.buffers, ErrorHandler: s.notForwarded, ErrorLog: log,
	}
}

func (p *paths) close() error {
	for _, t := range []*http.Transport{p.http1, p.http2, p.others} {
		if t != nil {
			t.CloseIdleConnections()
		}
	}
	if p.relay != nil {
		return p.relay.Close()
	}
	return nil
}

// RoundTrip is http.RoundTripper's: to the server, gRPC by HTTP/2, all else by HTTP/1.1.
func (p *paths) RoundTrip(r *http.Request) (*http.Response, error) {
	if isGRPC(r.Header) {
		return p.http2.RoundTrip(r)
	}
	return p.http1.RoundTrip(r)
}

func isGRPC(h http.Header) bool {
	v := h["Content-Type"]
	return len(v) == 1 && strings.HasPrefix(v[0], "application/grpc")
}

// ServeHTTP is http.Handler's: what stands before the slicelet's handler.
func (s *Sidecar) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l := s.life.Load()
	key, keyed := "", false
	if v := r.Header[httpkey.HeaderKey]; len(v) > 0 {
		if s.cfg.Misrouted == Forward {
			key, keyed = httpkey.DecodeKey(v[0])
		}
	} else if keys := s.keys.Load(); keys != nil {
		var err error
		if key, keyed, err = keys.Find(r); err != nil {
			http.Error(w, "slicer: "+err.Error(), http.StatusBadRequest)
			return
		}
		if keyed {
			r.Header[httpkey.HeaderKey] = []string{httpkey.EncodeKey(key)}
		}
	}
	if s.cfg.Misrouted == Forward && keyed && len(r.Header[httpkey.HeaderForwarded]) == 0 {
		if owner := l.ownerElsewhere(key); owner != "" {
			s.metrics.forwarded.Inc()
			s.paths.forward.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), ownerOfContext{}, owner)))
			return
		}
	}
	l.handler.ServeHTTP(w, r)
}

type ownerOfContext struct{}

// ownerElsewhere is the address of another task that owns the key, empty if this one does.
func (l *life) ownerElsewhere(key string) string {
	if l.slicelet.IsAffinitized(key) {
		return ""
	}
	a := l.slicelet.Assignment()
	if a == nil {
		return ""
	}
	for t := range a.Lookup(assignment.KeyOf(key)).All() {
		if t.Name != l.slicelet.Task() && t.State != assignment.TaskDead {
			return t.Address
		}
	}
	return ""
}

// inner is what stands behind the slicelet's handler.
func (s *Sidecar) inner(l *life) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.turnedAway(w, r, l) {
			return
		}
		ok, waited := s.slots.take(r.Context())
		switch {
		case ok:
			defer s.slots.release()
			if !waited || !s.turnedAway(w, r, l) {
				s.paths.server.ServeHTTP(w, r)
			}
		case r.Context().Err() != nil:
			w.WriteHeader(http.StatusGatewayTimeout)
		default:
			slicelethttp.Overloaded(w, r)
		}
	})
}

// turnedAway answers a request that is not for the server, and reports whether it is one.
func (s *Sidecar) turnedAway(w http.ResponseWriter, r *http.Request, l *life) bool {
	h, keyed := slicelethttp.HandleFrom(r.Context())
	dead, lost := s.fit(l, h, keyed)
	switch {
	case dead:
		s.nowhere(w, r, l)
	case lost:
		refuse(w, l, "does not own the key")
	}
	return dead || lost
}

// nowhere answers a request that has not gone to the server, which is dead: another task is to get
// it.
func (s *Sidecar) nowhere(w http.ResponseWriter, r *http.Request, l *life) {
	if _, keyed := slicelethttp.HandleFrom(r.Context()); !keyed {
		slicelethttp.Overloaded(w, r)
		return
	}
	refuse(w, l, "has no server that answers")
}

// refuse answers as slicelethttp does in consistent mode.
func refuse(w http.ResponseWriter, l *life, why string) {
	generation := assignment.Generation(0)
	if a := l.slicelet.Assignment(); a != nil {
		generation = a.Generation()
	}
	w.Header().Set(httpkey.HeaderRefused, l.slicelet.Task())
	w.Header().Set(httpkey.HeaderGeneration, strconv.FormatInt(int64(generation), 10))
	http.Error(w, fmt.Sprintf("slicer: task %q %s", l.slicelet.Task(), why), http.StatusMisdirectedRequest)
}

// ends says which requests end when their key has moved: those that last, if that is asked for, and
// in consistent mode upgraded connections, whose answers are not held back.
func (s *Sidecar) ends(l *life) func(*http.Request) bool {
	return func(r *http.Request) bool {
		return s.cfg.EndMoved && slicelethttp.LongLived(r) || r.Header.Get("Upgrade") != "" && l.slicelet.Mode() == assignment.Consistent
	}
}

// between are the headers between Slicer's programs that the server does not get as they came. It
// does get the generation by which a clerk has sent the request here, where it does not get the
// task's own.
var between = []string{httpkey.HeaderToken, httpkey.HeaderAttempt, httpkey.HeaderStandsFor, httpkey.HeaderForwarded}

// rewrite makes the request that goes to the server.
func (s *Sidecar) rewrite(pr *httputil.ProxyRequest) {
	out := pr.Out.Header
	for _, name := range between {
		delete(out, name)
	}
	pr.Out.URL.Scheme, pr.Out.URL.Host = "http", s.cfg.Upstream
	if h, ok := slicelethttp.HandleFrom(pr.In.Context()); ok {
		l := s.life.Load()
		if a := l.slicelet.Assignment(); a != nil && l.slicelet.Mode() == assignment.Consistent {
			out[httpkey.HeaderGeneration] = []string{strconv.FormatInt(int64(a.Generation()), 10)}
			out[httpkey.HeaderToken] = []string{strconv.FormatInt(int64(h.FencingToken()), 10)}
		}
	}
	forwarded(pr)
}

// forwarded says where a request comes from, after what the proxies before have said.
func forwarded(pr *httputil.ProxyRequest) {
	in, out := pr.In.Header, pr.Out.Header
	for _, name := range [...]string{"Forwarded", "X-Forwarded-For"} {
		if v, ok := in[name]; ok {
			out[name] = v
		}
	}
	pr.SetXForwarded()
	for _, name := range [...]string{"X-Forwarded-Host", "X-Forwarded-Proto"} {
		if v, ok := in[name]; ok {
			out[name] = v
		}
	}
}

var errOverloaded = errors.New("the server has no room for the request")

// answer looks at the server's answer before it goes to the client.
func answer(resp *http.Response) error {
	if resp.StatusCode == http.StatusServiceUnavailable && len(resp.Header[httpkey.HeaderOverloaded]) > 0 {
		return errOverloaded
	}
	if v := resp.Header[httpkey.HeaderLoad]; len(v) > 0 {
		if h, ok := slicelethttp.HandleFrom(resp.Request.Context()); ok {
			if load, err := strconv.ParseFloat(v[0], 64); err == nil {
				h.ReportLoad(load)
			}
		}
	}
	httpkey.Strip(resp.Header)
	return nil
}

// refuses reports whether an error says that nothing listens at an address, so that nothing was
// sent.
func refuses(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

// unsent reports whether the error is that of connecting.
func unsent(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return refuses(err) || ok && op.Op == "dial"
}

// failed answers a request that the server has not answered. The request is the one that was sent
// there.
func (s *Sidecar) failed(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, errOverloaded):
		slicelethttp.Overloaded(w, r)
		return
	case r.Context().Err() != nil:
		w.WriteHeader(http.StatusGatewayTimeout) // the client has gone, or does not wait any longer
		return
	}
	s.log.Debug("request failed", "upstream", s.cfg.Upstream, "error", err)
	s.suspect()
	if unsent(err) {
		s.nowhere(w, r, s.life.Load())
		return
	}
	if len(r.Header[httpkey.HeaderGeneration]) > 0 {
		// What has sent it here by an assignment, a clerk, knows best what may be sent again, and takes
		// this for what it is.
		panic(http.ErrAbortHandler)
	}
	http.Error(w, "slicer: the server broke the connection off", http.StatusBadGateway)
}

// notForwarded answers a request that the owner's sidecar has not answered.
func (s *Sidecar) notForwarded(w http.ResponseWriter, r *http.Request, err error) {
	s.log.Debug("request not forwarded", "error", err)
	if unsent(err) {
		refuse(w, s.life.Load(), "does not own the key, and does not reach the owner")
		return
	}
	http.Error(w, "slicer: the owner broke the connection off", http.StatusBadGateway)
}

// probe finds out whether the server is alive.
type probe struct {
	cfg    *Config
	client http.Client
	dialer net.Dialer
}

func (p *probe) init(cfg *Config) {
	p.cfg = cfg
	t := &http.Transport{DisableKeepAlives: true, Protocols: new(http.Protocols)}
	t.Protocols.SetHTTP1(!cfg.H2C)
	t.Protocols.SetUnencryptedHTTP2(cfg.H2C)
	p.client = http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// ask waits for two intervals at most.
func (p *probe) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*p.cfg.HealthEvery)
	defer cancel()
	if p.cfg.Health == "" {
		c, err := p.dialer.DialContext(ctx, "tcp", p.cfg.Upstream)
		if err == nil {
			_ = c.Close()
		}
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.cfg.Upstream+p.cfg.Health, nil)
	if err != nil {
		return err
	}
	resp, err := p.client.Do(r)
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	if resp.StatusCode >= 400 {
		return fmt.Errorf("%s answers %s", p.cfg.Health, resp.Status)
	}
	return nil
}

var _ slicelet.Listener = (*listener)(nil)
