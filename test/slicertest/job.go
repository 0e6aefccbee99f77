package slicertest

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/slicer-project/slicer/assignment"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// maxPast is how many former assignments of a job deltas are made on.
const maxPast = 16

// jobState is what the environment knows of a job. It is guarded by Env.mu.
type jobState struct {
	name    string
	storeID uint64
	places  placement
	frozen  bool // the test has said who owns what
	// consistent jobs have leases, and inForce is the newest generation that they let tasks believe in.
	consistent bool
	inForce    assignment.Generation
	members    []*member // in order of index
	newest     *assignment.Assignment
	past       []*assignment.Assignment // oldest first
	streams    []*stream
	changed    chan struct{} // closed and replaced when a subscriber has come, gone or acknowledged
}

// member is a task of a job.
type member struct {
	assignment.Task
	stream *stream // its slicelet's, nil if there is none
}

func newJob(name string, storeID uint64) *jobState {
	return &jobState{name: name, storeID: storeID, changed: make(chan struct{})}
}

func (j *jobState) member(name string) *member {
	for _, m := range j.members {
		if m.Name == name {
			return m
		}
	}
	return nil
}

// meet returns the task of this name. If there is none it is one without a slicelet, with the
// smallest index that is free.
func (j *jobState) meet(name string) *member {
	if m := j.member(name); m != nil {
		return m
	}
	index := 0
	for index < len(j.members) && j.members[index].Index == uint32(index) {
		index++
	}
	m := &member{Task: newTask(name, uint32(index))}
	j.members = slices.Insert(slices.Clone(j.members), index, m)
	return m
}

// running are the names of the tasks that may get something, in order.
func (j *jobState) running() (names []string) {
	for _, m := range j.members {
		if m.State == assignment.TaskRunning {
			names = append(names, m.Name)
		}
	}
	slices.Sort(names)
	return names
}

// generation of the newest assignment, 0 if there is none.
func (j *jobState) generation() assignment.Generation {
	if j.newest == nil {
		return 0
	}
	return j.newest.Generation()
}

// publish makes the next assignment, if there is a task that can own something.
func (j *jobState) publish() error {
	running := j.running()
	if !j.frozen && len(running) > 0 {
		j.places = spread(running)
	}
	tasks := make([]assignment.Task, len(j.members))
	for i, m := range j.members {
		tasks[i] = m.Task
		if m.State == assignment.TaskDraining || m.State == assignment.TaskDead {
			j.places = j.places.without(m.Name, running)
		}
	}
	if len(j.places) == 0 {
		return nil
	}
	for _, c := range j.places {
		if j.consistent && len(c.tasks) > 1 {
			return &assignment.FieldError{Field: "tasks of a place", Value: len(c.tasks), Allowed: "1 in a job in consistent mode"}
		}
	}
	a, err := j.places.successor(j.newest, assignment.Header{Job: j.name, StoreID: j.storeID, Generation: j.generation() + 1}, tasks)
	if err != nil {
		return err
	}
	if j.newest != nil {
		j.past = append(j.past, j.newest)
		j.past = slices.Clone(j.past[max(len(j.past)-maxPast, 0):])
	}
	j.newest = a
	j.notify()
	return nil
}

// at returns the assignment of a generation, nil if it is not there any more.
func (j *jobState) at(g assignment.Generation) *assignment.Assignment {
	for _, a := range append(slices.Clone(j.past), j.newest) {
		if a != nil && a.Generation() == g {
			return a
		}
	}
	return nil
}

// join makes a stream that of a task.
func (j *jobState) join(s *stream, t assignment.Task, state assignment.TaskState) error {
	m := j.member(t.Name)
	if m != nil && m.stream != nil && !m.Same(t) {
		return fmt.Errorf("task %q of job %q is taken by another live task", t.Name, j.name)
	}
	m = j.meet(t.Name)
	before := m.Task
	t.Index, t.State = m.Index, cmp.Or(state, assignment.TaskRunning)
	m.Task, m.stream, s.member = t, s, m
	if t == before && j.newest != nil {
		return nil
	}
	return j.publish()
}

// report takes the state that a task says it is in.
func (j *jobState) report(s *stream, state assignment.TaskState) {
	m := s.member
	if m == nil || m.stream != s || state <= m.State || state == assignment.TaskDead {
		return
	}
	m.State = state
	_ = j.publish() // it was published before
}

// leave ends a stream. A task that drains and owns nothing goes with it; any other stays, as one
// that has crashed does until its heartbeat timeout is over.
func (j *jobState) leave(s *stream) {
	j.streams = slices.DeleteFunc(j.streams, func(o *stream) bool { return o == s })
	if m := s.member; m != nil && m.stream == s {
		m.stream = nil
		if m.State == assignment.TaskDraining && !slices.Contains(j.places.names(), m.Name) {
			j.members = slices.DeleteFunc(slices.Clone(j.members), func(o *member) bool { return o == m })
			_ = j.publish()
		}
	}
	j.notify()
}

// notify wakes all that wait for something of the job.
func (j *jobState) notify() {
	close(j.changed)
	j.changed = make(chan struct{})
	for _, s := range j.streams {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// converged is the generation that all clerks and slicelets have, or a newer one.
func (j *jobState) converged() assignment.Generation {
	least := j.generation()
	for _, s := range j.streams {
		if s.counts() {
			least = min(least, s.has)
		}
	}
	return least
}

// freeIndex is a clerk's index: the one that it wants, if no other has that, else the smallest free.
func (j *jobState) freeIndex(wanted *uint32) uint32 {
	taken := make(map[uint32]bool)
	for _, s := range j.streams {
		if s.role == slicerv1.Role_ROLE_CLERK {
			taken[s.index] = true
		}
	}
	if wanted != nil && !taken[*wanted] {
		return *wanted
	}
	var index uint32
	for taken[index] {
		index++
	}
	return index
}
