package subsetting

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/slicelet"
)

// With the shortest heartbeat timeout that is allowed no task that lives is taken for
// dead, also when it becomes so short while tasks run, and when a task has lost its
// Distributor.
func TestShortHeartbeat(t *testing.T) {
	for _, before := range []time.Duration{500 * time.Millisecond, 5 * time.Second} {
		t.Run(before.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlane(t)
				defer p.close()
				p.putConfig(assignment.JobConfig{Name: job, HeartbeatTimeout: before})
				var tasks []*slicelet.Slicelet
				for i := range 3 {
					s := p.server(fmt.Sprint("server-", i))
					tasks = append(tasks, s)
					defer s.Close()
				}
				watch := func(d time.Duration) {
					for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
						for _, s := range tasks {
							for _, task := range s.Assignment().Tasks() {
								if task.State != assignment.TaskRunning {
									t.Fatalf("%s is %s in generation %d", task.Name, task.State, s.Assignment().Generation())
								}
							}
						}
					}
				}
				for _, s := range tasks {
					if err := s.Ready(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(2 * time.Second)
				p.putConfig(assignment.JobConfig{Name: job, HeartbeatTimeout: 500 * time.Millisecond})
				watch(30 * time.Second)
				p.stop(distributor1)
				watch(10 * time.Second)
				p.start(distributor1)
				watch(10 * time.Second)
				for _, s := range tasks {
					if n := s.Assignment().NumTasks(); n != 3 || len(s.Slices()) == 0 {
						t.Errorf("%d tasks, and %s owns %d slices", n, s.Task(), len(s.Slices()))
					}
				}
			})
		})
	}
}
