package assigner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assigner/generate"
	"github.com/slicer-project/slicer/assigner/membership"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/trace"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// adminService is what operators speak to, through a Distributor.
type adminService struct {
	slicerv1.UnimplementedAdminServiceServer
	a *Assigner
}

// statusOf chooses the gRPC code of an error.
func statusOf(err error) error {
	code := codes.Internal
	var field *assignment.FieldError
	switch {
	case err == nil:
		return nil
	case status.Code(err) != codes.Unknown:
		return err
	case errors.Is(err, store.ErrUnavailable):
		code = codes.Unavailable // be it that its time was over: the caller learns whose
	case errors.Is(err, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		code = codes.Canceled
	case errors.Is(err, store.ErrNotFound), errors.Is(err, membership.ErrUnknown):
		code = codes.NotFound
	case errors.Is(err, store.ErrConflict):
		code = codes.Aborted
	case errors.Is(err, store.ErrCorrupt):
		code = codes.DataLoss
	case errors.Is(err, store.ErrClosed), errors.Is(err, generate.ErrNotPreferred):
		code = codes.Unavailable
	case errors.Is(err, membership.ErrState):
		code = codes.FailedPrecondition
	case errors.Is(err, wire.ErrMalformed), errors.As(err, &field):
		code = codes.InvalidArgument
	}
	return status.Error(code, err.Error())
}

// begin bounds a call, and refuses it when the assigner is closing.
func (v adminService) begin(ctx context.Context) (context.Context, func(), error) {
	if v.a.ctx.Err() != nil {
		return nil, nil, errClosing
	}
	within := adminWithin
	if at, ok := ctx.Deadline(); ok {
		// Why there is no answer has to arrive before the caller gives up.
		left := time.Until(at)
		within = min(within, left-min(left/10, answerMargin))
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	stop := context.AfterFunc(v.a.ctx, cancel)
	return ctx, func() { stop(); cancel() }, nil
}

// orderSpan begins a span of an order, or of what is done to a job's config.
func orderSpan(ctx context.Context, t trace.Tracer, job, action string) (context.Context, trace.Span) {
	return trace.Start(ctx, t, "slicer.order", slog.String("job", assignment.Clip(job, 80)), slog.String("action", action))
}

// answerMargin is how long before the caller's deadline a call is given up.
const answerMargin = 500 * time.Millisecond

const (
	// findWithin bounds the look for a job, with which most calls begin: less than half
	// of what slicerctl waits, so that another assigner can be asked after it.
	findWithin = 4 * time.Second
	// listWithin is how long a list of jobs waits for each of several stores.
	listWithin = 3 * time.Second
)

func jobToProto(j store.Job) *slicerv1.Job {
	return &slicerv1.Job{Config: wire.JobToProto(j.Config), Version: j.Version, CreatedBy: j.CreatedBy}
}

// find looks for a job in all stores at once: that one of them hangs does not hide a
// job that another one has.
func (a *Assigner) find(ctx context.Context, job string) (store.Job, *storeWatch, error) {
	if err := assignment.ValidateJobName(job); err != nil {
		return store.Job{}, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, findWithin)
	defer cancel()
	var failed error
	for x := range askAll(a, func(s *storeWatch) (store.Job, error) { return s.backend.GetJob(ctx, job) }) {
		switch {
		case x.err == nil:
			return x.value, x.home, nil
		case !errors.Is(x.err, store.ErrNotFound):
			failed = errors.Join(failed, x.failure())
		}
	}
	if failed != nil {
		return store.Job{}, nil, failed
	}
	return store.Job{}, nil, fmt.Errorf("%w: job %s", store.ErrNotFound, job)
}

// GetJob implements AdminService.
func (v adminService) GetJob(ctx context.Context, r *slicerv1.GetJobRequest) (*slicerv1.GetJobResponse, error) {
	ctx, done, err := v.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	c, verb := v.caller(ctx), assignment.Read
	j, _, err := v.a.find(ctx, r.GetName())
	if r.GetToConfigure() && !v.mayRead(c, r.GetName(), j.Config.Access) {
		verb = assignment.Configure
	}
	if err := v.permit(c, verb, r.GetName(), j, err); err != nil {
		return nil, statusOf(err)
	}
	return &slicerv1.GetJobResponse{Job: jobToProto(j)}, nil
}

// ListJobs implements AdminService. A job that the caller may not read is left out. So is
// one whose record is corrupt, which is named in the log; a store that does not answer is
// named in the list.
func (v adminService) ListJobs(ctx context.Context, _ *slicerv1.ListJobsRequest) (*slicerv1.ListJobsResponse, error) {
	ctx, done, err := v.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	within := readWithin
	if len(v.a.stores) > 1 {
		within = listWithin
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var all []store.Job
	var failed error
	out := &slicerv1.ListJobsResponse{}
	for x := range askAll(v.a, func(s *storeWatch) ([]store.Job, error) { return s.backend.ListJobs(ctx) }) {
		switch {
		case errors.Is(x.err, store.ErrCorrupt):
			x.home.log.Error("job left out of a list", "error", x.err)
		case x.err != nil:
			failed = errors.Join(failed, x.failure())
			out.Unanswered = append(out.Unanswered, x.home.label())
			continue
		}
		all = append(all, x.value...)
	}
	if len(out.Unanswered) == len(v.a.stores) {
		return nil, statusOf(failed)
	}
	slices.Sort(out.Unanswered)
	slices.SortStableFunc(all, func(x, y store.Job) int { return cmp.Compare(x.Config.Name, y.Config.Name) })
	c := v.caller(ctx)
	for _, j := range all {
		if v.mayRead(c, j.Config.Name, j.Config.Access) {
			out.Jobs = append(out.Jobs, jobToProto(j))
		}
	}
	return out, nil
}

// DeleteJob implements AdminService. A job with live tasks is not deleted, so
// that a slip of the hand takes no running service its assignment: its tasks are
// stopped first. When it is gone its clients get NOT_FOUND.
func (v adminService) DeleteJob(ctx context.Context, r *slicerv1.DeleteJobRequest) (_ *slicerv1.DeleteJobResponse, err error) {
	ctx, span := orderSpan(ctx, v.a.cfg.Tracer, r.GetName(), "delete job")
	defer func() { span.End(err) }()
	ctx, done, err := v.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	c := v.caller(ctx)
	stamp, err := v.stamp(c, r.GetWho(), r.GetWhy(), r.GetPeer())
	if err != nil {
		return nil, statusOf(err)
	}
	j, home, err := v.find(ctx, c, assignment.Configure, r.GetName())
	if err != nil {
		return nil, statusOf(err)
	}
	live, err := v.a.liveTasks(ctx, j.Config.Name, home)
	if err != nil {
		return nil, statusOf(err)
	}
	if live > 0 {
		return nil, status.Errorf(codes.FailedPrecondition, "job %s has live tasks (%d): stop them first", j.Config.Name, live)
	}
	if err := home.backend.DeleteJobBy(ctx, j.Config.Name, v.entry(j.Config.Name, "delete job", stamp)); err != nil {
		return nil, statusOf(err)
	}
	v.audit(j.Config.Name, "delete job", stamp).Info("job deleted", "version", j.Version)
	v.a.changed(j.Config.Name)
	return &slicerv1.DeleteJobResponse{}, nil
}

// liveTasks is how many tasks of a job are neither dead nor gone: as the members
// are known here, failing that as they are stored.
func (a *Assigner) liveTasks(ctx context.Context, job string, home *storeWatch) (n int, err error) {
	if r := a.lookup(job); r != nil {
		live, known := 0, false
		r.ask(func(c generate.View) { live, known = c.Live(), c.IsPreferred() })
		if known {
			return live, nil
		}
	}
	stored, err := home.backend.Read(ctx, job)
	if errors.Is(err, store.ErrNotFound) {
		return 0, nil
	} else if err != nil {
		return 0, err
	}
	for _, t := range stored.Tasks() {
		if t.State != assignment.TaskDead {
			n++
		}
	}
	return n, nil
}
