package front

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/lease"
	etcdlease "github.com/slicer-project/slicer/lease/etcd"
	"github.com/slicer-project/slicer/lease/internal/rpc"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// repeat is how often a watch says what it has said already, so that the other
// end knows that it lives.
const repeat = 5 * time.Second

type service struct {
	slicerv1.UnimplementedLeaseServiceServer
	f *Front
}

func (v *service) OpenSession(ctx context.Context, req *slicerv1.OpenSessionRequest) (*slicerv1.OpenSessionResponse, error) {
	const most = int64(lease.MaxTTL / time.Millisecond)
	ttl := time.Duration(min(max(req.GetTtlMs(), 0), most+1)) * time.Millisecond
	o, err := v.f.openSession(ctx, rpc.OriginOf(ctx, v.f.cfg.Rights), ttl, req.GetJobs(), req.GetTasks())
	if err != nil {
		return nil, explain(err)
	}
	return &slicerv1.OpenSessionResponse{Session: o.ticket[:], TtlMs: o.lease.TTL().Milliseconds(), Jobs: o.jobs, Revision: o.revision}, nil
}

func (v *service) JoinJob(ctx context.Context, req *slicerv1.JoinJobRequest) (*slicerv1.JoinJobResponse, error) {
	o := rpc.OriginOf(ctx, v.f.cfg.Rights)
	x, err := v.f.find(req.GetSession(), o)
	if err == nil {
		err = v.f.join(ctx, o, x, req.GetJob(), req.GetTask())
	}
	if err != nil {
		return nil, explain(err)
	}
	return &slicerv1.JoinJobResponse{}, nil
}

func (v *service) RenewSession(ctx context.Context, req *slicerv1.RenewSessionRequest) (*slicerv1.RenewSessionResponse, error) {
	jobs, tasks, err := memory(req)
	if err != nil {
		return nil, explain(err)
	}
	r, err := v.f.renew(ctx, rpc.OriginOf(ctx, v.f.cfg.Rights), req.GetSession(), req.GetRevision(), jobs, tasks)
	if err != nil {
		return nil, explain(err)
	}
	return &slicerv1.RenewSessionResponse{TtlMs: r.ttl.Milliseconds(), Revision: r.revision}, nil
}

func (v *service) CloseSession(ctx context.Context, req *slicerv1.CloseSessionRequest) (*slicerv1.CloseSessionResponse, error) {
	x, err := v.f.find(req.GetSession(), rpc.OriginOf(ctx, v.f.cfg.Rights))
	if err == nil {
		if err = x.lease.Close(ctx); err == nil {
			v.f.drop(x, lease.ErrLost)
		}
	}
	if err != nil {
		return nil, explain(err)
	}
	return &slicerv1.CloseSessionResponse{}, nil
}

func (v *service) AcquireClaim(ctx context.Context, req *slicerv1.AcquireClaimRequest) (*slicerv1.AcquireClaimResponse, error) {
	c, err := rpc.Claim(req.GetJob(), req.GetClaim())
	if err != nil {
		return nil, explain(err)
	}
	o := rpc.OriginOf(ctx, v.f.cfg.Rights)
	x, err := v.f.find(req.GetSession(), o)
	if err != nil {
		return nil, explain(err)
	}
	a, err := v.f.acquire(ctx, o, x, req.GetJob(), c)
	if err != nil {
		return nil, explain(err)
	}
	return &slicerv1.AcquireClaimResponse{Acquired: a.OK, Records: records(a.Records), Created: a.Created}, nil
}

func (v *service) ReleaseClaim(ctx context.Context, req *slicerv1.ReleaseClaimRequest) (*slicerv1.ReleaseClaimResponse, error) {
	c, err := rpc.Claim(req.GetJob(), req.GetClaim())
	if err != nil {
		return nil, explain(err)
	}
	x, err := v.f.find(req.GetSession(), rpc.OriginOf(ctx, v.f.cfg.Rights))
	if err == nil {
		err = v.f.release(ctx, x, req.GetJob(), c)
	}
	if err != nil {
		return nil, explain(err)
	}
	return &slicerv1.ReleaseClaimResponse{}, nil
}

