package front_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment/store/etcdstore/etcdtest"
	"github.com/slicer-project/slicer/assignment/waittest"
	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/lease/front"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// A claim that is acquired while a renewal compares with etcd what the session held before
// counts: if it is recalled and not let go of, the session ends all the same.
func TestClaimDuringARenewalCounts(t *testing.T) {
	t.Parallel()
	b := newBed(t, etcdtest.Start(t), 2)
	b.limit = 10 * time.Second
	f := newFleet(t, b.direct, lease.MaxTTL)
	f.advance(1)
	first, second := slicerv1.NewLeaseServiceClient(dial(t, b.fronts[0].addr)), slicerv1.NewLeaseServiceClient(dial(t, b.fronts[1].addr))
	open(t, second, "job") // so that it has its connections
	jobs := []*slicerv1.SessionMemory{{Job: "job"}}
	for i := range lease.MaxJobs - 1 {
		jobs = append(jobs, &slicerv1.SessionMemory{Job: fmt.Sprint("other-", i)})
	}
	var renew *slicerv1.RenewSessionRequest
	for renew == nil { // the long renewal was over before the claim was acquired
		s := open(t, first, "job")
		long := make(chan error, 1)
		go func() {
			_, err := second.RenewSession(t.Context(), &slicerv1.RenewSessionRequest{Session: s.GetSession(), Revision: s.GetRevision(), Jobs: jobs})
			long <- err
		}()
		short := &slicerv1.RenewSessionRequest{Session: s.GetSession(), Revision: s.GetRevision(), Jobs: jobs[:1]}
		if _, err := second.RenewSession(t.Context(), short); err != nil {
			t.Fatal(err)
		}
		got, err := second.AcquireClaim(t.Context(), &slicerv1.AcquireClaimRequest{Session: s.GetSession(), Job: "job", Claim: &slicerv1.Claim{To: 1}})
		if err != nil || !got.GetAcquired() {
			t.Fatal(got, err)
		}
		select {
		case err = <-long:
		default:
			renew, err = short, <-long
		}
		switch {
		case status.Code(err) == codes.NotFound: // its lease ran out meanwhile, as the machine is slow
			renew = nil
		case err != nil:
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), waittest.Patience)
	defer cancel()
	over := make(chan error, 1)
	go func() {
		for {
			if err := inTime(func() error { _, err := second.RenewSession(ctx, renew); return err }); err != nil {
				over <- err
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
	}()
	if _, err := lease.Advance(ctx, f.w, lease.Change{Job: "job", Token: f.token, Wanted: 2}); err != nil {
		t.Errorf("the change that it holds up: %v", err)
	}
	cancel()
	if err := <-over; !strings.Contains(err.Error(), "held up") {
		t.Errorf("the last renewal: %v", err)
	}
}

// A session of several jobs, of which one is deleted, goes on at a front that has seen nothing
// of it. Once there is a job of that name again, it takes part in it.
func TestSessionOutlivesAJob(t *testing.T) {
	t.Parallel()
	b := newBed(t, etcdtest.Start(t), 1)
	var deleted atomic.Bool
	restart := func() {
		b.kill(b.fronts[0])
		b.start(b.fronts[0], func(c *front.Config) {
			c.LeaseTime = func(_ context.Context, job string) (time.Duration, error) {
				if job == "other" && deleted.Load() {
					return 0, nil
				}
				return lease.MaxTTL, nil
			}
		})
	}
	restart()
	s, err := remoteTo(t, b.fronts[0]).OpenReader(t.Context(), lease.MaxTTL, "job", "other")
	if err != nil {
		t.Fatal(err)
	}
	deleted.Store(true)
	restart()
	ctx, cancel := context.WithTimeout(t.Context(), waittest.Patience)
	defer cancel()
	for err = s.KeepAlive(ctx); err != nil && ctx.Err() == nil; err = s.KeepAlive(ctx) {
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		t.Fatalf("KeepAlive: %v", err)
	}
	look := func(job string) error {
		w, err := s.Watch(ctx, job)
		if err != nil {
			return err
		}
		defer w.Close()
		_, err = w.Next(ctx)
		return err
	}
	if err := look("job"); err != nil {
		t.Errorf("the job that is there: %v", err)
	}
	if err := look("other"); err == nil {
		t.Error("the job that is deleted is watched")
	}
	if err := s.Join(ctx, "other"); !errors.Is(err, lease.ErrUnavailable) {
		t.Errorf("Join of the job that is deleted: %v", err)
	}
	deleted.Store(false)
	if err := s.Join(ctx, "other"); err != nil {
		t.Errorf("Join of the job that is there again: %v", err)
	}
	if err := look("other"); err != nil {
		t.Errorf("the job that is there again: %v", err)
	}
}
