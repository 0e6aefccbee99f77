package ctl_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/cmd/internal/run"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

const refused = "---\nname: last\nstore: elsewhere\n" // there is no such store

// TestApplyAllOrNone: when one of several jobs is refused, those before it are what they
// were: not there, or as they were configured.
func TestApplyAllOrNone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply("name: old\nmax_replicas: 3\n---\nname: same\n")
	before := w.must("job", "get", "old")
	r := w.ctlAt(w.distributor, "name: new\n---\nname: same\n---\nname: old\nmax_replicas: 9\n"+refused, "job", "apply", "-f", "-", "--reason", "test")
	if r.code != 1 || r.out != "" || !strings.Contains(r.errs, "job last: ") || !strings.Contains(r.errs, "elsewhere") || !strings.Contains(r.errs, "(nothing is changed: 2 jobs put back)") || strings.Count(r.errs, "\n") != 1 {
		t.Errorf("exit %d, %q, %q", r.code, r.out, r.errs)
	}
	if got := w.must("job", "get", "old"); got != before {
		t.Errorf("a job that was there is now\n%s\nwant\n%s", got, before)
	}
	if r := w.ctl("job", "get", "new"); r.code != 3 {
		t.Errorf("a job that was not there: exit %d, %s", r.code, r.out)
	}
	if r := w.ctl("job", "get", "last"); r.code != 3 {
		t.Errorf("the job that was refused: exit %d, %s", r.code, r.out)
	}
	if h := w.must("history", "old"); !strings.Contains(h, "rolled back, job last could not be applied. test") {
		t.Errorf("history:\n%s", h)
	}
	if r := w.ctlAt(w.distributor, "name: new\n---\nname: old\nmax_replicas: 9\n", "job", "apply", "-f", "-"); r.code != 0 || !strings.Contains(r.out, "job new created") || !strings.Contains(r.out, "max_replicas: 3 -> 9") {
		t.Errorf("exit %d, %q, %q", r.code, r.out, r.errs)
	}
}

// TestApplyDryRun prints what would change for each job, and changes nothing.
func TestApplyDryRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply("name: old\nmax_replicas: 3\n---\nname: same\n")
	file := "name: new\nzone: eu\n---\nname: same\n---\nname: old\nmax_replicas: 9\nbalance: {interval: 9s}\n"
	r := w.ctlAt(w.distributor, file, "job", "apply", "-f", "-", "--dry-run")
	want := "job new would be created\n  zone: \"\" -> eu\njob same unchanged (version 1)\njob old would be updated\n  max_replicas: 3 -> 9\n  balance.interval: 5s -> 9s\n"
	if r.code != 0 || r.out != want {
		t.Errorf("exit %d, %q, %q; want %q", r.code, r.out, r.errs, want)
	}
	r = w.ctlAt(w.distributor, file, "job", "apply", "-f", "-", "--dry-run", "--json")
	var all []struct {
		Job, Result string
		DryRun      bool `json:"dry_run"`
	}
	if err := json.Unmarshal([]byte(r.out), &all); err != nil || len(all) != 3 || !all[0].DryRun || all[2].Result != "updated" {
		t.Errorf("%v: %s", err, r.out)
	}
	if got := w.must("job", "list"); strings.Contains(got, "new") || strings.Contains(got, "9") {
		t.Error(got)
	}
}

// TestApplyDryRunRefuses: a dry run refuses what an apply refuses, in the same words, and leaves
// nothing behind.
func TestApplyDryRunRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply("name: old\nmax_replicas: 3\n")
	for _, file := range []string{refused, "name: old\nstore: elsewhere\n", "name: new\n" + refused} {
		dry := w.ctlAt(w.distributor, file, "job", "apply", "-f", "-", "--dry-run")
		real := w.ctlAt(w.distributor, file, "job", "apply", "-f", "-")
		_, why, _ := strings.Cut(real.errs, ": store")
		why, _, _ = strings.Cut(why, " (nothing")
		if dry.code != run.ExitFailed || real.code != dry.code || why == "" || !strings.Contains(dry.errs, "would be refused: store"+strings.TrimSpace(why)) {
			t.Errorf("%q: a dry run: exit %d, %q; an apply: exit %d, %q", file, dry.code, dry.errs, real.code, real.errs)
		}
	}
	r := w.ctlAt(w.distributor, refused, "job", "apply", "-f", "-", "--dry-run", "--json")
	if r.code != run.ExitFailed || !strings.Contains(r.out, `"refused": "store`) {
		t.Errorf("with --json: exit %d, %s", r.code, r.out)
	}
	if got := w.must("job", "list"); strings.Contains(got, "new") || strings.Contains(got, "last") || !strings.Contains(got, "1-3") {
		t.Errorf("afterwards the jobs are\n%s", got)
	}
}

