package lease_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/lease/leasetest"
)

func (v *world) join() (*lease.Job, error) {
	return v.reader.Join(lease.JobConfig{Job: "job", Task: leasetest.TaskName(1), Incarnation: leasetest.Incarnation(1),
		Fetch: func(_ context.Context, g assignment.Generation) (*assignment.Assignment, error) {
			return leasetest.Assignment("job", g, 2)
		}})
}

// What a session holds in a job it holds once: two that share it would release
// each other's.
func TestAJobIsJoinedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newWorld(t)
		v.advance(1)
		synctest.Wait()
		if _, err := v.join(); !errors.Is(err, lease.ErrJoined) {
			t.Errorf("joined twice: %v", err)
		}
		if err := v.job.Close(); err != nil {
			t.Error(err)
		}
		j, err := v.join()
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if j.Belief() == nil {
			t.Error("the next one believes in nothing")
		}
		v.close()
		if err := j.Close(); err != nil {
			t.Errorf("closed after the reader: %v", err)
		}
		if _, err := v.join(); err == nil {
			t.Error("joined a closed reader")
		}
	})
}

func TestReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newWorld(t)
		if err := v.job.Ready(t.Context()); err != nil {
			t.Errorf("a job without a guard: %v", err)
		}
		v.close()
		if err := v.job.Ready(t.Context()); err == nil {
			t.Error("a job that is closed is ready")
		}

		unreachable := &cut{}
		unreachable.off.Store(true)
		r, err := lease.NewReader(lease.Config{Readers: unreachable})
		if err != nil {
			t.Fatal(err)
		}
		v.reader = r
		j, err := v.join()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := j.Ready(ctx); !errors.Is(err, lease.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("without a store: %v", err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if err := j.Ready(t.Context()); err == nil {
			t.Error("a closed reader makes a job ready")
		}
	})
}

// The deadline passes and a keepalive is answered after all before any goroutine has
// looked at the clock: one that did found nothing to believe in, so the break is told.
func TestLapseIsToldAfterwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newWorld(t)
		v.advance(1)
		v.wantTold("guard 1")
		v.skew.Store(int64(ttl - time.Millisecond))
		if v.job.Belief() != nil {
			t.Error("it believes past its deadline")
		}
		time.Sleep(ttl / 2)
		v.wantTold("nothing", "guard 1")
		v.skew.Store(0)
		v.close()
	})
}
