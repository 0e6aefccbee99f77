package page

import (
	"fmt"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/cmd/internal/health"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// taskColumns are what seldom changes of all tasks, in the order of the assigner's answer.
type taskColumns struct {
	Name     []string `json:"name"`
	Zone     []string `json:"zone"`
	Address  []string `json:"address"`
	Weight   []num    `json:"weight"`
	State    []string `json:"state"`
	Standing []string `json:"standing"` // why it is given no slices, "" if it may have some
}

func newTaskColumns(m *slicerv1.InspectJobResponse) *taskColumns {
	n := len(m.GetTasks())
	c := &taskColumns{make([]string, n), make([]string, n), make([]string, n), make([]num, n), make([]string, n), make([]string, n)}
	for i, s := range m.GetTasks() {
		t := s.GetTask()
		c.Name[i], c.Zone[i], c.Address[i], c.Weight[i] = t.GetName(), t.GetZone(), t.GetAddress(), num(t.GetWeight())
		c.State[i], c.Standing[i] = assignment.TaskState(t.GetState()).String(), s.GetStanding()
	}
	return c
}

// taskNumbers are what changes with each reading, parallel to taskColumns.
type taskNumbers struct {
	Load      []num    `json:"load"`
	OfMean    []num    `json:"ofMean"` // by capacity
	CPU       []num    `json:"cpu"`
	Refused   []num    `json:"refused"`
	Misrouted []num    `json:"misrouted"`
	Warm      []num    `json:"warm"`  // share of its capacity that counts, 1 when it is warm
	Level     []string `json:"level"` // the criticality of what it refuses, "" for none
	Age       []int64  `json:"age"`   // of its newest report, milliseconds; -1 if there is none
	Gone      []bool   `json:"gone"`  // no Distributor has a stream of it
	Slices    []int    `json:"slices"`
	Share     []num    `json:"share"`
}

func (r *jobReader) taskNumbers(m *slicerv1.InspectJobResponse, is *health.Job) *taskNumbers {
	n := len(m.GetTasks())
	c := &taskNumbers{
		make([]num, n), make([]num, n), make([]num, n), make([]num, n), make([]num, n), make([]num, n),
		make([]string, n), make([]int64, n), make([]bool, n), make([]int, n), make([]num, n),
	}
	for i, s := range m.GetTasks() {
		t := s.GetTask()
		if t.GetState() != slicerv1.TaskState_TASK_STATE_DEAD {
			c.Load[i] = num(s.GetLoad())
		}
		c.OfMean[i] = num(is.Of(s))
		c.CPU[i], c.Refused[i], c.Misrouted[i] = num(s.GetCpuUtilization()), num(s.GetShedRate()), num(s.GetMisroutedRate())
		if c.Warm[i] = num(s.GetWarming()); c.Warm[i] == 0 {
			c.Warm[i] = 1
		}
		c.Level[i], c.Age[i], c.Gone[i] = health.Level(s.GetLevel()), s.GetLastReportAgeMs(), !s.GetConnected()
		o := r.owned[t.GetName()]
		c.Slices[i], c.Share[i] = o.slices, num(o.share)
	}
	return c
}

// leasesOf says how a change in consistent mode stands.
func leasesOf(c *slicerv1.Consistency) string {
	switch {
	case c == nil:
		return ""
	case c.GetError() != "":
		return "not known: " + c.GetError()
	case c.GetGuard() == 0:
		return "nothing is in force yet"
	case c.GetStep() != "":
		return fmt.Sprintf("generation %d is in force, and %d is to be: %s", c.GetGuard(), c.GetHead(), c.GetStep())
	}
	return fmt.Sprintf("generation %d is in force", c.GetGuard())
}
