package front

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/lease"
	etcdlease "github.com/slicer-project/slicer/lease/etcd"
	"github.com/slicer-project/slicer/lease/internal/rpc"
)

// own returns nil if a caller may be a job's task. The access of a job that has sessions
// here is the one that was looked up last, so that a renewal costs no read.
func (f *Front) own(ctx context.Context, o rpc.Origin, name, task string) error {
	if f.cfg.Access == nil {
		return rpc.Own(f.cfg.Rights, o, name, task, nil)
	}
	return rpc.Own(f.cfg.Rights, o, name, task, func() (assignment.Access, error) {
		f.mu.Lock()
		j := f.jobs[name]
		f.mu.Unlock()
		if j != nil {
			if a, ok := j.accessKnown(); ok {
				return a, nil
			}
		}
		if err := f.unknown(o.Peer); err != nil {
			return assignment.Access{}, err
		}
		a, err := f.cfg.Access(ctx, name)
		if err == nil {
			f.known(o.Peer)
			if j != nil {
				j.setAccess(a)
			}
		}
		return a, err
	})
}

// ownStill returns nil if a session may be renewed as far as its jobs go. The right to one
// may have been withdrawn since: then the session's watch of it ends, and if it holds
// something there it is not renewed. So it is over, for the job's assigner and for its
// holder, when its time has run out: taken away any sooner, a key would have two owners.
func (f *Front) ownStill(ctx context.Context, o rpc.Origin, x *session) error {
	type asking struct {
		name string
		as   rpc.Asked
	}
	var ask []asking
	policy, _ := f.cfg.Rights.Policy()
	f.mu.Lock()
	for name, p := range x.jobs {
		a := rpc.Asked{Policy: policy, Task: p.task}
		if f.cfg.Access != nil {
			a.Access, _ = p.job.accessKnown()
		}
		if policy != nil && a != p.may {
			ask = append(ask, asking{name, a})
		}
	}
	f.mu.Unlock()
	for _, q := range ask {
		err := f.own(ctx, o, q.name, q.as.Task)
		if err != nil && !refused(err) {
			continue // where it cannot be known it is as it was
		}
		f.mu.Lock()
		p := x.jobs[q.name]
		if err == nil {
			p.may = q.as
			f.mu.Unlock()
			continue
		}
		if p.watch != nil {
			p.watch.end(err)
		}
		holds := p.guard.claim != lease.Claim{} || p.bridge.claim != lease.Claim{}
		f.mu.Unlock()
		if holds {
			return err
		}
	}
	return nil
}

// refused reports whether an error is PERMISSION_DENIED of the policy. One of etcd's own is
// wrapped, and is another matter.
func refused(err error) bool {
	s, ok := err.(interface{ GRPCStatus() *status.Status })
	return ok && s.GRPCStatus().Code() == codes.PermissionDenied
}

// heldByOthers returns why a session that is new here is not renewed: it holds something, by
// etcd's records, in a job that its caller may not own.
func heldByOthers(refused map[string]error, held []etcdlease.Memory) error {
	for _, h := range held {
		if err := refused[h.Job]; err != nil && (h.Guard != etcdlease.Holding{} || h.Bridge != etcdlease.Holding{}) {
			return err
		}
	}
	return nil
}
