package sliceletgrpc

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/httpkey"
	"github.com/slicer-project/slicer/loadbalance/overload"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/slicelet/internal/moved"
)

// gate is what every RPC passes.
type gate struct {
	slicelet *slicelet.Slicelet
	cfg      Config
	bin      string // the header for keys that are not printable
	metrics  *metrics
	load     load
	refusals atomic.Pointer[refusals]
}

type callOfContext struct{}

// call is an RPC at the gate. For a stream whose key is in its first message it is
// filled in when that arrives. It is its own context, to spare an allocation.
type call struct {
	context.Context
	gate   *gate
	handle slicelet.Handle
	keyed  bool
	labels overload.Labels
	charge slicelet.Charge
	from   *connection
	// refused is why the RPC is not begun, if tap has found that.
	refused error
	tapped  bool // tap had room for it
	// full: the handler has refused the RPC by Overloaded, whichever goroutine called it.
	full atomic.Bool
	// checked: the answer is let out only if the key was owned throughout.
	checked bool
	// behind: the task does not own the key, and the client did not know that.
	behind bool
	moved  moved.Signal
}

// lost reports whether the answer must not be let out.
func (c *call) lost() bool { return c.checked && !c.handle.AssignedContinuously() }

// Value is context.Context's.
func (c *call) Value(key any) any {
	switch key {
	case callOfContext{}:
		return c
	case overload.LabelsKey{}:
		return &c.labels
	case overload.PressureKey{}, overload.SpendKey{}:
		return c
	}
	return c.Context.Value(key)
}

// Pressure is for overload.Pressure.
func (c *call) Pressure() float64 { return c.gate.slicelet.Admission().Pressure(c.labels) }

// Spend is for overload.Spend.
func (c *call) Spend(units float64) { c.charge.Spend(units) }

// HandleFrom returns the handle of the RPC's key; false if it has none. In a
// stream whose key is in the first message there is none before that was received.
func HandleFrom(ctx context.Context) (h slicelet.Handle, ok bool) {
	c, _ := ctx.Value(callOfContext{}).(*call)
	if c == nil {
		return slicelet.Handle{}, false
	}
	return c.handle, c.keyed
}

func (g *gate) unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	began := time.Now()
	g.load.underWay.Add(1)
	defer g.load.underWay.Add(-1)
	var answer any
	md := incoming(ctx)
	c, inner := g.callOf(ctx, md, info.FullMethod, began)
	g.attempt(md, began, c.from)
	if err := g.outdated(ctx, md, began, c); err != nil {
		return nil, err
	}
	k, ok, err := g.keyOf(md)
	if !ok && g.cfg.Key != nil {
		k, ok = g.keyIn(info.FullMethod, request)
	}
	if err == nil {
		err = g.admit(c.from.routedBy(generationIn(md)), c, info.FullMethod, k, ok)
	}
	o, now := idle, began
	if err == nil && ctx.Err() != nil {
		err = status.FromContextError(ctx.Err()).Err() // it has waited for too long
	}
	if err == nil {
		g.slicelet.Admission().Begin()
		answer, err = handler(inner, request)
		now = time.Now()
		g.slicelet.Admission().End(ctx, began, now, c.full.Load())
		if c.lost() {
			answer, err = nil, g.ownershipLost()
		}
		o = outcomeOf(status.Code(err))
	} else {
		c.charge.Cancel()
	}
	c.moved.Stop()
	took := now.Sub(began)
	g.ended(ctx, c.from, info.FullMethod, now, took, err, o)
	c.handle.Took(took)
	c.charge.Done(took)
	return answer, err
}

