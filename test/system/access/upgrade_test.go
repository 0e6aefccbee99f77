package access

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"github.com/slicer-project/slicer/test/kit/process"
)

// TestUpgrade: a control plane without a policy gets one process by process, in the
// documented order, while a service is called. No call fails, its tasks stay, and in the end
// a stranger is refused.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	parts := []string{atBackup, atAssigner, atFirst, atSecond}
	for _, where := range parts {
		b.start(where)
	}
	b.put(atSecond, configs()[0])
	h := b.serve(b.at[atSecond], b.at[atFirst])
	stranger := &caller{ClientConn: b.dial(atSecond, other), identity: other, job: cacheJob}
	if err := watch(slicerv1.Role_ROLE_CLERK)(t.Context(), stranger); err != nil && err != errStays {
		t.Errorf("without a policy a stranger may watch: %v", err)
	}
	for _, where := range parts {
		b.start(where, b.policy...)
		process.Eventually(t, limit, "after "+where+" all tasks are there", func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			r, err := b.admin(atSecond).InspectJob(ctx, &slicerv1.InspectJobRequest{Job: cacheJob})
			if err != nil {
				return err
			}
			n := 0
			for _, x := range r.GetTasks() {
				if x.GetConnected() && x.GetTask().GetState() == slicerv1.TaskState_TASK_STATE_RUNNING {
					n++
				}
			}
			if n != honestTasks {
				return fmt.Errorf("%d tasks run", n)
			}
			return nil
		})
		h.unharmed("after " + where)
		if _, _, err := b.join(b.at[atFirst]); err != nil {
			t.Errorf("after %s a client cannot join: %v", where, err)
		}
	}
	for _, where := range parts[2:] {
		c := &caller{ClientConn: b.dial(where, other), identity: other, job: cacheJob}
		if err := watch(slicerv1.Role_ROLE_CLERK)(t.Context(), c); status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s: a stranger: %v, want PERMISSION_DENIED", where, err)
		}
	}
	h.end()
	h.unharmed("in the end")
	t.Logf("%d calls, none failed", h.calls.Load())
}
