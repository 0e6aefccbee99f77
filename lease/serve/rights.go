package serve

import (
	"context"
	"fmt"
	"slices"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/access"
	"github.com/slicer-project/slicer/lease"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// own returns nil if a caller may be a job's task, PERMISSION_DENIED if not, and
// ErrUnavailable if that cannot be known.
func (s *Store) own(ctx context.Context, from origin, job, task string) error {
	if policy, _ := s.rights.Policy(); policy == nil {
		return nil
	}
	q := access.Question{Verb: assignment.Own, Job: job, Task: task}
	if s.access != nil {
		var err error
		if q.Access, err = s.access(ctx, job); err != nil {
			return fmt.Errorf("%w: who may own job %s: %w", lease.ErrUnavailable, job, err)
		}
	}
	return s.rights.Check(from.caller, q)
}

// ownAny returns those of the jobs that a caller may take part in, and why not in another.
func (s *Store) ownAny(ctx context.Context, from origin, jobs []string, tasks map[string]string) (may []string, refused error) {
	for _, job := range jobs {
		if err := s.own(ctx, from, job, tasks[job]); err == nil {
			may = append(may, job)
		} else if refused == nil {
			refused = err
		}
	}
	return may, refused
}

// ownStill returns nil if a session may be renewed as far as a job goes. The right to the job
// may have been withdrawn since: then the session's watch of it ends. A session that holds
// something in the job is not renewed. So it is over, for the job's assigner and for its
// holder, who counts on no more than the last answer, when its time has run out: taken away
// any sooner, a key would have two owners. What it holds in other jobs ends with it; its
// holder takes that up anew in the next session, which is not refused for those.
func (s *Store) ownStill(ctx context.Context, x holder, job string) error {
	err := s.own(ctx, x.from, job, x.tasks[job])
	if status.Code(err) != codes.PermissionDenied {
		return nil // where it cannot be known it is as it was
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remote.endWatch(x.id, job, err)
	if s.table.Holds(x.id, job) {
		return err
	}
	return nil
}

// checkTasks looks at the names of tasks in a request.
func checkTasks(jobs []string, tasks map[string]string) error {
	for job, task := range tasks {
		if !slices.Contains(jobs, job) {
			return &assignment.FieldError{Field: "tasks", Value: assignment.Clip(job, 80), Allowed: "names of tasks in the session's jobs"}
		}
		if err := checkTask(task); err != nil {
			return err
		}
	}
	return nil
}

func checkTask(name string) error {
	if name != "" && !assignment.ValidToken(name, assignment.MaxNameLen) {
		return &assignment.FieldError{Field: "task", Value: assignment.Clip(name, 80), Allowed: "1 to 253 printable ASCII characters without space or slash"}
	}
	return nil
}
