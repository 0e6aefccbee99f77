package distributor

import (
	"context"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/access"
	"github.com/slicer-project/slicer/assignment/access/enforce"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// adminWithin bounds an administrative call whose caller has set no deadline.
const adminWithin = 30 * time.Second

// answerMargin is how long before the caller's deadline, at most, a call is given up, so that
// why there is no answer arrives.
const answerMargin = 200 * time.Millisecond

// adminService passes what operators ask on to an assigner: the one that is
// preferred for the job where it is about a job's tasks, otherwise any; the next
// one if that is unavailable.
type adminService struct {
	slicerv1.UnimplementedAdminServiceServer
	d *Distributor
}

func (s adminService) PutJob(ctx context.Context, r *slicerv1.PutJobRequest) (*slicerv1.PutJobResponse, error) {
	r.Peer = callerOf(ctx, s.d.cfg.Rights).From()
	return passOn(ctx, s.d, "PutJob", r.GetConfig().GetName(), r, slicerv1.AdminServiceClient.PutJob)
}

func (s adminService) GetJob(ctx context.Context, r *slicerv1.GetJobRequest) (*slicerv1.GetJobResponse, error) {
	return passOn(ctx, s.d, "GetJob", r.GetName(), r, slicerv1.AdminServiceClient.GetJob)
}

func (s adminService) ListJobs(ctx context.Context, r *slicerv1.ListJobsRequest) (*slicerv1.ListJobsResponse, error) {
	return passOn(ctx, s.d, "ListJobs", "", r, slicerv1.AdminServiceClient.ListJobs)
}

func (s adminService) DeleteJob(ctx context.Context, r *slicerv1.DeleteJobRequest) (*slicerv1.DeleteJobResponse, error) {
	r.Peer = callerOf(ctx, s.d.cfg.Rights).From()
	return passOn(ctx, s.d, "DeleteJob", r.GetName(), r, slicerv1.AdminServiceClient.DeleteJob)
}

func (s adminService) DrainTask(ctx context.Context, r *slicerv1.DrainTaskRequest) (*slicerv1.DrainTaskResponse, error) {
	r.Peer = callerOf(ctx, s.d.cfg.Rights).From()
	return passOn(ctx, s.d, "DrainTask", r.GetJob(), r, slicerv1.AdminServiceClient.DrainTask)
}

func (s adminService) GiveOrder(ctx context.Context, r *slicerv1.GiveOrderRequest) (*slicerv1.GiveOrderResponse, error) {
	r.Peer = callerOf(ctx, s.d.cfg.Rights).From()
	return passOn(ctx, s.d, "GiveOrder", r.GetJob(), r, slicerv1.AdminServiceClient.GiveOrder)
}

func (s adminService) GetHistory(ctx context.Context, r *slicerv1.GetHistoryRequest) (*slicerv1.GetHistoryResponse, error) {
	return passOn(ctx, s.d, "GetHistory", r.GetJob(), r, slicerv1.AdminServiceClient.GetHistory)
}

func (s adminService) ExplainKey(ctx context.Context, r *slicerv1.ExplainKeyRequest) (*slicerv1.ExplainKeyResponse, error) {
	return passOn(ctx, s.d, "ExplainKey", r.GetJob(), r, slicerv1.AdminServiceClient.ExplainKey)
}

func (s adminService) CheckAccess(ctx context.Context, r *slicerv1.CheckAccessRequest) (*slicerv1.CheckAccessResponse, error) {
	return passOn(ctx, s.d, "CheckAccess", r.GetJob(), r, slicerv1.AdminServiceClient.CheckAccess)
}

func (s adminService) CheckJob(ctx context.Context, r *slicerv1.CheckJobRequest) (*slicerv1.CheckJobResponse, error) {
	return passOn(ctx, s.d, "CheckJob", r.GetConfig().GetName(), r, slicerv1.AdminServiceClient.CheckJob)
}

// callerOf is who a call is passed on for. Without a policy it is not known which peers pass
// on what others ask: then it is the peer itself, since the assigner, which may have a policy,
// believes what a Distributor says.
func callerOf(ctx context.Context, r *enforce.Rights) enforce.Caller {
	if policy, _ := r.Policy(); policy == nil {
		return r.Peer(ctx)
	}
	return r.Caller(ctx)
}

func (s adminService) InspectJob(ctx context.Context, r *slicerv1.InspectJobRequest) (*slicerv1.InspectJobResponse, error) {
	resp, err := passOn(ctx, s.d, "InspectJob", r.GetJob(), r, slicerv1.AdminServiceClient.InspectJob)
	now := time.Now()
	s.d.addAutosharding(now, r.GetJob(), resp)
	xdsSource{s.d}.add(now, r.GetJob(), resp)
	return resp, err
}

func (s adminService) InspectSlices(ctx context.Context, r *slicerv1.InspectSlicesRequest) (*slicerv1.InspectSlicesResponse, error) {
	return passOn(ctx, s.d, "InspectSlices", r.GetJob(), r, slicerv1.AdminServiceClient.InspectSlices)
}

// ListAssigners is answered here when no assigner can: that is when an operator
// wants to know most. As with an assigner it is for every caller that has an identity, and
// jobs that it may not read are left out.
func (s adminService) ListAssigners(ctx context.Context, r *slicerv1.ListAssignersRequest) (*slicerv1.ListAssignersResponse, error) {
	from := callerOf(ctx, s.d.cfg.Rights)
	if err := s.d.cfg.Rights.CheckNamed(from, "ListAssigners"); err != nil {
		return nil, err
	}
	resp, err := passOn(ctx, s.d, "ListAssigners", "", r, slicerv1.AdminServiceClient.ListAssigners)
	if c := status.Code(err); (c == codes.Unavailable || c == codes.Unimplemented) && s.d.handlers.Life().Err() == nil {
		return s.d.assigners(time.Now(), func(job string) bool { return s.d.mayRead(from, job) }), nil
	}
	return resp, err
}

// mayRead reports whether a list for the caller has that job.
func (d *Distributor) mayRead(c enforce.Caller, name string) bool {
	var a assignment.Access
	if j := d.lookup(name); j != nil {
		a = j.access()
	}
	_, ok := d.cfg.Rights.May(c, access.Question{Verb: assignment.Read, Job: name, Access: a})
	return ok
}

// passOn asks the assigners in turn until one is not unavailable.
func passOn[Req, Resp any](ctx context.Context, d *Distributor, method, job string, r *Req,
	call func(slicerv1.AdminServiceClient, context.Context, *Req, ...grpc.CallOption) (*Resp, error),
) (resp *Resp, err error) {
	if err := d.handlers.Enter(); err != nil {
		return nil, err
	}
	defer d.handlers.Leave()
	defer func() { d.metrics.proxied.WithLabelValues(method, status.Code(err).String()).Inc() }()
	if _, has := ctx.Deadline(); !has {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, adminWithin)
		defer cancel()
	}
	at, _ := ctx.Deadline()
	ctx, cancel := context.WithDeadline(ctx, at.Add(-min(max(time.Until(at)/20, 0), answerMargin)))
	defer cancel()
	defer context.AfterFunc(d.handlers.Life(), cancel)()
	ctx = enforce.Forward(ctx, callerOf(ctx, d.cfg.Rights))
	err = status.Errorf(codes.Unavailable, "no %s is connected to this distributor", d.cfg.asked())
	why := false // err is an assigner's
	for _, a := range d.answerersFor(job) {
		resp, failed := call(slicerv1.NewAdminServiceClient(a.conn), ctx, r)
		switch code := status.Code(failed); {
		case code == codes.Unavailable:
			err = failed
		case code == codes.DeadlineExceeded && why:
			return nil, err // which says more
		default:
			return resp, failed
		}
		if why = true; ctx.Err() != nil {
			return nil, err
		}
		d.log.Info("unavailable for a call, asking the next", a.kind(), a.ID, "method", method, "error", err)
	}
	return nil, err
}

// answerersFor are the attached assigners, the one preferred for the job first; or, in
// the second tier, the Distributors of the first, each of which knows them.
func (d *Distributor) answerersFor(job string) []*attachment {
	d.mu.Lock()
	defer d.mu.Unlock()
	preferred := d.prefs.Preferred(job)
	all := slices.Collect(maps.Values(d.peers(d.secondTier())))
	slices.SortFunc(all, func(a, b *attachment) int {
		switch {
		case a.ID == preferred || b.ID != preferred && a.ID < b.ID:
			return -1
		case b.ID == preferred || a.ID > b.ID:
			return 1
		}
		return 0
	})
	return all
}
