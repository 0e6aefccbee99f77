package enforce

import (
	"fmt"
	"net/netip"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/access"
)

// Check returns nil if the caller may do what is asked, and else PERMISSION_DENIED, which
// names identity, verb and job, and no rule. Those that may read the job learn besides where
// the rule is to be seen. The question's identity is the caller's.
func (r *Rights) Check(c Caller, q access.Question) error {
	rule, ok := r.May(c, q)
	if ok {
		return nil
	}
	r.refuse(c, refusal{q.Verb.String(), rule, q.Job, q.Task, ""})
	return status.Errorf(codes.PermissionDenied, "identity %s may not %s job %s%s%s", c.Identity, q.Verb, q.Job, asTask(q.Task), r.advice(c, q))
}

func asTask(name string) string {
	if name == "" {
		return ""
	}
	return " as task " + name
}

// advice is what to do about a refusal. What it says to a caller that may not read the job
// does not depend on the job.
func (r *Rights) advice(c Caller, q access.Question) string {
	if c.Nameless != access.Named {
		return because(c)
	}
	verb := q.Verb
	q.Verb, q.Task = assignment.Read, ""
	if _, reads := r.May(c, q); !reads {
		return ""
	}
	if q.Access == (assignment.Access{}) {
		return ": the policy decides, and an administrator's slicerctl access check tells by which rule"
	}
	return fmt.Sprintf(": slicerctl access check %s --verb %s tells by which rule", q.Job, verb)
}

// because says why an identity is none.
func because(c Caller) string {
	if c.Nameless == access.Named {
		return ""
	}
	return ": " + string(c.Nameless)
}

// CheckPlane returns nil if the caller's peer is one of the control plane's, and else
// PERMISSION_DENIED.
func (r *Rights) CheckPlane(c Caller, method string) error {
	if r == nil || c.Plane {
		return nil
	}
	r.refuse(c, refusal{verb: "plane", rule: "policy plane: no pattern", method: method})
	return status.Errorf(codes.PermissionDenied, "identity %s may not be part of the control plane (%s)%s", c.Identity, method, because(c))
}

// CheckNamed returns nil if the caller has an identity, and else PERMISSION_DENIED: it is
// for what is about no job and for all that the authority knows.
func (r *Rights) CheckNamed(c Caller, method string) error {
	if policy, _ := r.Policy(); policy == nil || c.Identity != access.Anonymous || c.own {
		return nil
	}
	r.refuse(c, refusal{verb: assignment.Read.String(), rule: "anonymous", method: method})
	return status.Errorf(codes.PermissionDenied, "identity %s may not call %s, which takes a certificate with a name%s", c.Identity, method, because(c))
}

// CheckAdmin returns nil if the caller's peer is an administrator of the policy in force, and
// else PERMISSION_DENIED. Without a policy it lets what comes from this machine alone: it is
// for what concerns the process itself, such as its profiles, and nothing else would keep
// strangers out.
func (r *Rights) CheckAdmin(c Caller, what string) error {
	policy, _ := r.Policy()
	switch {
	case policy == nil && loopback(c.Address), policy != nil && policy.Admin(c.Identity):
		return nil
	case policy == nil:
		return status.Errorf(codes.PermissionDenied, "%s is for callers on this machine, unless there is a policy that names administrators", what)
	}
	r.refuse(c, refusal{verb: "admin", rule: "policy admin: no pattern", method: what})
	return status.Errorf(codes.PermissionDenied, "identity %s may not call %s, which is for administrators%s", c.Identity, what, because(c))
}

// loopback reports whether an address, host:port, is of this machine alone.
func loopback(address string) bool {
	at, err := netip.ParseAddrPort(address)
	return err == nil && at.Addr().Unmap().IsLoopback()
}

// RefuseName returns PERMISSION_DENIED for a peer of the control plane that takes a name
// which is another one's for now: whose is in the log alone.
func (r *Rights) RefuseName(c Caller, method, name string, whose access.Identity) error {
	r.refuse(c, refusal{verb: "plane", rule: fmt.Sprintf("%s is %s", name, whose), method: method})
	return status.Errorf(codes.PermissionDenied, "identity %s may not be %s (%s): another identity is", c.Identity, name, method)
}
