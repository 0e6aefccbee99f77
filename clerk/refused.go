package clerk

import (
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// Refused is the error of a request that a task refused since the key is not its
// own: nothing was done, and the owner may be asked. Adapters return it as a
// value, wrapped or not; find it with errors.As.
type Refused struct {
	// Job and Task name the task that refused.
	Job, Task string
	// Generation is the newest assignment that the task knows, 0 if it did not say.
	Generation assignment.Generation
	// Times is how often the request has been refused before, one time after the
	// other: what tries again counts it, and AwaitOwner waits longer by it.
	Times int
	// Routed is the generation of the assignment by which the task was chosen, 0 if it
	// is not known: what sends requests sets it, so that AwaitOwner does not wait
	// when a newer assignment has arrived since.
	Routed assignment.Generation
}

func (r Refused) Error() string {
	return fmt.Sprintf("task %q of job %q does not own the key, by generation %d", r.Task, r.Job, r.Generation)
}

// GRPCStatus makes gRPC send the refusal as it travels from a slicelet: as
// UNAVAILABLE with a slicerv1.Refusal.
func (r Refused) GRPCStatus() *status.Status {
	s := status.New(codes.Unavailable, r.Error())
	with, err := s.WithDetails(&slicerv1.Refusal{Job: r.Job, Task: r.Task, Generation: int64(r.Generation)})
	if err != nil { // a name that is not UTF-8
		return s
	}
	return with
}

// RefusedFromStatus finds a refusal in the status of an RPC, if it is one: its
// code is UNAVAILABLE and a slicerv1.Refusal among its details. What it says is
// bounded, since it comes from the network.
func RefusedFromStatus(err error) (r Refused, ok bool) {
	m, ok := detail[*slicerv1.Refusal](err, codes.Unavailable)
	if !ok {
		return Refused{}, false
	}
	return Refused{Job: assignment.Clip(m.GetJob(), assignment.MaxNameLen), Task: assignment.Clip(m.GetTask(), assignment.MaxNameLen), Generation: generation(m.GetGeneration())}, true
}

// Lost is the error of a request whose answer a task held back, since it lost the key
// while the request ran: unlike one that is Refused it may have been carried out.
// So it is sent again only if WithIdempotent or the adapter's own means say that this
// is safe. Adapters return it as a value, wrapped or not; find it with errors.As.
type Lost struct {
	// Job and Task name the task.
	Job, Task string
	// Generation is the newest assignment that the task knows, 0 if it did not say.
	Generation assignment.Generation
	// Times is how often the request has failed before, and Routed the generation by
	// which the task was chosen, as in Refused.
	Times  int
	Routed assignment.Generation
}

func (l Lost) Error() string {
	return fmt.Sprintf("task %q of job %q lost the key while the request ran: it may have been carried out", l.Task, l.Job)
}

// GRPCStatus makes gRPC send it as it travels from a slicelet: as ABORTED with a
// slicerv1.OwnershipLost.
func (l Lost) GRPCStatus() *status.Status {
	s := status.New(codes.Aborted, l.Error())
	with, err := s.WithDetails(&slicerv1.OwnershipLost{Job: l.Job, Task: l.Task, Generation: int64(l.Generation)})
	if err != nil { // a name that is not UTF-8
		return s
	}
	return with
}

// LostFromStatus finds a Lost in the status of an RPC, if it is one: its code is
// ABORTED and a slicerv1.OwnershipLost among its details. What it says is bounded.
func LostFromStatus(err error) (l Lost, ok bool) {
	m, ok := detail[*slicerv1.OwnershipLost](err, codes.Aborted)
	if !ok {
		return Lost{}, false
	}
	return Lost{Job: assignment.Clip(m.GetJob(), assignment.MaxNameLen), Task: assignment.Clip(m.GetTask(), assignment.MaxNameLen), Generation: generation(m.GetGeneration())}, true
}

// detail finds a message of one type among the details of a status of one code.
func detail[M any](err error, code codes.Code) (m M, ok bool) {
	s, isStatus := status.FromError(err)
	if !isStatus || s.Code() != code {
		return m, false
	}
	for _, d := range s.Details() {
		if m, ok = d.(M); ok {
			return m, true
		}
	}
	return m, false
}

func generation(g int64) assignment.Generation {
	return min(assignment.Generation(max(g, 0)), assignment.MaxGeneration)
}

// Unreached is the error of a request that no task has taken: no connection, or
// an answer that says so. In affinity mode Do gives it to another task.
type Unreached struct{ Err error }

func (u Unreached) Error() string { return u.Err.Error() }
func (u Unreached) Unwrap() error { return u.Err }
