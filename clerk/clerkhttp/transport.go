package clerkhttp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/httpkey"
	"github.com/slicer-project/slicer/assignment/subscriber"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/internal/flight"
	"github.com/slicer-project/slicer/loadbalance/overload"
	"github.com/slicer-project/slicer/loadbalance/policy"
)

// maxTries is how many tasks an affinity request is sent to at most.
const maxTries = 4

// Transport is a http.RoundTripper. All methods are safe for concurrent use.
type Transport struct {
	cfg   Config
	clerk *clerk.Clerk
	turn  atomic.Uint64
	tally tally

	snapshot atomic.Pointer[snapshot]
	mu       sync.Mutex // of changes to snapshot
	over     bool       // under mu

	stop       chan struct{}
	wg         sync.WaitGroup
	unregister func()
}

// NewTransport validates the config. Close the Transport before its clerk.
func NewTransport(cfg Config) (*Transport, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	t := &Transport{cfg: cfg, clerk: cfg.Clerk, stop: make(chan struct{})}
	var err error
	t.unregister, err = subscriber.Register(cfg.Registerer, "transport", prometheus.Labels{"job": cfg.Clerk.Job()}, &t.tally)
	if err != nil {
		return nil, err
	}
	t.wg.Go(t.follow)
	return t, nil
}

// follow closes the connections to tasks that leave, requests or not.
func (t *Transport) follow() {
	for {
		changed := t.clerk.Changed()
		t.current()
		select {
		case <-changed:
		case <-t.stop:
			return
		}
	}
}

// current is the snapshot of the clerk's newest assignment, nil if there is none
// yet or the transport is closed.
func (t *Transport) current() *snapshot {
	v, s := t.snapshot.Load(), t.clerk.Subset()
	if s == nil || v != nil && v.subset == s {
		return v
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return nil
	}
	v, s = t.snapshot.Load(), t.clerk.Subset()
	if v == nil || v.subset != s {
		var left []*backend
		v, left = newSnapshot(s, v, t.clerk.Throttle, func(warm bool, flights *flight.Group) *pool { return newPool(&t.cfg, warm, flights) }, (*pool).retire)
		t.snapshot.Store(v)
		for _, b := range left { // now that requests find others
			b.flights.Die()
		}
	}
	return v
}

// CloseIdleConnections closes connections that have no request at the moment.
func (t *Transport) CloseIdleConnections() {
	if v := t.snapshot.Load(); v != nil {
		for _, b := range v.backends {
			b.pool.Load().http.CloseIdleConnections()
		}
	}
}

// Close closes idle connections, and others when their requests are done, which
// it does not wait for. Requests after it fail with ErrClosed.
func (t *Transport) Close() error {
	t.mu.Lock()
	first := !t.over
	t.over = true
	v := t.snapshot.Swap(nil)
	t.mu.Unlock()
	if first {
		t.unregister()
		close(t.stop)
		if v != nil {
			for _, b := range v.backends {
				b.pool.Load().retire(clerk.CloseShutdown)
			}
		}
	}
	t.wg.Wait()
	return nil
}

func (t *Transport) closed() bool {
	select {
	case <-t.stop:
		return true
	default:
		return false
	}
}

// RoundTrip is http.RoundTripper's. Errors that are not the network's match
// ErrNoKey, ErrNoTask, ErrClosed, *BodyError, clerk.Refused, clerk.Overloaded (which was not
// sent) or the context's.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	key, keyed := clerk.KeyOf(req.Context())
	if !keyed && t.cfg.Key != nil {
		key, keyed = t.cfg.Key(req)
	}
	var err error
	switch {
	case req.URL == nil:
		err = errors.New("clerkhttp: the request has no URL")
	case !keyed && t.cfg.Missing == Refuse:
		err = ErrNoKey
	default:
		err = assignment.CheckKey(key)
	}
	if err != nil {
		closeBody(req)
		return nil, err
	}
	r := newTrip(t, req, key, keyed)
	r.leaves = keyed && idempotent(req) && (req.Body == nil || req.Body == http.NoBody || req.GetBody != nil)
	r.byConn = r.leaves && t.byConnection(req)
	r.firstOut()
	if r.out.Header == nil {
		r.out.Header = http.Header{}
	}
	httpkey.Strip(r.out.Header)
	if keyed {
		r.out.Header[httpkey.HeaderKey] = r.value(0, httpkey.EncodeKey(key))
	}
	setLabels(r.out.Header, t.clerk.Labels(req.Context()))
	return t.route(r)
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}

