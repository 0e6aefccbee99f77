package sliceletgrpc

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/loadbalance/overload"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

const (
	previousAttempts = "grpc-previous-rpc-attempts"
	pushback         = "grpc-retry-pushback-ms"
)

// attempt counts an RPC by how often it was sent before.
func (g *gate) attempt(md metadata.MD, now time.Time, from *connection) {
	g.slicelet.CountAttempt(now, from.number(), max(number(md, AttemptHeader), number(md, previousAttempts)))
}

// number is what metadata says, 0 if that is no number.
func number(md metadata.MD, name string) int {
	text := last(md, name)
	if text == "" { // of which an error would have to be made
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return n
}

// Overloaded is the error with which a handler turns an RPC away that it has no room for,
// before it has done anything. It reports whether the client may send the RPC to another
// task: UNAVAILABLE if so, which clerkgrpc does within its budget for retries, else
// RESOURCE_EXHAUSTED; both with a slicerv1.Overloaded. The RPC counts as shed
// (slicelet.Handle.Shed). ctx is the handler's. Of a stream nothing may have been sent yet.
func Overloaded(ctx context.Context) error {
	c, _ := ctx.Value(callOfContext{}).(*call)
	if c == nil {
		return status.Error(codes.ResourceExhausted, "no room for the RPC")
	}
	c.full.Store(true)
	elsewhere := c.gate.slicelet.Shed(c.handle, c.labels)
	if !elsewhere {
		// gRPC's own retries heed this.
		_ = grpc.SetTrailer(ctx, metadata.Pairs(pushback, "-1"))
	}
	return c.gate.full(elsewhere)
}

// tellState puts what clients are to know of the task into the trailers.
func (g *gate) tellState(ctx context.Context) {
	l, draining := g.slicelet.Admission().Level(), g.slicelet.Draining()
	if l.Below == 0 && !draining {
		return
	}
	md := metadata.MD{}
	if l.Below > 0 {
		md[LevelHeader] = []string{l.String()}
	}
	if draining {
		md[DrainingHeader] = []string{"1"}
	}
	_ = grpc.SetTrailer(ctx, md) // fails if it is too late
}

// outOfQuota is the error of an RPC that its customer's limit does not let in.
func (g *gate) outOfQuota(customer string) error {
	l := g.slicelet.Admission().Level()
	m := &slicerv1.Overloaded{Scope: slicerv1.Overloaded_SCOPE_QUOTA, Task: g.slicelet.Task(), Customer: customer,
		Level: uint32(l.Below), PauseMs: uint32(l.Pause.Milliseconds())}
	if a := g.slicelet.Assignment(); a != nil {
		m.Job = a.Job()
	}
	return detailed(codes.ResourceExhausted, fmt.Sprintf("customer %q has used up its limit for job %q", customer, m.Job), m).Err()
}

// refusals are the errors of RPCs that there is no room for while the task says this level.
type refusals struct {
	level            overload.Level
	job              string
	final, elsewhere error
}

// full is the error of an RPC that there is no room for, made once for each level.
func (g *gate) full(elsewhere bool) error {
	l, job := g.slicelet.Admission().Level(), ""
	if a := g.slicelet.Assignment(); a != nil {
		job = a.Job()
	}
	r := g.refusals.Load()
	if r == nil || r.level != l || r.job != job {
		m := &slicerv1.Overloaded{Scope: slicerv1.Overloaded_SCOPE_ALL, Task: g.slicelet.Task(), Job: job,
			Level: uint32(l.Below), PauseMs: uint32(l.Pause.Milliseconds())}
		text := fmt.Sprintf("task %q of job %q has no room for the RPC", m.Task, m.Job)
		r = &refusals{level: l, job: job, final: detailed(codes.ResourceExhausted, text+", and it should not be sent again", m).Err()}
		m.Scope = slicerv1.Overloaded_SCOPE_TASK
		r.elsewhere = detailed(codes.Unavailable, text, m).Err()
		g.refusals.Store(r)
	}
	if elsewhere {
		return r.elsewhere
	}
	return r.final
}
