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
	_, resp, err := v.renew(ctx, rpc.OriginOf(ctx, v.f.cfg.Rights), req)
	return resp, err
}

// RenewSessions reads off the connection once where it comes from.
func (v *service) RenewSessions(stream grpc.BidiStreamingServer[slicerv1.RenewSessionsRequest, slicerv1.RenewSessionsResponse]) error {
	o := rpc.OriginOf(stream.Context(), v.f.cfg.Rights)
	return rpc.Renewals(stream, v.f.ctx.Done(), func(ctx context.Context, req *slicerv1.RenewSessionRequest) (*slicerv1.RenewSessionResponse, int64, error) {
		x, resp, err := v.renew(ctx, o, req)
		if err != nil {
			return nil, 0, err
		}
		return resp, v.f.told(x), nil
	})
}

func (v *service) renew(ctx context.Context, o rpc.Origin, req *slicerv1.RenewSessionRequest) (*session, *slicerv1.RenewSessionResponse, error) {
	jobs, tasks, err := memory(req)
	if err != nil {
		return nil, nil, explain(err)
	}
	r, err := v.f.renew(ctx, o, req.GetSession(), req.GetRevision(), jobs, tasks)
	if err != nil {
		return nil, nil, explain(err)
	}
	return r.session, &slicerv1.RenewSessionResponse{TtlMs: r.ttl.Milliseconds(), Revision: r.revision}, nil
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