// trip is one request on its way.
type trip struct {
	t     *Transport
	in    *http.Request
	out   *http.Request
	key   string
	keyed bool
	begun time.Time
	body  *body // nil if there is none, or GetBody makes new ones
	tried tried
	sent  int   // times that it was, save for reasons of ownership
	last  error // of a task that did not answer
	ran   error // the first clerk.Lost
	// counted: the clerk's budgets know of it.
	counted bool
	// paid: the next attempt is in the budget already.
	paid   bool
	waits  int
	expire context.CancelFunc // of wait
	wait   context.Context
	// Of the first attempt, to spare allocations: its URL, values of its headers, what ends it if
	// the request leaves, nil once it has begun, and its answer's body.
	url    url.URL
	values [2]string
	flight *flight.Flight
	answer counted
	// leaves says that it goes to the next owner if its task is said to be dead before
	// it answers, and byConn that its connection is closed then, where its context would be ended.
	leaves, byConn bool
	// died is how long it was at a task that was then said to be dead, if it was.
	died time.Duration
}

// newTrip begins one with the request as it is, which will be changed.
func newTrip(t *Transport, req *http.Request, key string, keyed bool) *trip {
	return &trip{t: t, in: req, out: req, key: key, keyed: keyed, begun: time.Now()}
}

// firstOut makes what is sent first.
func (r *trip) firstOut() {
	switch {
	case r.byConn:
		r.out = r.in.WithContext(withWaiting(r.in.Context()))
	case r.leaves && r.t.cfg.ResponseTimeout == 0:
		ctx, f := flight.New(r.in.Context())
		r.out, r.flight = r.in.WithContext(ctx), f
	default:
		out := *r.in
		r.out = &out
	}
	r.url = *r.in.URL
	r.out.URL, r.out.Header = &r.url, maps.Clone(r.in.Header)
}

// value is a header's i-th value in the first attempt.
func (r *trip) value(i int, v string) []string {
	r.values[i] = v
	return r.values[i : i+1 : i+1]
}

// copyOut makes another of what is sent.
func (r *trip) copyOut() {
	out, u := *r.out, *r.out.URL
	out.URL, out.Header = &u, maps.Clone(out.Header)
	r.out = &out
}

