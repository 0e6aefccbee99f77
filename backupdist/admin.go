package backupdist

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/backupdist/protocol"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// adminService answers what can be read from the store, and says of all else that
// it is for a Distributor.
type adminService struct {
	slicerv1.UnsafeAdminServiceServer // so that a new method is answered here, too
	s                                 *Server
}

func (svc adminService) GetJob(ctx context.Context, r *slicerv1.GetJobRequest) (*slicerv1.GetJobResponse, error) {
	if err := protocol.CheckName(r.GetName(), 0); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	if !svc.s.enter() {
		return nil, errClosing
	}
	defer svc.s.wg.Done()
	p := svc.s.asks(ctx, assignment.Read)
	f := svc.s.find(ctx, r.GetName(), nil)
	if f.err != nil {
		return nil, p.unread(r.GetName(), f.err)
	}
	if err := p.check(r.GetName(), f.job.Config.Access); err != nil {
		return nil, err
	}
	if f.source == nil {
		return nil, statusOf(fmt.Errorf("%w: job %s", store.ErrNotFound, r.GetName()))
	}
	return &slicerv1.GetJobResponse{Job: jobToProto(f.job)}, nil
}

func (svc adminService) ListJobs(ctx context.Context, _ *slicerv1.ListJobsRequest) (*slicerv1.ListJobsResponse, error) {
	within := readWithin
	if len(svc.s.sources) > 1 {
		within = listWithin
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	type answer struct {
		src  *source
		jobs []store.Job
		err  error
	}
	s := svc.s
	p := s.asks(ctx, assignment.Read)
	answers := make(chan answer, len(s.sources))
	if !s.enter() {
		return nil, errClosing
	}
	defer s.wg.Done()
	for _, src := range s.sources {
		s.wg.Go(func() {
			jobs, err := src.store.ListJobs(ctx)
			answers <- answer{src, jobs, err}
		})
	}
	var resp slicerv1.ListJobsResponse
	var failed error
	for range s.sources {
		a := <-answers
		switch {
		case errors.Is(a.err, store.ErrCorrupt):
			a.src.log.Error("job left out of a list", "error", a.err)
		case a.err != nil:
			failed = errors.Join(failed, a.src.named(a.err))
			resp.Unanswered = append(resp.Unanswered, a.src.name)
			continue
		}
		for _, j := range a.jobs {
			if !p.may(j.Config.Name, j.Config.Access) {
				continue
			}
			resp.Jobs = append(resp.Jobs, jobToProto(j))
		}
	}
	if len(resp.Unanswered) == len(s.sources) {
		return nil, statusOf(failed)
	}
	slices.Sort(resp.Unanswered)
	slices.SortStableFunc(resp.Jobs, func(x, y *slicerv1.Job) int { return cmp.Compare(x.GetConfig().GetName(), y.GetConfig().GetName()) })
	return &resp, nil
}

// listWithin is how long a list of jobs waits for each of several stores.
const listWithin = 3 * time.Second

func jobToProto(j store.Job) *slicerv1.Job {
	return &slicerv1.Job{Config: wire.JobToProto(j.Config), Version: j.Version}
}

func readOnly(method string) error {
	return status.Errorf(codes.Unimplemented, "%s: a backup distributor only reads the store; ask a distributor", method)
}

func (adminService) PutJob(context.Context, *slicerv1.PutJobRequest) (*slicerv1.PutJobResponse, error) {
	return nil, readOnly("PutJob")
}

func (adminService) DeleteJob(context.Context, *slicerv1.DeleteJobRequest) (*slicerv1.DeleteJobResponse, error) {
	return nil, readOnly("DeleteJob")
}

func (adminService) DrainTask(context.Context, *slicerv1.DrainTaskRequest) (*slicerv1.DrainTaskResponse, error) {
	return nil, readOnly("DrainTask")
}

func (adminService) InspectJob(context.Context, *slicerv1.InspectJobRequest) (*slicerv1.InspectJobResponse, error) {
	return nil, readOnly("InspectJob")
}

func (adminService) GiveOrder(context.Context, *slicerv1.GiveOrderRequest) (*slicerv1.GiveOrderResponse, error) {
	return nil, readOnly("GiveOrder")
}

func (adminService) GetHistory(context.Context, *slicerv1.GetHistoryRequest) (*slicerv1.GetHistoryResponse, error) {
	return nil, readOnly("GetHistory")
}

func (adminService) InspectSlices(context.Context, *slicerv1.InspectSlicesRequest) (*slicerv1.InspectSlicesResponse, error) {
	return nil, readOnly("InspectSlices")
}

func (adminService) ExplainKey(context.Context, *slicerv1.ExplainKeyRequest) (*slicerv1.ExplainKeyResponse, error) {
	return nil, readOnly("ExplainKey")
}

func (adminService) ListAssigners(context.Context, *slicerv1.ListAssignersRequest) (*slicerv1.ListAssignersResponse, error) {
	return nil, readOnly("ListAssigners")
}

func (adminService) CheckJob(context.Context, *slicerv1.CheckJobRequest) (*slicerv1.CheckJobResponse, error) {
	return nil, readOnly("CheckJob")
}

func (adminService) CheckAccess(context.Context, *slicerv1.CheckAccessRequest) (*slicerv1.CheckAccessResponse, error) {
	return nil, readOnly("CheckAccess")
}
