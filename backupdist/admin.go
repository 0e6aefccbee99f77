package backupdist

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// adminService answers what can be read from the store, and says of all else that
// it is for a Distributor.
type adminService struct {
	slicerv1.UnimplementedAdminServiceServer
	s *Server
}

func (svc adminService) GetJob(ctx context.Context, r *slicerv1.GetJobRequest) (*slicerv1.GetJobResponse, error) {
	if err := checkName(r.GetName(), 0); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	j, err := svc.s.store.GetJob(ctx, r.GetName())
	if err != nil {
		return nil, statusOf(err)
	}
	return &slicerv1.GetJobResponse{Job: jobToProto(j)}, nil
}

func (svc adminService) ListJobs(ctx context.Context, _ *slicerv1.ListJobsRequest) (*slicerv1.ListJobsResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	jobs, err := svc.s.store.ListJobs(ctx)
	if err != nil {
		return nil, statusOf(err)
	}
	var resp slicerv1.ListJobsResponse
	for _, j := range jobs {
		resp.Jobs = append(resp.Jobs, jobToProto(j))
	}
	return &resp, nil
}

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
