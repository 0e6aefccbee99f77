package serve

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/lease/internal/rpc"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// repeat is how often a watch says what it has said already, so that the other
// end knows that it lives.
const repeat = 2 * time.Second

// Register serves LeaseService to slicelets.
func (s *Store) Register(r grpc.ServiceRegistrar) {
	slicerv1.RegisterLeaseServiceServer(r, &service{s: s})
}

type service struct {
	slicerv1.UnimplementedLeaseServiceServer
	s *Store
}

// holder is whom a call comes from that carries a session.
type holder struct {
	id    uint64 // of the session
	from  rpc.Origin
	tasks map[string]string
}

func (v *service) find(ctx context.Context, t []byte) (holder, error) {
	return v.findFrom(rpc.OriginOf(ctx, v.s.rights), t)
}

func (v *service) findFrom(from rpc.Origin, t []byte) (holder, error) {
	v.s.mu.Lock()
	defer v.s.mu.Unlock()
	x, err := v.s.remote.find(t, from)
	if err != nil {
		return holder{}, err
	}
	return holder{x.id, from, maps.Clone(x.tasks)}, nil
}

// owner is find for calls that need the right to own a job.
func (v *service) owner(ctx context.Context, t []byte, job string) (holder, error) {
	x, err := v.find(ctx, t)
	if err == nil {
		err = v.s.own(ctx, x.from, job, x.tasks[job])
	}
	return x, err
}

func (v *service) OpenSession(ctx context.Context, req *slicerv1.OpenSessionRequest) (*slicerv1.OpenSessionResponse, error) {
	const most = int64(lease.MaxTTL / time.Millisecond)
	ttl := time.Duration(min(max(req.GetTtlMs(), 0), most+1)) * time.Millisecond
	from := rpc.OriginOf(ctx, v.s.rights)
	if err := rpc.CheckTasks(req.GetJobs(), req.GetTasks()); err != nil {
		return nil, explain(err)
	}
	o, err := v.s.open(ctx, ttl, req.GetJobs(), &opening{from, req.GetTasks()})
	if err != nil {
		return nil, explain(err)
	}
	return &slicerv1.OpenSessionResponse{Session: o.ticket[:], TtlMs: o.ttl.Milliseconds(), Jobs: o.jobs}, nil
}

func (v *service) JoinJob(ctx context.Context, req *slicerv1.JoinJobRequest) (*slicerv1.JoinJobResponse, error) {
	job, task := req.GetJob(), req.GetTask()
	if err := errors.Join(assignment.ValidateJobName(job), rpc.CheckTask(task)); err != nil {
		return nil, explain(err)
	}
	x, err := v.find(ctx, req.GetSession())
	if task == "" {
		task = x.tasks[job]
	}
	if err == nil {
		err = v.s.own(ctx, x.from, job, task)
	}
	if err == nil {
		err = v.s.join(ctx, x.id, job)
	}
	if err != nil {
		return nil, explain(err)
	}
	v.s.mu.Lock()
	defer v.s.mu.Unlock()
	v.s.remote.name(x.id, job, task)
	return &slicerv1.JoinJobResponse{}, nil
}

func (v *service) RenewSession(ctx context.Context, req *slicerv1.RenewSessionRequest) (*slicerv1.RenewSessionResponse, error) {
	_, resp, err := v.renew(ctx, rpc.OriginOf(ctx, v.s.rights), req)
	return resp, err
}

// RenewSessions reads off the connection once where it comes from.
func (v *service) RenewSessions(stream grpc.BidiStreamingServer[slicerv1.RenewSessionsRequest, slicerv1.RenewSessionsResponse]) error {
	from := rpc.OriginOf(stream.Context(), v.s.rights)
	return rpc.Renewals(stream, v.s.done.Done(), func(ctx context.Context, req *slicerv1.RenewSessionRequest) (*slicerv1.RenewSessionResponse, int64, error) {
		id, resp, err := v.renew(ctx, from, req)
		if err != nil {
			return nil, 0, err
		}
		return resp, v.s.told(id), nil
	})
}

