package assigner

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

func TestPutJob(t *testing.T) {
	n := start(t, Config{})
	put := func(expect int64, c *slicerv1.JobConfig) (*slicerv1.PutJobResponse, error) {
		return n.admin.PutJob(t.Context(), &slicerv1.PutJobRequest{Config: c, ExpectedVersion: expect})
	}
	job := &slicerv1.JobConfig{Name: "job"}
	for _, x := range []struct {
		what   string
		expect int64
		cfg    *slicerv1.JobConfig
		code   codes.Code
		says   string
	}{
		{"no config", 0, nil, codes.InvalidArgument, "missing"},
		{"no name", 0, &slicerv1.JobConfig{}, codes.InvalidArgument, "job name"},
		{"slash", 0, &slicerv1.JobConfig{Name: "a/b"}, codes.InvalidArgument, `"a/b"`},
		{"min above max", 0, &slicerv1.JobConfig{Name: "j", MinReplicas: 3, MaxReplicas: 2}, codes.InvalidArgument, "min_replicas"},
		{"mode", 0, &slicerv1.JobConfig{Name: "j", Mode: 7}, codes.InvalidArgument, "mode"},
		{"store", 0, &slicerv1.JobConfig{Name: "j", Store: "elsewhere"}, codes.InvalidArgument, "store"},
		{"expected below -1", -2, job, codes.InvalidArgument, "expected_version"},
		{"expected, but none", 4, job, codes.Aborted, "no such job"},
		{"new", -1, job, codes.OK, ""},
		{"new again", -1, job, codes.Aborted, "already"},
		{"wrong version", 7, job, codes.Aborted, "version 7"},
		{"right version", 1, job, codes.OK, ""},
		{"any version", 0, job, codes.OK, ""},
		{"another mode, nobody lives", 0, &slicerv1.JobConfig{Name: "job", Mode: slicerv1.Mode_MODE_CONSISTENT}, codes.OK, ""},
	} {
		checked, refusal := n.admin.CheckJob(t.Context(), &slicerv1.CheckJobRequest{Config: x.cfg, ExpectedVersion: x.expect})
		resp, err := put(x.expect, x.cfg)
		if fmt.Sprint(refusal) != fmt.Sprint(err) || err == nil && checked.Creates != resp.Created {
			t.Errorf("%s: CheckJob says %v, %v; PutJob then %v, %v", x.what, checked, refusal, resp, err)
		}
		if status.Code(err) != x.code || x.says != "" && !strings.Contains(err.Error(), x.says) {
			t.Errorf("%s: %v, want %s with %q", x.what, err, x.code, x.says)
		}
		if err == nil && resp.Created != (x.what == "new") {
			t.Errorf("%s: created is %v", x.what, resp.Created)
		}
	}
	got, err := n.admin.GetJob(t.Context(), &slicerv1.GetJobRequest{Name: "job"})
	if err != nil || got.Job.Version != 4 || got.Job.Config.Mode != slicerv1.Mode_MODE_CONSISTENT || got.Job.Config.MaxReplicas != 1 {
		t.Errorf("stored is %v, %v", got, err)
	}
}

func TestAdminErrors(t *testing.T) {
	n := start(t, Config{})
	ctx := t.Context()
	for what, f := range map[string]func(job string) error{
		"get": func(j string) error { _, err := n.admin.GetJob(ctx, &slicerv1.GetJobRequest{Name: j}); return err },
		"delete": func(j string) error {
			_, err := n.admin.DeleteJob(ctx, &slicerv1.DeleteJobRequest{Name: j})
			return err
		},
		"inspect": func(j string) error {
			_, err := n.admin.InspectJob(ctx, &slicerv1.InspectJobRequest{Job: j})
			return err
		},
		"drain": func(j string) error { _, err := n.admin.DrainTask(ctx, &slicerv1.DrainTaskRequest{Job: j}); return err },
	} {
		for job, want := range map[string]codes.Code{"nobody": codes.NotFound, "a/b": codes.InvalidArgument, "": codes.InvalidArgument} {
			if err := f(job); status.Code(err) != want {
				t.Errorf("%s %q: %v, want %s", what, job, err, want)
			}
		}
	}
}

// Mode is not changed and jobs are not deleted under running tasks.
func TestLiveTasksAreProtected(t *testing.T) {
	n, d, _ := running(t, task("t1", 1), task("t2", 1))
	other := start(t, Config{ID: "b1", Stores: n.cfg.Stores}) // not preferred: it goes by what is stored
	for _, at := range []*node{n, other} {
		_, err := at.admin.PutJob(t.Context(), &slicerv1.PutJobRequest{Config: &slicerv1.JobConfig{Name: "job", Mode: slicerv1.Mode_MODE_CONSISTENT}})
		if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "tasks live (2)") {
			t.Errorf("mode at %s: %v", at.cfg.ID, err)
		}
		if _, err := at.admin.DeleteJob(t.Context(), &slicerv1.DeleteJobRequest{Name: "job"}); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("delete at %s: %v", at.cfg.ID, err)
		}
	}
	bye := func(name string) *slicerv1.Task {
		x := task(name, 1)
		x.State = slicerv1.TaskState_TASK_STATE_DEAD
		return x
	}
	d.reports("job", false, bye("t1"), bye("t2"))
	d.holds("job", "nobody alive", func(a *assignment.Assignment) bool {
		for _, x := range a.Tasks() {
			if x.State != assignment.TaskDead {
				return false
			}
		}
		return true
	})
	if _, err := other.admin.DeleteJob(t.Context(), &slicerv1.DeleteJobRequest{Name: "job"}); err != nil {
		t.Error(err)
	}
	d.wait("word that the job is gone", func() bool { return d.statuses["job"].GetUnknown() })
}

func TestConfigChangeIsActedOn(t *testing.T) {
	n, d, _ := running(t, task("t1", 1), task("t2", 1), task("t3", 1))
	n.put(&slicerv1.JobConfig{Name: "job", MinReplicas: 2, LoadMetric: "custom"})
	d.holds("job", "two replicas", func(a *assignment.Assignment) bool { return a.NumOwners() == 2*a.NumSlices() })
	d.wait("the new metric", func() bool { return d.statuses["job"].GetLoadMetric() == "custom" })
}
