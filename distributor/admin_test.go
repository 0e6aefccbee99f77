package distributor

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

func TestAdminIsPassedOn(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		w := newWorld(t, n, assigner1, assigner2)
		c := slicerv1.NewAdminServiceClient(w.cc)
		_, err := c.ListJobs(t.Context(), &slicerv1.ListJobsRequest{})
		if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "no assigner is connected") {
			t.Errorf("no assigner: %v", err)
		}
		f1, f2 := n.assigner(t, "a1", assigner1), n.assigner(t, "a2", assigner2)
		time.Sleep(2 * retryMax)
		f1.prefer(1, "a2")
		f2.prefer(1, "a2")
		f1.hear()
		fail := func(f *fakeAssigner, err error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.admin = func(string) error { return err }
		}
		calls := func(f *fakeAssigner) (all []string) {
			f.mu.Lock()
			defer f.mu.Unlock()
			all, f.calls = f.calls, nil
			return all
		}
		expect := func(what string, one, two []string) {
			t.Helper()
			if a, b := calls(f1), calls(f2); !slices.Equal(a, one) || !slices.Equal(b, two) {
				t.Errorf("%s: a1 was asked %v, a2 %v", what, a, b)
			}
		}
		in, err := c.InspectJob(t.Context(), &slicerv1.InspectJobRequest{Job: testJob})
		if err != nil || in.AssignerId != "a2" {
			t.Errorf("inspect: %v, %v", in, err)
		}
		dr, err := c.DrainTask(t.Context(), &slicerv1.DrainTaskRequest{Job: testJob, Task: "t"})
		if err != nil || dr.Generation != 9 {
			t.Errorf("drain: %v, %v", dr, err)
		}
		expect("the preferred one is asked", nil, []string{"inspect", "drain"})
		put, err := c.PutJob(t.Context(), &slicerv1.PutJobRequest{Config: &slicerv1.JobConfig{Name: "other"}})
		if err != nil || put.Job.Version != 7 || put.Job.Config.Name != "other" {
			t.Errorf("put: %v, %v", put, err)
		}
		expect("one is asked", []string{"put"}, nil)
		fail(f1, status.Error(codes.Unavailable, "the store is away"))
		if _, err := c.ListJobs(t.Context(), &slicerv1.ListJobsRequest{}); err != nil {
			t.Errorf("list: %v", err)
		}
		expect("the next one is asked", []string{"list"}, []string{"list"})
		fail(f2, status.Error(codes.Unavailable, "the store is away"))
		_, err = c.InspectJob(t.Context(), &slicerv1.InspectJobRequest{Job: testJob})
		if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "the store is away") {
			t.Errorf("all unavailable: %v", err)
		}
		calls(f1)
		calls(f2)
		fail(f2, status.Error(codes.InvalidArgument, "max_replicas: 0"))
		if _, err = c.DrainTask(t.Context(), &slicerv1.DrainTaskRequest{Job: testJob}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("refused: %v", err)
		}
		expect("a refusal is final", nil, []string{"drain"})
		// Why the first could not is told, also when the next does not answer in time.
		fail(f2, status.Error(codes.Unavailable, "the store is full"))
		fail(f1, status.Error(codes.DeadlineExceeded, "")) // which waits for the deadline
		soon, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		_, err = c.DrainTask(soon, &slicerv1.DrainTaskRequest{Job: testJob})
		if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "the store is full") || soon.Err() != nil {
			t.Errorf("the first could not: %v, and the caller's time: %v", err, soon.Err())
		}
		cancel()
		// Deadlines are the caller's, but for the time that an answer needs.
		fail(f2, status.Error(codes.DeadlineExceeded, ""))
		ctx, cancel := context.WithTimeout(t.Context(), 2*adminWithin)
		defer cancel()
		began := time.Now()
		if _, err = c.DrainTask(ctx, &slicerv1.DrainTaskRequest{Job: testJob}); status.Code(err) != codes.DeadlineExceeded || time.Since(began) < 2*adminWithin-answerMargin {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		began = time.Now()
		if _, err = c.DrainTask(t.Context(), &slicerv1.DrainTaskRequest{Job: testJob}); status.Code(err) != codes.DeadlineExceeded || time.Since(began) > adminWithin+time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		// Methods that an assigner does not have are its to refuse.
		if _, err = c.GetJob(t.Context(), &slicerv1.GetJobRequest{Name: "x"}); status.Code(err) != codes.Unimplemented {
			t.Errorf("get: %v", err)
		}
		if _, err = c.DeleteJob(t.Context(), &slicerv1.DeleteJobRequest{Name: "x"}); status.Code(err) != codes.Unimplemented {
			t.Errorf("delete: %v", err)
		}
	})
}
