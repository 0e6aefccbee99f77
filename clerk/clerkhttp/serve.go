package clerkhttp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/httpkey"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/front"
	"github.com/slicer-project/slicer/loadbalance/overload"
)

// handler brings the requests of one rule to the tasks of its route.
type handler struct {
	*route
	rule    *front.Matcher
	counts  *front.Counts
	trusted bool // what proxies before this one say
	reverse httputil.ReverseProxy
}

func (p *Proxy) newHandler(rules *Rules, m *front.Matcher, r *route, counts *front.Counts) *handler {
	l := &handler{route: r, rule: m, counts: counts, trusted: rules.TrustedProxies > 0}
	l.reverse = httputil.ReverseProxy{
		Rewrite:        l.rewrite,
		Transport:      byHeader{r.transport, m.Missing == Refuse},
		BufferPool:     &p.buffers,
		ModifyResponse: l.answer,
		ErrorHandler:   func(w http.ResponseWriter, req *http.Request, err error) { l.fail(p, w, req, err) },
		ErrorLog:       slog.NewLogLogger(p.log.Handler(), slog.LevelDebug),
	}
	return l
}

// ServeHTTP is http.Handler's.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	l, ok := p.front.Find(req)
	if !ok {
		http.Error(w, fmt.Sprintf("slicer: no rule fits host %q and path %q", assignment.Clip(req.Host, 100), assignment.Clip(req.URL.Path, 100)), http.StatusNotFound)
		return
	}
	if err := l.rule.Enter(req, overload.Critical); err != nil {
		l.counts.Limited.Inc()
		reply(w, req, "slicer: "+err.Error(), http.StatusTooManyRequests)
		return
	}
	defer l.rule.Leave()
	begun := time.Now()
	if d := l.rule.TimeoutOf(req); d > 0 {
		ctx, cancel := context.WithTimeout(req.Context(), d)
		defer cancel()
		req = req.WithContext(ctx)
	}
	l.reverse.ServeHTTP(w, req)
	l.counts.Seconds.Observe(time.Since(begun).Seconds())
}

var classNames = [5]string{"1xx", "2xx", "3xx", "4xx", "5xx"}

// count counts an answer.
func (l *handler) count(code int) {
	if code < 100 || code > 599 {
		code = http.StatusInternalServerError
	}
	l.counts.Results[code/100-1].Inc()
}

// rewrite makes the request that goes to a task. Which one, the transport says, by
// the key that it finds in the header: to put it into the context would cost
// another copy of the request.
func (l *handler) rewrite(pr *httputil.ProxyRequest) {
	out := pr.Out.Header
	httpkey.Strip(out)
	pr.Out.URL.Scheme = l.rule.Upstream.Scheme()
	key, ok, err := l.rule.Key(pr.In)
	if err != nil {
		pr.Out = pr.Out.WithContext(context.WithValue(pr.Out.Context(), refusedOfContext{}, err))
		return
	}
	if ok {
		out[httpkey.HeaderKey] = []string{httpkey.EncodeKey(key)}
	}
	setLabels(out, l.rule.Labels(pr.In).Or(l.clerk.Labels(pr.In.Context())))
	if l.trusted {
		for _, name := range [...]string{"X-Forwarded-For", "Forwarded"} {
			if v, ok := pr.In.Header[name]; ok {
				out[name] = v
			}
		}
	}
	pr.SetXForwarded()
	if l.trusted {
		for _, name := range [...]string{"X-Forwarded-Host", "X-Forwarded-Proto"} {
			if v, ok := pr.In.Header[name]; ok {
				out[name] = v
			}
		}
	}
}

// refusedOfContext is where rewrite leaves why a request goes nowhere.
type refusedOfContext struct{}

// byHeader is a Transport for requests that it may change, and whose key, if they
// have one, is in httpkey.HeaderKey.
type byHeader struct {
	t      *Transport
	refuse bool // requests without one, for the reason in their context
}

