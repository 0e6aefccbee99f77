package slicertest

import (
	"context"
	"fmt"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/slicelet"
)

// Assign changes who owns what in a job, by places that are taken in order, and returns the
// generation that says so. It returns when every clerk and slicelet that is connected has it, save
// those of Hold, and every listener of slicelets that Slicelet has made has been told and has
// returned. From the first Assign on, keys move only by Assign, Expire and drains.
//
// Tasks need not have a slicelet: one that has none is running, at its Address.
//
// What follows from it in other goroutines may take a moment more: a connection of clerkgrpc takes
// a new assignment over after its clerk. In a bubble synctest.Wait waits for that, too.
func (e *Env) Assign(job string, places ...Place) assignment.Generation {
	e.helper()
	return e.change(job, func(j *jobState) error {
		p, err := j.places.with(places)
		if err != nil {
			return err
		}
		for _, name := range p.names() {
			j.meet(name)
		}
		j.places, j.frozen = p, true
		return nil
	})
}

// Expire declares a task dead, as if it had not reported for the job's heartbeat timeout. Keys
// that have no other owner go to the tasks that are running, one slice to each in turns. It
// returns as Assign does.
func (e *Env) Expire(job, task string) assignment.Generation {
	e.helper()
	return e.change(job, func(j *jobState) error {
		m := j.member(task)
		if m == nil {
			return &assignment.FieldError{Field: "task", Value: task, Allowed: "a task of the job"}
		}
		m.State = assignment.TaskDead
		return nil
	})
}

// Hold keeps a slicelet, by its task's name, or a clerk, by its ClientID, at the assignment that
// it has, in all jobs, as one is that is slow or badly connected: Assign does not wait for it.
// release lets it have the newest, and returns when it has.
func (e *Env) Hold(name string) (release func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.held[name]++
	released := false
	return func() {
		e.helper()
		e.mu.Lock()
		if !released {
			e.held[name]--
		}
		released = true
		newest := make(map[string]assignment.Generation)
		for _, j := range e.jobs {
			j.notify()
			newest[j.name] = j.generation()
		}
		e.mu.Unlock()
		for job, g := range newest {
			if err := e.settle(job, g); err != nil {
				e.fail(fmt.Errorf("job %q: %w", job, err))
			}
		}
	}
}

// change changes a job, which is made if there is none of this name, publishes what that comes to,
// and waits until that has arrived.
func (e *Env) change(name string, do func(*jobState) error) assignment.Generation {
	e.helper()
	g, err := e.publish(name, do)
	if err == nil {
		err = e.settle(name, g)
	}
	if err != nil {
		e.fail(fmt.Errorf("job %q: %w", name, err))
	}
	return g
}

func (e *Env) publish(name string, do func(*jobState) error) (assignment.Generation, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	j, err := e.jobLocked(name)
	if err != nil {
		return 0, err
	}
	before := *j
	if err = do(j); err == nil {
		err = j.publish()
	}
	if err != nil { // such as a task's name that is not allowed
		j.places, j.frozen, j.members = before.places, before.frozen, before.members
	}
	return j.generation(), err
}

func (e *Env) jobLocked(name string) (*jobState, error) {
	if j := e.jobs[name]; j != nil {
		return j, nil
	}
	if err := assignment.ValidateJobName(name); err != nil {
		return nil, err
	}
	j := newJob(name, e.storeID)
	e.jobs[name] = j
	return j, nil
}

// settle waits until all that are concerned have a generation.
func (e *Env) settle(name string, g assignment.Generation) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		changed, behind := e.behind(name, g)
		if len(behind) == 0 {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("generation %d has not arrived at %q within %s", g, behind, patience)
		}
	}
	return e.owned(ctx, name)
}

// behind are the subscribers that have an older generation than g, and are not held.
func (e *Env) behind(name string, g assignment.Generation) (changed <-chan struct{}, names []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	j := e.jobs[name]
	for _, s := range j.streams {
		if s.counts() && s.has < g && e.held[s.name] == 0 {
			names = append(names, s.name)
		}
	}
	return j.changed, names
}

func (e *Env) sliceletsOf(job string) (all []*slicelet.Slicelet) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range e.slicelets {
		if s.job == job {
			all = append(all, s.Slicelet)
		}
	}
	return all
}