func (g *gate) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	began := time.Now()
	md := incoming(ss.Context())
	c, inner := g.callOf(ss.Context(), md, info.FullMethod, began)
	s := &stream{ServerStream: ss, method: info.FullMethod, busy: began, call: c, context: inner}
	if g.cfg.EndMoved {
		s.ended = make(chan struct{})
		s.context, s.cancel = context.WithCancelCause(inner)
		defer s.cancel(nil)
	}
	g.attempt(md, began, c.from)
	if err := g.outdated(ss.Context(), md, began, c); err != nil {
		c.charge.Cancel()
		return err
	}
	k, ok, err := g.keyOf(md)
	switch {
	case err != nil:
	case ok || g.cfg.Key == nil:
		if err = g.admit(generationIn(md), c, info.FullMethod, k, ok); err == nil && ok && s.ended != nil {
			s.limit()
		}
	default:
		s.ask = true
	}
	o := idle
	if err == nil {
		err = handler(srv, s)
		o = outcomeOf(status.Code(err))
	} else {
		c.charge.Cancel()
	}
	c.moved.Stop()
	if s.refused != nil {
		err, o = s.refused, idle // whatever the handler made of it
	} else if s.isOver() {
		g.metrics.moved.Inc()
		err, o = g.movedStatus().Err(), idle
	} else if s.check() != nil {
		err, o = g.ownershipLost(), idle
	}
	s.waits(false)
	now := time.Now()
	g.ended(ss.Context(), c.from, info.FullMethod, now, now.Sub(began), err, o)
	c.charge.Done(now.Sub(began))
	return err
}

// stream is a stream whose context has a call.
type stream struct {
	grpc.ServerStream
	context context.Context
	method  string
	call    *call
	ask     bool // the first message has the key
	refused error
	lost    atomic.Bool // a message was held back
	// With Config.EndMoved: closed when the stream is ended, and what ends its context.
	ended  chan struct{}
	cancel context.CancelCauseFunc

	mu   sync.Mutex // one goroutine may send while another receives
	busy time.Time  // since when work has not been counted, zero if it does not count
	at   int        // calls that are under way
}

// now is zero if time does not count, so that a stream does not read the clock at each message.
func (s *stream) now() (now time.Time) {
	if s.call.handle.CountsTime() {
		now = time.Now()
	}
	return now
}

// waits ends a time in which the handler worked. What is sent has been worked for
// even while another goroutine waits for what comes next; to receive while another
// sends is no sign of work.
func (s *stream) waits(sends bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at++; s.at == 1 || sends {
		now := s.now()
		if !s.busy.IsZero() {
			s.call.handle.Took(now.Sub(s.busy))
		}
		s.busy = now
	}
}

// works begins one.
func (s *stream) works() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at--
	s.busy = s.now()
}

// check reports, as an error, that nothing may be sent any more.
func (s *stream) check() error {
	if s.isOver() {
		return s.call.gate.movedStatus().Err()
	}
	s.mu.Lock()
	lost := s.call.lost()
	s.mu.Unlock()
	if lost {
		s.lost.Store(true)
	}
	if s.lost.Load() {
		return s.call.gate.lossStatus().Err()
	}
	return nil
}

func (s *stream) SendMsg(m any) error {
	s.waits(true)
	defer s.works()
	if err := s.check(); err != nil {
		return err
	}
	return s.ServerStream.SendMsg(m)
}

func (s *stream) SendHeader(md metadata.MD) error {
	if err := s.check(); err != nil {
		return err
	}
	return s.ServerStream.SendHeader(md)
}

func (s *stream) Context() context.Context { return s.context }

func (s *stream) RecvMsg(m any) error {
	if s.refused != nil {
		return s.refused
	}
	if s.lost.Load() {
		return s.call.gate.lossStatus().Err()
	}
	if s.isOver() {
		return s.call.gate.movedStatus().Err()
	}
	s.waits(false)
	err := s.receive(m)
	s.works()
	if err != nil || !s.ask {
		return err
	}
	s.ask = false
	k, ok := s.call.gate.keyIn(s.method, m)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refused = s.call.gate.admit(generationIn(incoming(s.context)), s.call, s.method, k, ok); s.refused == nil && ok && s.ended != nil {
		s.limit()
	}
	s.busy = s.now()
	return s.refused
}

