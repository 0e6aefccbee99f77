package generate

import (
	"fmt"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assigner/membership"
	"github.com/slicer-project/slicer/assignment"
)

// Three names that join a hundred times a second, and leave in one way or the other,
// cost a job a generation every two seconds once it is clear what they do. A task that
// dies meanwhile loses its slices as soon as always.
func TestNamesThatComeAndGo(t *testing.T) {
	for name, goodbye := range map[string]bool{"they say goodbye": true, "their streams end": false} {
		t.Run(name, func(t *testing.T) {
			c := &clocked{T: t}
			core := c.start("a", 0)
			c.pass(core, 0, 20)
			honest := c.stored.NumTasks()
			incarnation := uint64(1)
			report := func(task string, inc uint64, state assignment.TaskState, gone bool) Report {
				return Report{Report: membership.Report{Said: !gone, Sequence: 1, Disconnected: gone, State: state,
					Task: assignment.Task{Name: task, Incarnation: inc, Address: "y:1", Weight: 1}}}
			}
			// attack has them join for so long, and returns the generations written.
			attack := func(d time.Duration) (written int) {
				before := c.tasks
				for end := c.at + d; c.at < end; {
					for range 10 {
						c.at += 10 * time.Millisecond
						for i := range c.tasks {
							c.tasks[i].Sequence++
						}
						core.Reports(c.now(0), 1, false, c.tasks)
						task := fmt.Sprint("z", incarnation%3)
						if incarnation++; incarnation > 3 {
							state := assignment.TaskRunning
							if goodbye {
								state = assignment.TaskDead
							}
							r := report(task, incarnation-4, state, !goodbye)
							r.Sequence = 2
							core.Reports(c.now(0), 1, false, []Report{r})
						}
						core.Reports(c.now(0), 1, false, []Report{report(task, incarnation-1, assignment.TaskRunning, false)})
						g := generation(c.stored)
						c.settle(core, 0)
						if generation(c.stored) != g {
							written++
						}
					}
				}
				c.tasks = before
				return written
			}
			first := attack(5 * time.Second)
			later := attack(20 * time.Second)
			t.Logf("%d generations in the first 5 s, %d in 20 s after that", first, later)
			if first > 45 || later > 12 {
				t.Errorf("%d generations were written in the first 5 s, and %d in 20 s after that", first, later)
			}
			// One of the others ends.
			c.tasks[0].State = assignment.TaskDead
			c.tasks[0].Sequence++
			core.Reports(c.now(0), 1, false, c.tasks[:1])
			attack(200 * time.Millisecond)
			for _, s := range c.stored.Columns().Owners {
				if c.stored.Task(int(s)).Name == c.tasks[0].Task.Name {
					t.Fatal("a task that has ended keeps its slices")
				}
			}
			if honest < 19 {
				t.Errorf("%d honest tasks", honest)
			}
		})
	}
}