func (v *service) WatchRecords(req *slicerv1.WatchRecordsRequest, stream grpc.ServerStreamingServer[slicerv1.WatchRecordsResponse]) error {
	if err := assignment.ValidateJobName(req.GetJob()); err != nil {
		return explain(err)
	}
	watching, j, end, err := v.watch(stream.Context(), req.GetSession(), req.GetJob())
	if err != nil {
		return explain(err)
	}
	defer end()
	timer := time.NewTimer(repeat)
	defer timer.Stop()
	var told etcdlease.Records
	for begun, due := false, false; ; {
		r, fresh, changed := j.look()
		// Records that are not watched just now are not told again: the other end finds
		// out that it hears nothing.
		if fresh && (due || !begun || r != told) {
			if err := stream.Send(&slicerv1.WatchRecordsResponse{Records: records(r)}); err != nil {
				return err
			}
			told, begun, due = r, true, false
			timer.Reset(repeat)
		}
		select {
		case <-changed:
		case <-timer.C:
			due = true
		case <-watching.Done():
			return explain(context.Cause(watching))
		}
	}
}

// watch begins a session's watch of a job. What it returns ends with the session, and
// with the front.
func (v *service) watch(ctx context.Context, t []byte, name string) (context.Context, *job, func(), error) {
	o, f := rpc.OriginOf(ctx, v.f.cfg.Rights), v.f
	x, err := f.find(t, o)
	if err != nil {
		return nil, nil, nil, err
	}
	p, err := f.takesPart(x, name)
	if err == nil {
		err = f.own(ctx, o, name, f.taskOf(x, name))
	}
	if err != nil {
		return nil, nil, nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.closed:
		return nil, nil, nil, errClosed
	case f.byName[x.ticket] != x:
		return nil, nil, nil, errUnknownHere
	case f.limits.watches[o.Connection] >= MaxConnectionWatches:
		return nil, nil, nil, errFull
	}
	f.limits.watches[o.Connection]++
	if p.watch != nil {
		p.watch.end(errReplaced)
	}
	watching, end := context.WithCancelCause(ctx)
	closing := context.AfterFunc(f.ctx, func() { end(errClosed) })
	w := &watch{end}
	p.watch = w
	return watching, p.job, func() {
		closing()
		end(nil)
		f.mu.Lock()
		defer f.mu.Unlock()
		down(f.limits.watches, o.Connection)
		if p.watch == w {
			p.watch = nil
		}
	}, nil
}

func records(r etcdlease.Records) *slicerv1.LeaseRecords {
	out := rpc.Records(r.Seen)
	out.Fingerprint = r.Fingerprint
	return out
}

// memory decodes and checks what a session has been told and holds, and as which tasks.
func memory(req *slicerv1.RenewSessionRequest) ([]etcdlease.Memory, map[string]string, error) {
	tasks := map[string]string{}
	jobs := make([]etcdlease.Memory, 0, min(len(req.GetJobs()), lease.MaxJobs+1))
	for _, j := range req.GetJobs()[:min(len(req.GetJobs()), lease.MaxJobs+1)] {
		jobs = append(jobs, etcdlease.Memory{Job: j.GetJob(), Revision: j.GetRevision(), Fingerprint: j.GetFingerprint(), Guard: holder(j.GetGuard()), Bridge: holder(j.GetBridge())})
		if err := rpc.CheckTask(j.GetTask()); err != nil {
			return nil, nil, err
		}
		tasks[j.GetJob()] = j.GetTask()
	}
	return jobs, tasks, etcdlease.CheckMemory(req.GetRevision(), jobs)
}

func holder(h *slicerv1.Holder) etcdlease.Holding {
	return etcdlease.Holding{
		Claim:   lease.Claim{From: assignment.Generation(h.GetClaim().GetFrom()), To: assignment.Generation(h.GetClaim().GetTo())},
		Created: h.GetCreated(),
	}
}

// explain gives an error its status.
func explain(err error) error {
	var field *assignment.FieldError
	switch {
	case refused(err):
		return err
	case errors.As(err, &field):
		return status.Error(codes.InvalidArgument, err.Error())
	case errors.Is(err, lease.ErrWentBack):
		return status.Error(codes.DataLoss, err.Error())
	case errors.Is(err, lease.ErrLost):
		return status.Error(codes.NotFound, err.Error())
	case errors.Is(err, errUnknownHere), errors.Is(err, errReplaced):
		return status.Error(codes.Aborted, err.Error())
	case errors.Is(err, errFull):
		return status.Error(codes.ResourceExhausted, err.Error())
	case errors.Is(err, lease.ErrSuspended):
		return status.Error(codes.FailedPrecondition, err.Error())
	case errors.Is(err, lease.ErrUnavailable):
		return status.Error(codes.Unavailable, err.Error())
	}
	return status.FromContextError(err).Err()
}