// keyOf finds the key in the metadata. The error is that of a slice key that is none.
func (g *gate) keyOf(md metadata.MD) (k assignment.SliceKey, ok bool, err error) {
	if v := md[g.cfg.Header]; len(v) > 0 {
		if g.cfg.Header == KeyHeader && strings.Contains(v[0], "%") {
			if key, ok := httpkey.DecodeKey(v[0]); ok {
				return assignment.KeyOf(key), true, nil
			}
		}
		return assignment.KeyOf(v[0]), true, nil
	}
	if v := md[g.bin]; len(v) > 0 {
		return assignment.KeyOf(v[0]), true, nil
	}
	if g.cfg.SliceKey == "" {
		return 0, false, nil
	}
	v := md[g.cfg.SliceKey]
	if len(v) == 0 {
		return 0, false, nil
	}
	if k, ok = sliceKey(v[0]); ok && len(v) == 1 {
		return k, true, nil
	}
	return 0, false, status.Error(codes.InvalidArgument, (&assignment.FieldError{Field: fmt.Sprintf("metadata %q", g.cfg.SliceKey), Value: strings.Join(v[:min(len(v), 5)], ", "),
		Allowed: "one slice key, XXH64(key) >> 1 as exactly 16 lower-case hex digits, 0000000000000000 to 7fffffffffffffff"}).Error())
}

// sliceKey reads a slice key's text form, and no other that means the same number.
func sliceKey(text string) (assignment.SliceKey, bool) {
	k, err := assignment.ParseSliceKey(text)
	return k, err == nil && k < assignment.KeyspaceEnd && k.String() == text
}

// keyIn finds the key in a request.
func (g *gate) keyIn(method string, request any) (assignment.SliceKey, bool) {
	key, ok := g.cfg.Key(method, request)
	return assignment.KeyOf(key), ok
}

// admit counts an RPC that was routed by a generation, and reports whether it may go on.
func (g *gate) admit(generation int64, c *call, method string, k assignment.SliceKey, keyed bool) error {
	if !keyed {
		if g.cfg.RequireKey && !strings.HasPrefix(method, "/grpc.") {
			return status.Error(codes.InvalidArgument, fmt.Sprintf("%s has no key: it is taken from the metadata %q", method, g.cfg.Header))
		}
		return nil
	}
	c.handle, c.keyed = g.slicelet.HandleSliceKey(k), true
	consistent := g.slicelet.Mode() == assignment.Consistent
	if c.handle.Owned() {
		c.checked = consistent && !g.cfg.UncheckedAnswers
		return nil
	}
	a := g.slicelet.Assignment()
	route := moved.Route(generation, a)
	c.behind = route == "older"
	g.metrics.astray(route, consistent)
	if !consistent {
		return nil
	}
	return g.refusal(a)
}

// generationIn is what GenerationHeader says, 0 if there is none, and -1 if it is no number.
func generationIn(md metadata.MD) int64 {
	text := last(md, GenerationHeader) // the last is the picker's
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return -1
	}
	return n
}

func (g *gate) refusal(a *assignment.Assignment) error {
	m := &slicerv1.Refusal{Task: g.slicelet.Task()}
	if a != nil {
		m.Job, m.Generation = a.Job(), int64(a.Generation())
	}
	text := fmt.Sprintf("task %q of job %q does not own the key, by generation %d", m.Task, m.Job, m.Generation)
	return detailed(codes.Unavailable, text, m).Err()
}

// ownershipLost counts an RPC whose answer is held back, and returns what is
// answered instead.
func (g *gate) ownershipLost() error {
	g.metrics.lost.Inc()
	return g.lossStatus().Err()
}

func (g *gate) lossStatus() *status.Status {
	m := &slicerv1.OwnershipLost{Task: g.slicelet.Task()}
	if a := g.slicelet.Assignment(); a != nil {
		m.Job, m.Generation = a.Job(), int64(a.Generation())
	}
	text := fmt.Sprintf("task %q of job %q lost the key while the RPC ran: it may have been carried out, and its answer is held back", m.Task, m.Job)
	return detailed(codes.Aborted, text, m)
}

func detailed(code codes.Code, text string, detail protoadapt.MessageV1) *status.Status {
	st := status.New(code, text)
	if with, err := st.WithDetails(detail); err == nil {
		return with
	}
	return st // a name that is not UTF-8
}

// ended counts an RPC that has been answered and took so long, and tells the client of the load.
func (g *gate) ended(ctx context.Context, from *connection, method string, now time.Time, took time.Duration, err error, o outcome) {
	g.metrics.answered(method, status.Code(err), took)
	g.tellState(ctx)
	g.load.count(now, from, o)
	g.load.tell(ctx, from, now)
}