func (h byHeader) RoundTrip(req *http.Request) (*http.Response, error) {
	v := req.Header[httpkey.HeaderKey]
	if len(v) == 0 && h.refuse {
		if err, ok := req.Context().Value(refusedOfContext{}).(error); ok {
			closeBody(req)
			return nil, err
		}
	}
	if len(v) == 0 {
		return h.t.route(newTrip(h.t, req, "", false))
	}
	key, ok := httpkey.DecodeKey(v[0])
	return h.t.route(newTrip(h.t, req, key, ok))
}

// answer looks at a task's answer before it goes to the client.
func (l *handler) answer(resp *http.Response) error {
	// A gRPC client reads a refusal as it is.
	if refused, ok := refusal(l.job, resp); ok && !isGRPC(resp.Header) {
		return refused
	}
	if lost, ok := loss(l.job, resp); ok && !isGRPC(resp.Header) {
		return lost
	}
	httpkey.Strip(resp.Header)
	l.count(resp.StatusCode)
	return nil
}

// fail answers a request that no task has answered.
func (l *handler) fail(p *Proxy, w http.ResponseWriter, req *http.Request, err error) {
	if none, ok := errors.AsType[*front.NoKeyError](err); ok {
		l.counts.NoKey.Inc()
		reply(w, req, "slicer: "+none.Error(), http.StatusBadRequest)
		return
	}
	code, text := verdict(l.job, err)
	if req.Context().Err() != nil && errors.Is(err, context.Canceled) {
		l.counts.Gone.Inc() // the client has gone
	} else {
		l.count(code)
	}
	p.log.Debug("request failed", "job", l.job, "code", code, "error", err)
	if code == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	reply(w, req, text, code)
}

func reply(w http.ResponseWriter, req *http.Request, text string, code int) {
	if isGRPC(req.Header) {
		grpcError(w, text, code)
		return
	}
	http.Error(w, text, code)
}

// verdict chooses the answer for an error. It does not show the network's details
// to strangers.
func verdict(job string, err error) (code int, text string) {
	say := func(code int, format string, args ...any) (int, string) {
		return code, "slicer: " + fmt.Sprintf(format, args...)
	}
	refused, isRefused := errors.AsType[clerk.Refused](err)
	lost, isLost := errors.AsType[clerk.Lost](err)
	_, isFull := errors.AsType[clerk.Overloaded](err)
	timedOut := errors.Is(err, context.DeadlineExceeded)
	tooLarge, isTooLarge := errors.AsType[*http.MaxBytesError](err)
	_, isBody := errors.AsType[*BodyError](err)
	switch {
	case isTooLarge:
		return say(http.StatusRequestEntityTooLarge, "the request's body is larger than %d bytes", tooLarge.Limit)
	case isBody:
		return say(http.StatusBadRequest, "the request's body is cut short or malformed")
	case isLost: // whatever came after: the outcome is not known
		return say(http.StatusBadGateway, "task %q of job %q lost the request's key while it worked on it: it may have been carried out", assignment.Clip(lost.Task, 100), job)
	case isFull:
		return say(http.StatusTooManyRequests, "job %q has no room for the request, which was not sent", job)
	case isRefused && timedOut:
		return say(http.StatusServiceUnavailable, "no task of job %q owned the request's key in time", job)
	case isRefused:
		return say(http.StatusMisdirectedRequest, "task %q of job %q does not own the request's key and has done nothing: send it again", assignment.Clip(refused.Task, 100), job)
	case errors.Is(err, ErrNoTask), errors.Is(err, ErrClosed):
		return say(http.StatusServiceUnavailable, "job %q has no task to send the request to", job)
	case isUnreached(err):
		return say(http.StatusBadGateway, "no task of job %q could be reached", job)
	case timedOut:
		return say(http.StatusGatewayTimeout, "no task of job %q answered in time", job)
	}
	return say(http.StatusBadGateway, "a task of job %q broke the connection off", job)
}
