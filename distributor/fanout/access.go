package fanout

import (
	"log/slog"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// Access is what the job's config says of rights, as an assigner has said last, whether or
// not it is still attached; known is false before the first answer, and where there is no
// such job.
func (j *Job) Access() (a assignment.Access, known bool) {
	if j.up.answer.access == nil {
		return a, false
	}
	return *j.up.answer.access, true
}

// askAccess answers as fetch does: what was known before an assigner was lost is good, and
// that there is no such job is believed for a while.
func (j *Job) askAccess(now time.Time, e AccessAsked) {
	access, known := j.Access()
	switch {
	case known, j.up.unknown() && now.Sub(j.up.answer.at) < UnknownFor:
		j.do(Access{Access: access})
	case e.Waited:
		j.do(Access{Err: j.up.unavailable()})
	case j.up.answer.unknown:
		j.up.askAnew(now)
		j.due = true
	}
}

// hearAccess takes what the assigner says of rights. What is not well formed changes
// nothing: who was not allowed before is not now.
func (u *upward) hearAccess(m *slicerv1.JobStatus) {
	before := u.answer.access
	if before != nil && proto.Equal(u.answer.status.GetAccess(), m.GetAccess()) {
		return
	}
	a, err := wire.AccessFromProto(m.GetAccess())
	if err != nil {
		u.say(slog.LevelError, "rights of the job are malformed, they are left as they were", "error", err)
		return
	}
	if before != nil && *before == a {
		return
	}
	u.answer.access = &a
	u.do(AccessChanged{})
	if before == nil {
		return
	}
	// Distributors of the second tier get it with the status, which is the same to all others.
	for _, s := range u.subs.all {
		if s.in.Role == slicerv1.Role_ROLE_OBSERVER {
			s.repeat = true
			u.down.wake(s)
		}
	}
}