// route sends the request until an answer, or an error, is to be returned.
func (t *Transport) route(r *trip) (resp *http.Response, err error) {
	if r.out.Host == "" {
		r.out.Host = r.out.URL.Host
	}
	if in := r.in; in.Body != nil && in.Body != http.NoBody && in.GetBody == nil {
		r.body = newBody(in.Body, t.clerk.Mode() == assignment.Consistent)
		r.out.Body = r.body.now
	}
	defer func() {
		if r.expire != nil {
			r.expire()
		}
		if r.flight != nil { // it was not sent
			r.flight.End()
		}
		if r.body != nil {
			err = r.body.last(err)
		}
	}()
	for {
		v, err := r.ready()
		if err != nil {
			closeBody(r.out)
			t.tally.requests[unanswered].Add(1)
			return nil, err
		}
		consistent := r.keyed && t.clerk.Mode() == assignment.Consistent
		var owners assignment.Replicas
		if r.keyed {
			t.clerk.Selected(true)
			owners = v.a.Lookup(assignment.KeyOf(r.key))
		}
		p, customer := r.priority(), customerIn(r.out.Header)
		now := time.Now()
		b, owner := v.pick(t.cfg.Policy, t.number, owners, consistent, &r.tried, p, customer, now)
		if b == nil {
			closeBody(r.out)
			t.tally.requests[unanswered].Add(1)
			return nil, cmp.Or(r.last, ErrNoTask)
		}
		if !r.counted {
			r.counted = true
			t.clerk.Requested()
		}
		standsFor, err := b.throttle.Send(p, customer)
		if err != nil {
			closeBody(r.out)
			t.tally.requests[unanswered].Add(1)
			return nil, err
		}
		if delete(r.out.Header, httpkey.HeaderStandsFor); standsFor > 0 {
			r.out.Header[httpkey.HeaderStandsFor] = []string{strconv.Itoa(standsFor)}
		}
		resp, err := r.send(v, b, consistent, p, now)
		if refused := b.refused(resp); refused || resp != nil && b.throttle.Watched() {
			b.throttle.Answered(p, customer, refused)
		}
		refused, isRefused := refusal(v.a.Job(), resp)
		lost, isLost := loss(v.a.Job(), resp)
		isLost = isLost && idempotent(r.in)
		if full, ok := overloaded(v.a.Job(), resp); ok {
			b.throttle.HearRefusal(full)
			if r.tried.add(b); full.Elsewhere && !consistent && r.mayAskAnother(v, owners) {
				t.tally.retries[fullOnce].Add(1)
				finish(resp)
				continue
			}
			closeBody(r.out)
			noMore(resp, full)
			t.tally.sent(r.keyed, owner)
			return resp, nil
		}
		if err == nil && !isRefused && !isLost {
			t.tally.sent(r.keyed, owner)
			return resp, nil
		}
		again := isRefused || isLost
		if !again && !consistent {
			r.tried.add(b)
		}
		elsewhere := !again && !consistent
		if r.tried.n == maxTries || elsewhere && r.tried.n >= len(v.all) || !r.mayRepeat(err) {
			t.tally.requests[unanswered].Add(1)
			return resp, err
		}
		paid := r.paid
		r.paid = false
		if elsewhere && !paid && !r.mayLeave() {
			closeBody(r.out)
			t.tally.requests[unanswered].Add(1)
			return resp, err
		}
		if again {
			finish(resp)
		}
		if again {
			r.sent-- // it adds to nothing: the task has done next to nothing
		}
		switch {
		case isRefused:
			t.tally.retries[refusedOnce].Add(1)
			err = refused
		case isLost:
			t.tally.retries[lostOnce].Add(1)
			err, r.ran = lost, cmp.Or[error](r.ran, lost)
		case consistent:
			refused = clerk.Refused{Job: v.a.Job(), Task: b.name}
			t.tally.retries[failedOnce].Add(1)
		default:
			t.tally.retries[failedOnce].Add(1)
			r.last = err
			continue
		}
		refused.Times, refused.Routed = r.waits, v.a.Generation()
		lost.Times, lost.Routed = refused.Times, refused.Routed
		r.waits++
		ended := error(nil)
		if isLost {
			ended = t.clerk.AwaitOwnerAfterLoss(r.patience(), r.key, lost)
		} else {
			ended = t.clerk.AwaitOwner(r.patience(), r.key, refused)
		}
		if ended != nil {
			closeBody(r.out)
			t.tally.requests[unanswered].Add(1)
			return nil, fmt.Errorf("%w: no owner served the key for %s: %w", cmp.Or(r.ran, err), time.Since(r.begun).Round(time.Millisecond), context.Cause(r.patience()))
		}
	}
}

// mayLeave reports whether a request that a task did not answer may go to another.
func (r *trip) mayLeave() bool {
	if r.died > 0 {
		return r.t.clerk.MayRetryAfterDeath(r.died)
	}
	return r.t.clerk.MayRetry()
}

// mayAskAnother reports whether a request that a task had no room for may be sent to
// another owner, or without a key to another task, and makes it ready.
func (r *trip) mayAskAnother(v *snapshot, owners assignment.Replicas) bool {
	others := r.tried.n < len(v.all)
	if r.keyed {
		others = false
		for i := range owners.Len() {
			others = others || !r.tried.has(v.backends[owners.Position(i)])
		}
	}
	return others && r.sent < r.t.clerk.Attempts() && r.tried.n < maxTries && r.mayRepeat(nil) && r.t.clerk.MayRetry()
}

// finish ends an answer, so that its connection can be used again.
func finish(resp *http.Response) {
	_, _ = io.CopyN(io.Discard, resp.Body, 4<<10)
	_ = resp.Body.Close()
}

// number is for policy.Choose.
func (t *Transport) number() uint64 {
	if t.cfg.Policy == policy.RoundRobin {
		return t.turn.Add(1)
	}
	return rand.Uint64()
}

// ready waits for an assignment.
func (r *trip) ready() (*snapshot, error) {
	if v := r.t.current(); v != nil {
		return v, nil
	}
	if r.t.closed() {
		return nil, ErrClosed
	}
	if err := r.t.clerk.Ready(r.patience()); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoTask, err)
	}
	if v := r.t.current(); v != nil {
		return v, nil
	}
	return nil, ErrClosed
}

// patience is a context for waits. It counts from the first of them: a long poll whose key moves
// after a minute has not waited for an owner until then.
func (r *trip) patience() context.Context {
	if r.wait == nil {
		r.wait, r.expire = context.WithDeadlineCause(r.in.Context(), time.Now().Add(r.t.cfg.Patience),
			fmt.Errorf("waited for %s: %w", r.t.cfg.Patience, context.DeadlineExceeded))
	}
	return r.wait
}

