package clerk

import (
	"cmp"
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/loadbalance/overload"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// Attempts is how many times a request is sent at most because tasks have no room for it, by
// the job's config (assignment.OverloadConfig.RetryAttempts).
func (c *Clerk) Attempts() int { return c.overload().RetryAttempts }

// overload is what the job's config says, with defaults.
func (c *Clerk) overload() assignment.OverloadConfig {
	return c.sub.State().Status.Overload.OrDefaults()
}

// Overloaded is the error of a request that a task had no room for: nothing was done.
// Adapters return it as a value, wrapped or not; find it with errors.As.
type Overloaded struct {
	// Job and Task name the task.
	Job, Task string
	// Elsewhere: another owner of the key may be asked. It is not set in what Do and the
	// adapters return: they have asked as far as that is good, and only the layer just
	// above the task that has no room is to send a request again.
	Elsewhere bool
	// Customer is what the request was charged to if it has used up its limit, whichever
	// task is asked; else it is empty.
	Customer string
	// Level is what the task says that it refuses (Throttle.Hear).
	Level overload.Level
}

func (o Overloaded) Error() string {
	if o.Customer != "" {
		return fmt.Sprintf("customer %q has used up its limit for job %q", o.Customer, o.Job)
	}
	if o.Elsewhere {
		return fmt.Sprintf("task %q of job %q has no room for the request", o.Task, o.Job)
	}
	return fmt.Sprintf("task %q of job %q has no room for the request, and it should not be sent again", o.Task, o.Job)
}

// final is what is returned when a request is not sent again.
func (o Overloaded) final() error {
	o.Elsewhere, o.Level = false, overload.Level{}
	return o
}

// Said reports whether the task says with the refusal that it refuses requests of this
// priority, so that clients do not send them again; if the priority is not known, whether it
// says that of any. A refusal for want of room that is not said speaks against the task
// (Throttle.Ended): one that refuses what it does not say is chosen the more, the less it has to
// do.
func (o Overloaded) Said(p overload.Priority) bool {
	if p >= overload.Priorities {
		p = 0
	}
	return o.Customer != "" || p < o.Level.Below
}

// GRPCStatus makes gRPC send it as it travels from a slicelet, with a
// slicerv1.Overloaded: as UNAVAILABLE where another task may be asked, else as
// RESOURCE_EXHAUSTED.
func (o Overloaded) GRPCStatus() *status.Status {
	code, scope := codes.ResourceExhausted, slicerv1.Overloaded_SCOPE_ALL
	if o.Customer != "" {
		scope = slicerv1.Overloaded_SCOPE_QUOTA
	} else if o.Elsewhere {
		code, scope = codes.Unavailable, slicerv1.Overloaded_SCOPE_TASK
	}
	s := status.New(code, o.Error())
	with, err := s.WithDetails(&slicerv1.Overloaded{Scope: scope, Job: o.Job, Task: o.Task, Customer: o.Customer, Level: uint32(o.Level.Below), PauseMs: uint32(o.Level.Pause.Milliseconds())})
	if err != nil { // a name that is not UTF-8
		return s
	}
	return with
}

// OverloadedFromStatus finds an Overloaded in the status of an RPC, if it is one: its code
// is UNAVAILABLE or RESOURCE_EXHAUSTED, and a slicerv1.Overloaded among its details. What
// it says is bounded.
func OverloadedFromStatus(err error) (o Overloaded, ok bool) {
	m, ok := detail[*slicerv1.Overloaded](err, codes.Unavailable)
	elsewhere := ok && m.GetScope() == slicerv1.Overloaded_SCOPE_TASK
	if !ok {
		m, ok = detail[*slicerv1.Overloaded](err, codes.ResourceExhausted)
	}
	if !ok {
		return Overloaded{}, false
	}
	customer := ""
	if m.GetScope() == slicerv1.Overloaded_SCOPE_QUOTA {
		customer = cmp.Or(assignment.Clip(m.GetCustomer(), assignment.MaxCustomerLen), "unknown")
	}
	return Overloaded{Customer: customer, Job: assignment.Clip(m.GetJob(), assignment.MaxNameLen), Task: assignment.Clip(m.GetTask(), assignment.MaxNameLen), Elsewhere: elsewhere,
		Level: overload.NewLevel(uint64(m.GetLevel()), uint64(m.GetPauseMs()))}, true
}

type attemptOfContext struct{}

// WithAttempt returns a context that says how often its request has been sent before, for
// what sends it to tell the task (sliceletgrpc.AttemptHeader, httpkey.HeaderAttempt). Do
// and the adapters set it; so may code that sends requests again by other means.
func WithAttempt(ctx context.Context, before int) context.Context {
	return context.WithValue(ctx, attemptOfContext{}, before)
}

// AttemptOf is how often the context's request has been sent before, 0 if it does not say.
func AttemptOf(ctx context.Context) int {
	n, _ := ctx.Value(attemptOfContext{}).(int)
	return n
}
