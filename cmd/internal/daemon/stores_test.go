package daemon_test

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store/etcdstore/etcdtest"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/cmd/internal/ctl"
	"github.com/slicer-project/slicer/cmd/internal/run/runtest"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/test/kit/process"
)

// TestFateShared: an assigner and a backup distributor on two stores, of which one
// dies. Its job goes on routing; the other's notices nothing, not even a restart of
// the assigner meanwhile.
func TestFateShared(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*limit)
	defer cancel()
	main, eu := etcdtest.NewCluster(t, 1), etcdtest.NewCluster(t, 1)
	stores := []string{"--store=main=etcd://" + main.Endpoints()[0] + "/slicer", "--store=eu=etcd://" + eu.Endpoints()[0] + "/slicer"}
	with := func(listen string) []string {
		return append([]string{"--listen=" + listen, "--http=127.0.0.1:0"}, stores...)
	}
	assigner := runtest.Start(t, "assigner", with(process.FreePorts(t, 1)[0])...)
	assignerAt := assigner.Where()["listen"]
	distributor := runtest.Start(t, "distributor", "--assigners="+assignerAt, "--listen=127.0.0.1:0", "--http=127.0.0.1:0").Where()
	backup := runtest.Start(t, "backupdist", with("127.0.0.1:0")...).Where()
	becomesReady(t, distributor["http"])
	becomesReady(t, backup["http"])

	put := func(job, store string) error {
		_, err := admin(t, distributor["listen"]).PutJob(ctx, &slicerv1.PutJobRequest{Config: &slicerv1.JobConfig{
			Name: job, Store: store, MaxReplicas: 1, HeartbeatTimeoutMs: 30000,
		}})
		return err
	}
	until(t, "jobs are made", func() bool { return put("here", "main") == nil && put("there", "eu") == nil })
	if err := put("new", "moon"); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), `store: "moon" is not allowed: want empty or "main" or "eu"`) {
		t.Errorf("a job of a store that there is none of: %v", err)
	}
	task := func(job string, i int) {
		t.Helper()
		s, err := slicelet.New(slicelet.Config{Job: job, Task: fmt.Sprint("t", i), Address: fmt.Sprint("127.0.0.1:", 1000+i), Distributors: []string{distributor["listen"]}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
	}
	clerkOf := func(job string, at clerk.Config) *clerk.Clerk {
		t.Helper()
		at.Job = job
		c, err := clerk.New(at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	usual := clerk.Config{Distributors: []string{distributor["listen"]}}
	here, there := clerkOf("here", usual), clerkOf("there", usual)
	owners := func(c *clerk.Clerk, n int) bool { return ownersOf(c.Assignment()) == n }
	task("here", 0)
	task("there", 0)
	until(t, "both jobs have an owner", func() bool { return owners(here, 1) && owners(there, 1) })
	if err := put("there", "main"); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "store eu") {
		t.Errorf("a job that is to move with generations: %v", err)
	}

	// Of jobs that are not asked for it has what they were up to 10 s ago.
	behind := clerk.Config{Backups: []string{backup["listen"]}}
	if err := clerkOf("there", behind).Ready(ctx); err != nil {
		t.Fatal(err)
	}
	eu.Stop(0)
	task("here", 1)
	task("there", 1)
	until(t, "the store that lives goes on", func() bool { return owners(here, 2) })
	if _, err := admin(t, distributor["listen"]).GetJob(ctx, &slicerv1.GetJobRequest{Name: "here"}); err != nil {
		t.Errorf("config of the job of the store that lives: %v", err)
	}
	list := func(addr string) string {
		resp, err := admin(t, addr).ListJobs(ctx, &slicerv1.ListJobsRequest{})
		if err != nil {
			return err.Error()
		}
		var names []string
		for _, j := range resp.Jobs {
			names = append(names, j.Config.Name)
		}
		return fmt.Sprint(names, " without ", resp.Unanswered)
	}
	until(t, "lists leave out what is down", func() bool { return list(distributor["listen"]) == "[here] without [eu]" })
	for job, want := range map[string]string{"there": "store eu does not answer", "nowhere": "store eu"} {
		code, out, errs := runtest.Execute(ctl.New(), "--server", distributor["listen"], "--timeout", limit.String(), "status", job)
		if code != 7 || !strings.Contains(out, "\n"+job+": ") || !strings.Contains(out[strings.Index(out, "\n"+job+": "):], want) {
			t.Errorf("status of job %s while a store is down: exit %d\n%s%s", job, code, out, errs)
		}
	}
	if code, out, _ := runtest.Execute(ctl.New(), "--server", distributor["listen"], "--timeout", limit.String(), "status"); code != 7 || !strings.Contains(out, "\nthere  store down") {
		t.Errorf("status of all jobs while a store is down: exit %d\n%s", code, out)
	}
	if !owners(there, 1) || there.Lookup("key").Len() != 1 {
		t.Error("the job of the dead store does not route as it did")
	}
	// Who starts now is served too: by the distributor, and by the backup distributor.
	for _, at := range []clerk.Config{usual, behind} {
		if err := clerkOf("there", at).Ready(ctx); err != nil {
			t.Errorf("a clerk that starts while the store is down: %v", err)
		}
	}

	// An assigner that starts while the store is down serves the other.
	assigner.Signal(syscall.SIGKILL)
	assigner.End()
	assigner = runtest.Start(t, "assigner", with(assignerAt)...)
	assigner.Where()
	task("here", 2)
	until(t, "an assigner that has started with a store down serves the other", func() bool { return owners(here, 3) })
	if !strings.Contains(assigner.Text(), `"store":"eu"`) {
		t.Errorf("its log does not name the store\n%s", assigner.Text())
	}
	if !owners(there, 1) {
		t.Error("the job of the dead store has changed")
	}

	eu.Restart(t, 0)
	until(t, "the store that is back goes on", func() bool { return owners(there, 2) })
}

func ownersOf(a *assignment.Assignment) int {
	tasks := map[string]bool{}
	if a != nil {
		for _, s := range a.All() {
			for task := range s.All() {
				tasks[task.Name] = true
			}
		}
	}
	return len(tasks)
}