func (v *service) renew(ctx context.Context, from rpc.Origin, req *slicerv1.RenewSessionRequest) (id uint64, resp *slicerv1.RenewSessionResponse, err error) {
	x, err := v.findFrom(from, req.GetSession())
	if err != nil {
		return 0, nil, explain(err)
	}
	granted, err := v.s.renew(ctx, x.id, func(job string, t Terms) error { return v.s.ownStill(x, job, t) })
	if err != nil {
		return 0, nil, explain(err)
	}
	return x.id, &slicerv1.RenewSessionResponse{TtlMs: granted.Milliseconds()}, nil
}

func (v *service) CloseSession(ctx context.Context, req *slicerv1.CloseSessionRequest) (*slicerv1.CloseSessionResponse, error) {
	x, err := v.find(ctx, req.GetSession())
	if err != nil {
		return nil, explain(err)
	}
	v.s.end(x.id)
	return &slicerv1.CloseSessionResponse{}, nil
}

func (v *service) AcquireClaim(ctx context.Context, req *slicerv1.AcquireClaimRequest) (*slicerv1.AcquireClaimResponse, error) {
	c, err := rpc.Claim(req.GetJob(), req.GetClaim())
	if err != nil {
		return nil, explain(err)
	}
	x, err := v.owner(ctx, req.GetSession(), req.GetJob())
	if err != nil {
		return nil, explain(err)
	}
	seen, ok, err := v.s.acquire(x.id, req.GetJob(), c)
	if err != nil {
		return nil, explain(err)
	}
	return &slicerv1.AcquireClaimResponse{Acquired: ok, Records: rpc.Records(seen)}, nil
}

func (v *service) ReleaseClaim(ctx context.Context, req *slicerv1.ReleaseClaimRequest) (*slicerv1.ReleaseClaimResponse, error) {
	c, err := rpc.Claim(req.GetJob(), req.GetClaim())
	if err != nil {
		return nil, explain(err)
	}
	x, err := v.find(ctx, req.GetSession())
	if err == nil {
		err = v.s.release(x.id, req.GetJob(), c)
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
	if _, err := v.owner(stream.Context(), req.GetSession(), req.GetJob()); err != nil {
		return explain(err)
	}
	x, told, watching, end, err := v.watch(stream.Context(), req.GetSession(), req.GetJob())
	if err != nil {
		return explain(err)
	}
	defer end()
	w, due := &watcher{s: v.s, job: req.GetJob()}, repeat
	for {
		ctx, cancel := context.WithTimeout(watching, due)
		seen, err := w.Next(ctx)
		cancel()
		switch {
		case watching.Err() != nil:
			return explain(context.Cause(watching))
		case errors.Is(err, context.DeadlineExceeded):
			if due = v.s.repeated(x); due > 0 {
				continue
			}
			seen = w.last
		case err != nil:
			return explain(err)
		}
		if err := stream.Send(&slicerv1.WatchRecordsResponse{Records: rpc.Records(seen)}); err != nil {
			return err
		}
		v.s.tell(told, seen)
		due = repeat
	}
}

// watch begins a session's watch of a job. What it returns ends with the session.
func (v *service) watch(ctx context.Context, t []byte, job string) (x *remoteSession, w *watch, watching context.Context, stop func(), err error) {
	from, s := rpc.OriginOf(ctx, v.s.rights), v.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if x, err = s.remote.find(t, from); err != nil {
		return nil, nil, nil, nil, err
	}
	if _, named := s.table.Asked(x.id); named[job] == 0 {
		return nil, nil, nil, nil, &assignment.FieldError{Field: "job", Value: job, Allowed: "one that the session takes part in"}
	}
	watching, end := context.WithCancelCause(ctx)
	if w, err = s.remote.watch(x, job, from.Connection, end); err != nil {
		end(nil)
		return nil, nil, nil, nil, err
	}
	return x, w, watching, func() {
		end(nil)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.remote.unwatch(x, job, from.Connection, w)
	}, nil
}

// explain gives an error its status.
func explain(err error) error {
	var field *assignment.FieldError
	switch {
	case status.Code(err) == codes.PermissionDenied:
		return err
	case errors.As(err, &field):
		return status.Error(codes.InvalidArgument, err.Error())
	case errors.Is(err, lease.ErrLost):
		return status.Error(codes.NotFound, err.Error())
	case errors.Is(err, errReplaced):
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
