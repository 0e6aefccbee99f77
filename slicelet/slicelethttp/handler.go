package slicelethttp

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/httpkey"
	"github.com/slicer-project/slicer/loadbalance/overload"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/slicelet/internal/moved"
)

// Config says how requests are looked at. The zero value will do behind
// slicerproxy or clerkhttp.
type Config struct {
	// Key finds the key of a request that does not bring one in httpkey.HeaderKey,
	// such as the method Find of an httpkey.Finder; nil finds none. It must be safe
	// for concurrent use.
	Key func(*http.Request) (key string, ok bool)
	// RequireKey refuses requests without a key with 400. Otherwise they are served,
	// and no load.
	RequireKey bool
	// UncheckedAnswers lets answers of a job in consistent mode out even if the task
	// lost the key while the handler ran. By default they are held back: see the
	// package's documentation.
	UncheckedAnswers bool
	// EndMoved says which requests are long ones, such as LongLived, and may be nil. They are ended
	// when their key moves to another task, so that their clients connect to that: MovedGrace
	// after Moved has said so to the handler, 0 for DefaultMovedGrace, the context of the request
	// ends, with ErrMoved as its cause, and nothing is read or written any more. A handler has to
	// return then. The client gets 409 Conflict with httpkey.HeaderLost if the answer has not
	// begun, and otherwise a connection that is cut off, or in HTTP/2 the stream. An upgraded
	// connection is closed, a WebSocket with a close frame of status 1012, Service Restart,
	// before. A request that its client has sent here since it was behind is ended in the same way
	// half a second after it has begun.
	EndMoved   func(*http.Request) bool
	MovedGrace time.Duration
	// Registerer takes the metrics; nil is none. One registerer takes one handler.
	Registerer prometheus.Registerer
}

// Handler returns a handler that looks at each request before next does. The error
// is the registerer's.
func Handler(s *slicelet.Slicelet, next http.Handler, cfg Config) (http.Handler, error) {
	g := &gate{slicelet: s, next: next, cfg: cfg, metrics: newMetrics()}
	if cfg.Registerer != nil {
		for _, c := range g.metrics.all() {
			if err := cfg.Registerer.Register(c); err != nil {
				return nil, fmt.Errorf("metrics: %w", err)
			}
		}
	}
	return g, nil
}

type handleOfContext struct{}

// visit is a request at the gate. It is its writer and its context, to spare
// allocations.
type visit struct {
	recorder
	context.Context
	timeout timeout // its context, if the client says how long it waits
	gate    *gate
	handle  slicelet.Handle
	keyed   bool
	labels  overload.Labels
	charge  slicelet.Charge
	// refused: there was no room, at the latest by the handler.
	refused atomic.Bool
	// beyond: the customer's limit does not let it in.
	beyond bool
	moved  moved.Signal
	// upgraded is the connection that the handler has taken over, nil before and without
	// Config.EndMoved; writer is the server's.
	upgraded atomic.Pointer[upgraded]
	writer   http.ResponseWriter
}

// Value is context.Context's.
func (v *visit) Value(key any) any {
	switch key {
	case handleOfContext{}:
		return v
	case overload.LabelsKey{}:
		return &v.labels
	case overload.PressureKey{}, overload.SpendKey{}:
		return v
	}
	return v.Context.Value(key)
}

// Pressure is for overload.Pressure.
func (v *visit) Pressure() float64 { return v.gate.slicelet.Admission().Pressure(v.labels) }

// Spend is for overload.Spend.
func (v *visit) Spend(units float64) { v.charge.Spend(units) }

// HandleFrom returns the handle of the request's key, which Handler has put into
// the request's context. It is not ok if the request has no key.
func HandleFrom(ctx context.Context) (h slicelet.Handle, ok bool) {
	v, _ := ctx.Value(handleOfContext{}).(*visit)
	if v == nil {
		return slicelet.Handle{}, false
	}
	return v.handle, v.keyed
}

