package rpc

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/grpc/peer"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/access"
	"github.com/slicer-project/slicer/assignment/access/enforce"
	"github.com/slicer-project/slicer/assignment/limiter"
	"github.com/slicer-project/slicer/lease"
)

// Origin is where a call comes from.
type Origin struct {
	Caller     enforce.Caller
	Peer       string // the caller whose sessions are counted
	Connection string
}

// OriginOf reads it off the connection, never off a message: no process passes calls of
// LeaseService on for another.
func OriginOf(ctx context.Context, rights *enforce.Rights) Origin {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return Origin{Caller: enforce.Caller{Identity: access.Anonymous}}
	}
	o := Origin{Caller: rights.Peer(ctx), Connection: p.Addr.String(), Peer: "address " + limiter.KeyOf(p.Addr)}
	if o.Caller.Identity != access.Anonymous {
		o.Peer = "identity " + string(o.Caller.Identity)
	}
	return o
}

// Own returns nil if a caller may be a job's task, PERMISSION_DENIED if not, and
// ErrUnavailable if that cannot be known. It asks for the job's access only if there is a
// policy; nil leaves all to the policy.
func Own(rights *enforce.Rights, from Origin, job, task string, accessOf func() (assignment.Access, error)) error {
	if policy, _ := rights.Policy(); policy == nil {
		return nil
	}
	q := access.Question{Verb: assignment.Own, Job: job, Task: task}
	if accessOf != nil {
		var err error
		if q.Access, err = accessOf(); err != nil {
			return fmt.Errorf("%w: who may own job %s: %w", lease.ErrUnavailable, job, err)
		}
	}
	return rights.Check(from.Caller, q)
}

// Asked is what a session's right to a job was asked of, besides the caller's identity, which
// is the session's for good. Where none of it changes, the answer stays, so that a renewal
// does not go through all patterns. The zero value is of a right that was not asked for.
type Asked struct {
	Policy *access.Policy
	Access assignment.Access
	Task   string
}

// CheckTasks looks at the names of tasks in a request.
func CheckTasks(jobs []string, tasks map[string]string) error {
	for job, task := range tasks {
		if !slices.Contains(jobs, job) {
			return &assignment.FieldError{Field: "tasks", Value: assignment.Clip(job, 80), Allowed: "names of tasks in the session's jobs"}
		}
		if err := CheckTask(task); err != nil {
			return err
		}
	}
	return nil
}

// CheckTask looks at the name of a task, which need not be given.
func CheckTask(name string) error {
	if name != "" && !assignment.ValidToken(name, assignment.MaxNameLen) {
		return &assignment.FieldError{Field: "task", Value: assignment.Clip(name, 80), Allowed: "1 to 253 printable ASCII characters without space or slash"}
	}
	return nil
}