// send sends the request to a task once, which has been chosen now.
func (r *trip) send(v *snapshot, b *backend, consistent bool, p overload.Priority, now time.Time) (*http.Response, error) {
	r.out.URL.Host = b.address
	r.out.Header[httpkey.HeaderGeneration] = v.generation
	if before := clerk.AttemptOf(r.in.Context()) + r.sent; before > 0 {
		r.out.Header[httpkey.HeaderAttempt] = []string{strconv.Itoa(before)}
	}
	if left, ok := timeoutOf(r.in.Context()); ok && r.sent == 0 {
		r.out.Header[httpkey.HeaderTimeout] = r.value(1, left)
	} else if ok {
		r.out.Header[httpkey.HeaderTimeout] = []string{left}
	}
	b.probe(r.begun)
	r.sent++
	count := r.t.cfg.Policy != policy.RoundRobin || r.t.clerk.LimitsOutstanding()
	if count {
		b.outstanding.Add(1)
	}
	out := r.out
	var f *flight.Flight
	var resp *http.Response
	var err error
	limit, transport := r.t.cfg.ResponseTimeout, b.pool.Load().http
	if r.leaves && !r.byConn || limit > 0 {
		ctx := out.Context()
		if f, r.flight = r.flight, nil; f == nil {
			ctx, f = flight.New(r.in.Context())
			out = out.WithContext(ctx)
		}
		if r.leaves {
			f.At(&b.flights)
		}
		if limit > 0 {
			left := min(maxTries, len(v.all)) - r.tried.n - 1
			w := &watch{r: r, f: f, limit: limit, leave: !consistent && left > 0 && idempotent(r.in), more: time.Duration(left) * limit}
			resp, err = transport.RoundTrip(out.WithContext(w.trace(ctx)))
			w.end()
		} else {
			resp, err = transport.RoundTrip(out)
		}
		if why := context.Cause(ctx); err != nil && (why == errSlow || why == flight.ErrDead) {
			err = why
		}
	} else {
		resp, err = transport.RoundTrip(out)
	}
	if r.died = 0; errors.Is(err, flight.ErrDead) {
		r.died = max(time.Since(now), 1)
	}
	switch {
	case err == nil:
		b.answered()
		b.hear(resp)
		b.throttle.Ended(b.speaksAgainst(v.a.Job(), resp, p))
	case isUnreached(err) && r.in.Context().Err() == nil:
		b.failed(time.Now())
	case !errors.Is(err, context.Canceled):
		b.throttle.Ended(true)
	}
	switch {
	case !count && f == nil:
	case err != nil:
		if count {
			b.over()
		}
		if f != nil {
			f.End()
		}
	default:
		if f != nil {
			f.Land()
		}
		c := &r.answer
		if c.ReadCloser != nil {
			c = new(counted)
		}
		resp.Body = c.of(resp.Body, b, count, f)
	}
	return resp, err
}

// speaksAgainst reports whether an answer is one that a healthy task would not give to a
// request of this priority: it says that it has broken down, or that it has no room for what it
// does not say that it refuses.
func (b *backend) speaksAgainst(job string, resp *http.Response, p overload.Priority) bool {
	if full, ok := overloaded(job, resp); ok {
		return !full.Said(p)
	}
	if resp.StatusCode == http.StatusTooManyRequests {
		return !outOfQuota(resp) && b.refused(resp)
	}
	return resp.StatusCode >= http.StatusInternalServerError
}

// isUnreached reports whether an error came before anything was sent.
func isUnreached(err error) bool {
	_, ok := errors.AsType[clerk.Unreached](err)
	return ok
}

// mayRepeat reports whether the request may be sent again after an error, or nil
// for a refusal, and makes it ready.
func (r *trip) mayRepeat(err error) bool {
	if r.in.Context().Err() != nil || err != nil && !isUnreached(err) && !idempotent(r.in) {
		return false
	}
	var next io.ReadCloser
	switch {
	case r.body != nil:
		again := r.body.again()
		if again == nil {
			return false
		}
		next = again
	case r.in.Body != nil && r.in.Body != http.NoBody:
		again, berr := r.in.GetBody()
		if berr != nil {
			return false
		}
		next = again
	}
	// The request that was sent is that transport's, perhaps for some time to come.
	r.copyOut()
	if next != nil {
		r.out.Body = next
	}
	return true
}

// idempotent is net/http's rule, and what the context says.
func idempotent(req *http.Request) bool {
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return req.Header["Idempotency-Key"] != nil || req.Header["X-Idempotency-Key"] != nil || clerk.Idempotent(req.Context())
}