// gate is http.Handler.
type gate struct {
	slicelet *slicelet.Slicelet
	next     http.Handler
	cfg      Config
	metrics  *metrics
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	begun := time.Now()
	v := &visit{recorder: recorder{ResponseWriter: w}, writer: w, gate: g, Context: r.Context(), labels: g.labels(r)}
	if limit, ok := httpkey.TimeoutOf(r.Header); ok {
		v.timeout.Context, v.timeout.by = v.Context, begun.Add(limit)
		v.Context = &v.timeout
		defer v.timeout.end()
	}
	from := peerOf(r)
	g.attempt(r, begun, from)
	rec := &v.recorder
	defer func() {
		// A panic, which the server takes for the connection's end, is an error.
		took := time.Since(begun)
		v.handle.Took(took)
		v.charge.Done(took)
		g.metrics.answered(rec.code, took)
	}()
	defer func() {
		if v.upgraded.Load() == nil { // else it goes on until its connection is closed
			v.moved.Stop()
		}
	}()
	key, ok := g.keyOf(r)
	verdict, checked := g.admit(v, r, key, ok, begun, from), false
	if !ok {
		if g.cfg.RequireKey {
			v.charge.Cancel()
			http.Error(rec, "slicer: the request has no key", http.StatusBadRequest)
			return
		}
		if v.refuses(verdict) {
			return
		}
	} else {
		v.handle, v.keyed = g.slicelet.Handle(key), true
		consistent := g.slicelet.Mode() == assignment.Consistent
		if !v.handle.Owned() && g.refuse(rec, r, consistent) {
			v.charge.Cancel()
			return
		}
		if v.refuses(verdict) {
			return
		}
		checked = consistent && !g.cfg.UncheckedAnswers
		if g.cfg.EndMoved != nil && g.cfg.EndMoved(r) {
			v.limit(r, !v.handle.Owned() && routeOf(r, g.slicelet.Assignment()) == "older")
		}
	}
	g.slicelet.Admission().Begin()
	defer func() { g.slicelet.Admission().End(v, begun, time.Now(), v.refused.Load()) }()
	if checked {
		g.serveChecked(v, r.WithContext(v))
		return
	}
	g.next.ServeHTTP(rec, r.WithContext(v))
	if v.upgraded.Load() == nil {
		v.moved.Stop() // it will not be ended from here on
	}
	if v.over.Load() {
		g.endMoved(v, r)
		return
	}
	rec.end()
}

// serveChecked lets the answer out only if the key was owned throughout.
func (g *gate) serveChecked(v *visit, r *http.Request) {
	c := newCheckedWriter(v.ResponseWriter, v.handle.AssignedContinuously)
	v.ResponseWriter = c
	g.next.ServeHTTP(&v.recorder, r)
	v.end()
	if c.finish() {
		return
	}
	g.metrics.lost.Inc()
	v.code = http.StatusConflict
	if c.begun {
		panic(http.ErrAbortHandler) // so that the client does not take a part for the whole
	}
	c.discard()
	w := c.ResponseWriter
	v.notAgain(r)
	w.Header().Set(httpkey.HeaderLost, g.slicelet.Task())
	job, generation := describe(g.slicelet.Assignment())
	w.Header().Set(httpkey.HeaderGeneration, generation)
	http.Error(w, fmt.Sprintf("slicer: task %q of job %q lost the key while the request ran: it may have been carried out, and its answer is held back",
		g.slicelet.Task(), job), http.StatusConflict)
}

// describe is what an assignment, which may be nil, says of itself.
func describe(a *assignment.Assignment) (job, generation string) {
	if a == nil {
		return "", "0"
	}
	return a.Job(), strconv.FormatInt(int64(a.Generation()), 10)
}

func (g *gate) keyOf(r *http.Request) (string, bool) {
	if v := r.Header[httpkey.HeaderKey]; len(v) > 0 {
		return httpkey.DecodeKey(v[0])
	}
	if g.cfg.Key != nil {
		return g.cfg.Key(r)
	}
	return "", false
}

// refuse counts a misrouted request, and answers it if it must not be served.
func (g *gate) refuse(w http.ResponseWriter, r *http.Request, consistent bool) bool {
	a := g.slicelet.Assignment()
	g.metrics.astray(routeOf(r, a), consistent)
	if !consistent {
		return false
	}
	job, generation := describe(a)
	w.Header().Set(httpkey.HeaderRefused, g.slicelet.Task())
	w.Header().Set(httpkey.HeaderGeneration, generation)
	http.Error(w, fmt.Sprintf("slicer: task %q of job %q does not own the key, by generation %s", g.slicelet.Task(), job, generation), http.StatusMisdirectedRequest)
	return true
}

// routeOf is moved.Route by what the client says.
func routeOf(r *http.Request, a *assignment.Assignment) string {
	n, err := strconv.ParseInt(r.Header.Get(httpkey.HeaderGeneration), 10, 64)
	if err != nil {
		n = 0
	}
	return moved.Route(n, a)
}