// TestApplyDryRunUnchecked: of an assigner that does not know CheckJob a dry run says what it has
// not found out.
func TestApplyDryRunUnchecked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, addr := newBetween(w)
	r := w.ctlAt(addr, refused, "job", "apply", "-f", "-", "--dry-run")
	if r.code != 0 || !strings.Contains(r.out, "job last would be created\n") || !strings.Contains(r.out, "  not checked: whether its store is there") {
		t.Errorf("exit %d, %q, %q", r.code, r.out, r.errs)
	}
}

// between passes administrative calls on, and does something at those that write.
type between struct {
	slicerv1.UnimplementedAdminServiceServer
	to  slicerv1.AdminServiceClient
	put func(*slicerv1.PutJobRequest) (*slicerv1.PutJobResponse, error)
}

// newBetween serves one that passes on to w's Distributor.
func newBetween(w *world) (b *between, addr string) {
	w.t.Helper()
	conn, err := grpc.NewClient(w.distributor, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		w.t.Fatal(err)
	}
	b = &between{to: slicerv1.NewAdminServiceClient(conn)}
	lis := listen(w.t)
	srv := run.Serve(lis, insecure.NewCredentials(), func(r grpc.ServiceRegistrar) { slicerv1.RegisterAdminServiceServer(r, b) })
	w.t.Cleanup(func() {
		srv.Stop(nil)
		conn.Close()
	})
	return b, lis.Addr().String()
}

func (b *between) GetJob(ctx context.Context, r *slicerv1.GetJobRequest) (*slicerv1.GetJobResponse, error) {
	return b.to.GetJob(ctx, r)
}

func (b *between) DeleteJob(ctx context.Context, r *slicerv1.DeleteJobRequest) (*slicerv1.DeleteJobResponse, error) {
	return b.to.DeleteJob(ctx, r)
}

func (b *between) PutJob(_ context.Context, r *slicerv1.PutJobRequest) (*slicerv1.PutJobResponse, error) {
	return b.put(r)
}

// TestApplyDisturbed: an answer that is lost, and others that write at the same time.
func TestApplyDisturbed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b, addr := newBetween(w)
	apply := func(file string) result {
		return w.ctlAt(addr, file, "job", "apply", "-f", "-")
	}
	put := func(r *slicerv1.PutJobRequest) (*slicerv1.PutJobResponse, error) { return b.to.PutJob(t.Context(), r) }

	w.apply("name: old\nmax_replicas: 3\n")
	b.put = func(r *slicerv1.PutJobRequest) (*slicerv1.PutJobResponse, error) {
		resp, err := put(r)
		if r.Config.Name == "last" {
			return nil, status.Error(codes.Unavailable, "the answer is lost")
		}
		return resp, err
	}
	r := apply("name: old\nmax_replicas: 4\n---\nname: last\n")
	if r.code != 4 || !strings.Contains(r.errs, "nothing is changed") {
		t.Errorf("a lost answer: exit %d, %q, %q", r.code, r.out, r.errs)
	}
	if out := w.must("job", "list"); strings.Contains(out, "last") || !strings.Contains(out, "1-3") {
		t.Errorf("after a lost answer:\n%s", out)
	}

	once := false
	b.put = func(r *slicerv1.PutJobRequest) (*slicerv1.PutJobResponse, error) {
		if r.Config.Name == "last" && !once {
			once = true
			w.apply("name: last\nzone: eu\n")
		}
		return put(r)
	}
	if r := apply("name: old\nmax_replicas: 4\n---\nname: last\n"); r.code != 0 || !strings.Contains(r.out, "job last updated") || !strings.Contains(r.out, "job old updated") {
		t.Errorf("another has written: exit %d, %q, %q", r.code, r.out, r.errs)
	}

	b.put = func(r *slicerv1.PutJobRequest) (*slicerv1.PutJobResponse, error) {
		if r.Config.Name == "refused" {
			w.apply("name: old\nmax_replicas: 7\n")
			return nil, status.Error(codes.FailedPrecondition, "no")
		}
		return put(r)
	}
	r = apply("name: old\nmax_replicas: 5\n---\nname: refused\n")
	if r.code != 1 || !strings.Contains(r.errs, "could not all be put back: job old: another has written version") {
		t.Errorf("another has written what is to be put back: exit %d, %q, %q", r.code, r.out, r.errs)
	}
	if out := w.must("job", "list"); !strings.Contains(out, "1-7") {
		t.Errorf("what another has written is lost:\n%s", out)
	}
}
