package access

import (
	"strings"

	"github.com/slicer-project/slicer/assignment"
)

// Question is whether an identity may do something with a job.
type Question struct {
	Identity Identity
	Verb     assignment.Verb
	Job      string
	// Access is what the job's config says, the zero value if it says nothing, or if there is
	// no such job.
	Access assignment.Access
	// Task is that which the identity wants to be, with Own; else "".
	Task string
}

// May reports whether a policy allows what is asked, and by which rule, for logs and
// operators: never for the peer that is refused.
//
// Administrators may do everything with jobs. The control plane's own processes may watch
// and read all jobs, and do what they are asked to do by others: that is not decided here by
// their identity. All others may do what the job's access says, or, for a job without, what
// the policy says.
func (p *Policy) May(q Question) (rule string, ok bool) {
	if p == nil {
		return "no policy", true
	}
	id := string(q.Identity)
	if pattern, ok := match(p.admin, id); ok {
		return "policy admin: " + pattern, true
	}
	if q.Verb == assignment.Watch || q.Verb == assignment.Read {
		if pattern, ok := match(p.plane, id); ok {
			return "policy plane: " + pattern, true
		}
	}
	from, access := ofJob, q.Access
	if access == (assignment.Access{}) {
		from, access = "policy jobs, ", p.jobs
	}
	if by, pattern, ok := access.Allows(q.Verb, id, q.Job, q.Task); ok {
		return from + by.String() + ": " + pattern, true
	}
	return from + "no pattern", false
}

// ofJob begins the rules that are of a job's own access.
const ofJob = "access of the job, "

// OfJob reports whether a rule that May has returned is of the job's own access, which those
// that may read the job see in its config.
func OfJob(rule string) bool { return strings.HasPrefix(rule, ofJob) }

// Bound reports whether a job's tasks can each be of one identity alone, by its name: there is
// one pattern for own, which has {task} in it and nothing else that varies. a is what the job's
// config says, as in a Question. Administrators, who may be any task, are left out.
func (p *Policy) Bound(a assignment.Access) bool {
	if p == nil {
		return false
	}
	if a == (assignment.Access{}) {
		a = p.jobs
	}
	own := a.Of(assignment.Own)
	return len(own) == 1 && strings.Contains(own[0], "{task}") && !strings.Contains(own[0], "*")
}

// Plane reports whether an identity is one of the control plane's own: an assigner, a
// Distributor of either tier, a Backup Distributor.
func (p *Policy) Plane(id Identity) bool {
	return p == nil || matches(p.plane, id)
}

// Admin reports whether an identity may do everything with jobs.
func (p *Policy) Admin(id Identity) bool {
	return p == nil || matches(p.admin, id)
}

// Carrier reports whether the connections of an identity carry the streams of many: it is
// the control plane's, or that of a proxy that the policy names.
func (p *Policy) Carrier(id Identity) bool {
	return p != nil && (matches(p.plane, id) || matches(p.proxies, id))
}

// Bounds are those of an identity. Without a policy there are none, which 0 stands for.
func (p *Policy) Bounds(id Identity) Bounds {
	if p == nil {
		return Bounds{}
	}
	for _, b := range p.bounds {
		if assignment.MatchIdentity(b.pattern, string(id), "", "") {
			return b.Bounds
		}
	}
	return defaultBounds
}

func match(patterns []string, id string) (pattern string, ok bool) {
	for _, p := range patterns {
		if assignment.MatchIdentity(p, id, "", "") {
			return p, true
		}
	}
	return "", false
}

func matches(patterns []string, id Identity) bool {
	_, ok := match(patterns, string(id))
	return ok
}
