package slicelet

import (
	"testing"
	"testing/synctest"
	"time"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// TestStarting: a task says that it starts from its first message on, until it has started,
// once; one that drains has started for good.
func TestStarting(t *testing.T) {
	for _, drains := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, func(cfg *Config) { cfg.Starting = true })
			defer c.stop()
			said := func() (last slicerv1.TaskState) {
				for _, m := range c.server.Heard() {
					if h := m.GetHello(); h != nil {
						if last = h.GetReport().GetState(); last != h.GetTask().GetState() {
							t.Errorf("the task says %v, and its report %v", h.GetTask().GetState(), last)
						}
					}
					if r := m.GetReport(); r != nil {
						last = r.GetState()
					}
				}
				return last
			}
			time.Sleep(3 * time.Second)
			if s := said(); s != slicerv1.TaskState_TASK_STATE_STARTING {
				t.Errorf("before it has started it says %v", s)
			}
			want := slicerv1.TaskState_TASK_STATE_RUNNING
			if drains {
				want = slicerv1.TaskState_TASK_STATE_DRAINING
				go func() { _ = c.s.Drain(t.Context()) }()
				synctest.Wait()
			}
			c.s.Started()
			synctest.Wait()
			if s := said(); s != want || c.s.Draining() != drains {
				t.Errorf("then it says %v, want %v", s, want)
			}
		})
	}
}
