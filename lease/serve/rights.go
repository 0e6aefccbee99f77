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
	return rpc.Own(s.rights, from, job, task, func() (assignment.Access, error) {
		t, err := s.look(ctx, job)
		return t.Access, err
	})
}

// owns is own where what the job's config says has been looked up.
func (s *Store) owns(from rpc.Origin, job, task string, t Terms) error {
	return rpc.Own(s.rights, from, job, task, func() (assignment.Access, error) { return t.Access, nil })
}

// ownStill returns nil if a session may be renewed as far as a job goes. The right to the job
// may have been withdrawn since: then the session's watch of it ends. A session that holds
// something in the job is not renewed. So it is over, for the job's assigner and for its
// holder, who counts on no more than the last answer, when its time has run out: taken away
// any sooner, a key would have two owners. What it holds in other jobs ends with it; its
// holder takes that up anew in the next session, which is not refused for those.
func (s *Store) ownStill(x holder, job string, t Terms) error {
	as := rpc.Asked{Access: t.Access, Task: x.tasks[job]}
	if as.Policy, _ = s.rights.Policy(); as.Policy == nil || s.mayStill(x.id, job, as) {
		return nil
	}
	err := s.owns(x.from, job, as.Task, t)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.remote.allow(x.id, job, as)
	}
	if status.Code(err) != codes.PermissionDenied {
		return nil
	}
	s.remote.endWatch(x.id, job, err)
	if s.table.Holds(x.id, job) {
		return err
	}
	return nil
}

// mayStill reports whether a session's right to a job was asked of the same before.
func (s *Store) mayStill(id uint64, job string, as rpc.Asked) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.remote.byID[id]
	return r != nil && r.may[job] == as
}
