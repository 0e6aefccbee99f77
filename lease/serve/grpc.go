package serve

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/lease"
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

func (v *service) session(id uint64) *session { return &session{s: v.s, id: id} }

func (v *service) OpenSession(ctx context.Context, req *slicerv1.OpenSessionRequest) (*slicerv1.OpenSessionResponse, error) {
	const most = int64(lease.MaxTTL / time.Millisecond)
	ttl := time.Duration(min(max(req.GetTtlMs(), 0), most+1)) * time.Millisecond
	n, err := v.s.open(ctx, ttl)
	if err != nil {
		return nil, explain(err)
	}
	return &slicerv1.OpenSessionResponse{Session: n.id}, nil
}

func (v *service) RenewSession(ctx context.Context, req *slicerv1.RenewSessionRequest) (*slicerv1.RenewSessionResponse, error) {
	if err := v.session(req.GetSession()).KeepAlive(ctx); err != nil {
		return nil, explain(err)
	}
	return &slicerv1.RenewSessionResponse{}, nil
}

func (v *service) CloseSession(ctx context.Context, req *slicerv1.CloseSessionRequest) (*slicerv1.CloseSessionResponse, error) {
	if err := v.session(req.GetSession()).Close(ctx); err != nil {
		return nil, explain(err)
	}
	return &slicerv1.CloseSessionResponse{}, nil
}

func (v *service) AcquireClaim(ctx context.Context, req *slicerv1.AcquireClaimRequest) (*slicerv1.AcquireClaimResponse, error) {
	c, err := claim(req.GetJob(), req.GetClaim())
	if err != nil {
		return nil, explain(err)
	}
	seen, ok, err := v.session(req.GetSession()).Acquire(ctx, req.GetJob(), c)
	if err != nil {
		return nil, explain(err)
	}
	return &slicerv1.AcquireClaimResponse{Acquired: ok, Records: records(seen)}, nil
}

func (v *service) ReleaseClaim(ctx context.Context, req *slicerv1.ReleaseClaimRequest) (*slicerv1.ReleaseClaimResponse, error) {
	c, err := claim(req.GetJob(), req.GetClaim())
	if err != nil {
		return nil, explain(err)
	}
	if err := v.session(req.GetSession()).Release(ctx, req.GetJob(), c); err != nil {
		return nil, explain(err)
	}
	return &slicerv1.ReleaseClaimResponse{}, nil
}

func (v *service) WatchRecords(req *slicerv1.WatchRecordsRequest, stream grpc.ServerStreamingServer[slicerv1.WatchRecordsResponse]) error {
	if err := assignment.ValidateJobName(req.GetJob()); err != nil {
		return explain(err)
	}
	w := &watcher{s: v.s, job: req.GetJob()}
	for {
		ctx, cancel := context.WithTimeout(stream.Context(), repeat)
		seen, err := w.Next(ctx)
		cancel()
		switch {
		case stream.Context().Err() != nil:
			return explain(stream.Context().Err())
		case errors.Is(err, context.DeadlineExceeded):
			seen = w.last
		case err != nil:
			return explain(err)
		}
		if err := stream.Send(&slicerv1.WatchRecordsResponse{Records: records(seen)}); err != nil {
			return err
		}
	}
}

func claim(job string, c *slicerv1.Claim) (lease.Claim, error) {
	if err := assignment.ValidateJobName(job); err != nil {
		return lease.Claim{}, err
	}
	from, to := assignment.Generation(c.GetFrom()), assignment.Generation(c.GetTo())
	if from < 0 || to <= from || to > assignment.MaxGeneration {
		return lease.Claim{}, &assignment.FieldError{Field: "claim", Value: fmt.Sprintf("%d to %d", from, to), Allowed: "generations, to after from"}
	}
	return lease.Claim{From: from, To: to}, nil
}

func records(s lease.Seen) *slicerv1.LeaseRecords {
	return &slicerv1.LeaseRecords{
		Revision: s.Revision,
		Guard:    int64(s.Guard.Generation), GuardOpen: s.Guard.Open,
		BridgeFrom: int64(s.Bridge.From), BridgeTo: int64(s.Bridge.To), BridgeOpen: s.Bridge.Open,
	}
}

// explain gives an error its status.
func explain(err error) error {
	var field *assignment.FieldError
	switch {
	case errors.As(err, &field):
		return status.Error(codes.InvalidArgument, err.Error())
	case errors.Is(err, lease.ErrLost):
		return status.Error(codes.NotFound, err.Error())
	case errors.Is(err, lease.ErrSuspended):
		return status.Error(codes.FailedPrecondition, err.Error())
	case errors.Is(err, lease.ErrUnavailable):
		return status.Error(codes.Unavailable, err.Error())
	}
	return status.FromContextError(err).Err()
}
