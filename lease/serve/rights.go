package serve

import (
	"context"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/lease/internal/rpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// own returns nil if a caller may be a job's task, PERMISSION_DENIED if not, and
// ErrUnavailable if that cannot be known.
func (s *Store) own(ctx context.Context, from rpc.Origin, job, task string) error {
	if s.access == nil {
		return rpc.Own(s.rights, from, job, task, nil)
	}
	return rpc.Own(s.rights, from, job, task, func() (assignment.Access, error) { return s.access(ctx, job) })
}

// ownAny returns those of the jobs that a caller may take part in, and why not in another.
func (s *Store) ownAny(ctx context.Context, from rpc.Origin, jobs []string, tasks map[string]string) (may []string, refused error) {
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
