package assigner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/access"
	"github.com/slicer-project/slicer/assignment/access/enforce"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

func (v adminService) caller(ctx context.Context) enforce.Caller { return v.a.cfg.Rights.Caller(ctx) }

// find looks for a job that the caller may do verb with.
func (v adminService) find(ctx context.Context, c enforce.Caller, verb assignment.Verb, name string) (store.Job, *storeWatch, error) {
	job, home, err := v.a.find(ctx, name)
	if err = v.permit(c, verb, name, job, err); errors.Is(err, store.ErrNotFound) || err == nil {
		return job, home, err
	}
	return store.Job{}, nil, err
}

// permit refuses what the caller may not do with the job that was found, or was not, as err
// says. For a job that does not exist the policy speaks alone. So a caller that has the verb
// for no job that it does not know is refused in the same words whether the job exists; only
// one that the policy lets do it with any job of that name learns that there is none.
func (v adminService) permit(c enforce.Caller, verb assignment.Verb, name string, job store.Job, err error) error {
	if errors.Is(err, store.ErrCorrupt) { // which says that there is such a job
		if denied := v.a.cfg.Rights.Check(c, access.Question{Verb: verb, Job: name}); denied != nil {
			return denied
		}
	}
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	if denied := v.a.cfg.Rights.Check(c, access.Question{Verb: verb, Job: name, Access: job.Config.Access}); denied != nil {
		return denied
	}
	return err
}

// mayRead reports whether a list for the caller has that job.
func (v adminService) mayRead(c enforce.Caller, name string, a assignment.Access) bool {
	_, ok := v.a.cfg.Rights.May(c, access.Question{Verb: assignment.Read, Job: name, Access: a})
	return ok
}

// audit is the log for one line about a change of state that is stored.
func (v adminService) audit(job, action string, s store.Stamp) *slog.Logger {
	return v.a.log.With("audit", "changed", "identity", s.Identity, "peer", s.Peer, "job", job, "action", action, "comment", s.Who, "reason", s.Why)
}

// keepsConfigure refuses a config with which the caller could not configure the job any
// more: a slip of the hand would leave it to administrators alone.
func (v adminService) keepsConfigure(c enforce.Caller, cfg assignment.JobConfig) error {
	if _, ok := v.a.cfg.Rights.May(c, access.Question{Verb: assignment.Configure, Job: cfg.Name, Access: cfg.Access}); ok {
		return nil
	}
	return status.Errorf(codes.FailedPrecondition, "job %s: with this access identity %s could not configure the job any more: "+
		"name it in access.configure, or let an administrator write this config", cfg.Name, c.Identity)
}

// jobBounds is how many jobs an identity may create, and how fast.
type jobBounds struct{ a *Assigner }

// room refuses one more job of an identity that has created as many as the policy
// lets it, or creates them too fast. Until done is called no other is created here, so
// that several at once are counted; with several assigners there may be one more for each, and
// each counts by itself how fast that is. An attempt that fails counts, too: it may be stored.
func (v jobBounds) room(ctx context.Context, c enforce.Caller) (done func(), err error) {
	policy, _ := v.a.cfg.Rights.Policy()
	most := policy.Bounds(c.Identity).Jobs
	if most == 0 || policy.Admin(c.Identity) {
		return func() {}, nil
	}
	select {
	case v.a.creating <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() {
		if err != nil {
			<-v.a.creating
		}
	}()
	if err := v.mayCreate(ctx, c); err != nil {
		return nil, err
	}
	return func() {
		v.a.creations.count(v.a.now().Mono, c.Identity, most)
		<-v.a.creating
	}, nil
}

// mayCreate reports why an identity may not create one more job just now. It counts nothing.
func (v jobBounds) mayCreate(ctx context.Context, c enforce.Caller) error {
	policy, _ := v.a.cfg.Rights.Policy()
	most := policy.Bounds(c.Identity).Jobs
	if most == 0 || policy.Admin(c.Identity) {
		return nil
	}
	n, err := v.created(ctx, c.Identity)
	if err != nil {
		return err
	}
	if n >= most {
		return status.Errorf(codes.ResourceExhausted, "identity %s has created %d jobs, and may have %d: delete some, or let an administrator raise bounds.jobs of the policy for it", c.Identity, n, most)
	}
	if wait := v.a.creations.wait(v.a.now().Mono, c.Identity, most); wait > 0 {
		return status.Errorf(codes.ResourceExhausted, "identity %s has created jobs too fast, those that it has deleted included: %d at once are allowed and %d an hour, the next one in %s: let an administrator raise bounds.jobs of the policy for it",
			c.Identity, creationBurst*most, most, wait.Round(time.Second)+time.Second)
	}
	return nil
}

// created is how many of the jobs in all stores an identity has created.
func (v jobBounds) created(ctx context.Context, id access.Identity) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, findWithin)
	defer cancel()
	for x := range askAll(v.a, func(s *storeWatch) ([]store.Job, error) { return s.backend.ListJobs(ctx) }) {
		if x.err != nil && !errors.Is(x.err, store.ErrCorrupt) {
			err = errors.Join(err, x.failure())
		}
		for _, j := range x.value {
			if j.CreatedBy == string(id) {
				n++
			}
		}
	}
	return n, err
}

