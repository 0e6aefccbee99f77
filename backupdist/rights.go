package backupdist

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/access"
	"github.com/slicer-project/slicer/assignment/access/enforce"
	"github.com/slicer-project/slicer/assignment/limiter"
	"github.com/slicer-project/slicer/assignment/store"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// petition is what the peer of a call asks to do with a job.
type petition struct {
	rights *enforce.Rights
	caller enforce.Caller
	verb   assignment.Verb
	task   string // with Own

	// What it was granted by last, so that it is checked once for each; and what is closed
	// when there is another policy.
	granted bool
	policy  *access.Policy
	access  assignment.Access
	changed <-chan struct{}
}

func (s *Server) asks(ctx context.Context, v assignment.Verb) *petition {
	return &petition{rights: s.rights, caller: s.rights.Peer(ctx), verb: v}
}

// petitionOf is what a subscriber's hello asks for.
func (s *Server) petitionOf(ctx context.Context, h *slicerv1.Hello) *petition {
	p := s.asks(ctx, assignment.Watch)
	if h.GetRole() == slicerv1.Role_ROLE_SLICELET {
		p.verb, p.task = assignment.Own, h.GetTask().GetName()
	}
	return p
}

// check returns PERMISSION_DENIED if the policy in force, and what the job's config says, do
// not allow it. What there is not has the zero Access.
func (p *petition) check(job string, a assignment.Access) error {
	return p.rights.Check(p.caller, access.Question{Verb: p.verb, Job: job, Access: a, Task: p.task})
}

// review is check for a state of the job, as long as it says something; and only if it, or
// the policy, has changed since.
func (p *petition) review(job string, st state) error {
	policy, changed := p.rights.Policy()
	p.changed = changed
	if !st.Known {
		return p.damaged(job, st.Err)
	}
	if p.granted && policy == p.policy && st.Config.Access == p.access {
		return nil
	}
	p.granted, p.policy, p.access = true, policy, st.Config.Access
	return p.check(job, st.Config.Access)
}

// may is check that leaves no trace.
func (p *petition) may(job string, a assignment.Access) bool {
	_, ok := p.rights.May(p.caller, access.Question{Verb: p.verb, Job: job, Access: a, Task: p.task})
	return ok
}

// damaged refuses, if a record cannot be read because it is damaged, one who may not have
// what there is by default: as if there were no such job, since the damage says that there
// is.
func (p *petition) damaged(job string, why error) error {
	if !errors.Is(why, store.ErrCorrupt) {
		return nil
	}
	return p.check(job, assignment.Access{})
}

// hopeless reports whether the petition is refused whatever the store answers at last.
func (p *petition) hopeless(job string, st state) bool {
	return !st.Known && errors.Is(st.Err, store.ErrCorrupt) && !p.may(job, assignment.Access{})
}

// unread is the status for a job of which it is not known what its config says: why only
// for one who may have it by default.
func (p *petition) unread(job string, why error) error {
	if denied := p.damaged(job, why); denied != nil {
		return denied
	}
	if why == nil || !p.may(job, assignment.Access{}) {
		return status.Errorf(codes.Unavailable, "job %q: the store has not answered yet", job)
	}
	return statusOf(why)
}

// acquireFor is acquire for the peer of a call, whose names of jobs that no store has are
// limited. One that may not have what there is by default does not learn which are.
func (s *Server) acquireFor(ctx context.Context, name string, p *petition) (*job, error) {
	j, err := s.acquire(name, limiter.KeyOfContext(ctx))
	if status.Code(err) != codes.ResourceExhausted {
		return j, err
	}
	limiter.Refuse(ctx)
	if denied := p.check(name, assignment.Access{}); denied != nil {
		return nil, denied
	}
	return nil, err
}