// CheckAccess implements AdminService. It tells of the caller itself what trying would tell,
// and of others to those that may read the job. For a job that does not exist the policy
// decides: who may create it, say.
func (v adminService) CheckAccess(ctx context.Context, m *slicerv1.CheckAccessRequest) (*slicerv1.CheckAccessResponse, error) {
	ctx, done, err := v.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	c := v.caller(ctx)
	q, err := questionOf(c, m)
	if err != nil {
		return nil, statusOf(err)
	}
	job, _, err := v.a.find(ctx, m.GetJob())
	if q.Identity != c.Identity {
		err = v.permit(c, assignment.Read, m.GetJob(), job, err)
	}
	policy, _ := v.a.cfg.Rights.Policy()
	none := errors.Is(err, store.ErrNotFound)
	if errors.Is(err, store.ErrCorrupt) && !v.mayRead(c, m.GetJob(), assignment.Access{}) {
		_, ok := policy.May(q)
		none = !ok // the damage would tell that there is such a job
	}
	if err != nil && !none {
		return nil, statusOf(err)
	}
	q.Access = job.Config.Access
	if a := m.GetAccess(); a != nil {
		q.Access = assignment.Access{}
		if proto.Size(a) > 0 {
			if q.Access, err = wire.AccessFromProto(a); err != nil {
				return nil, statusOf(err)
			}
		}
	}
	rule, ok := policy.May(q)
	out := &slicerv1.CheckAccessResponse{Allowed: ok, Identity: string(q.Identity)}
	reads := v.mayRead(c, m.GetJob(), job.Config.Access)
	// One that may neither read jobs without access nor do this with them may not know that
	// there is no such job.
	out.NoJob = none && (reads || m.GetAccess() == nil && ok)
	if policy.Admin(c.Identity) || reads && access.OfJob(rule) {
		out.Rule = rule
	}
	return out, nil
}

func questionOf(c enforce.Caller, m *slicerv1.CheckAccessRequest) (q access.Question, err error) {
	q = access.Question{Identity: c.Identity, Job: m.GetJob(), Task: m.GetTask()}
	if m.GetIdentity() != "" {
		q.Identity = access.Identity(m.GetIdentity())
	}
	if !q.Identity.Valid() {
		return q, &assignment.FieldError{Field: "identity", Value: assignment.Clip(m.GetIdentity(), 80), Allowed: fmt.Sprintf("a SPIFFE id, a DNS name in lower case, or %s", access.Anonymous)}
	}
	if q.Verb, err = assignment.ParseVerb(m.GetVerb()); err != nil {
		return q, err
	}
	if q.Task != "" {
		if q.Verb != assignment.Own {
			return q, &assignment.FieldError{Field: "task", Value: assignment.Clip(q.Task, 80), Allowed: "with verb own alone"}
		}
		err = store.ValidateTaskName(q.Task)
	}
	return q, err
}
