package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/lease"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

type session struct {
	s      *Store
	secret []byte // the right to the session: never logged
	id     uint64 // of its hash
	asked  time.Duration
	ttl    atomic.Int64
	memory *memory
	lost   atomic.Pointer[error] // what has told that it is; it stays lost

	renewals *renewals

	mu      sync.Mutex
	watches map[*watcher]struct{} // that are not closed
}

func (n *session) ID() uint64         { return n.id }
func (n *session) TTL() time.Duration { return time.Duration(n.ttl.Load()) }

// KeepAlive tries each server once while ctx lasts. The caller counts from before the
// first try, so what a later one grants counts from earlier than it was asked for.
func (n *session) KeepAlive(ctx context.Context) (err error) {
	for range n.s.servers {
		at := n.s.server()
		var granted time.Duration
		if granted, err = n.renewals.renew(ctx, at); err == nil {
			// No more is believed than was asked for; what is not positive grants nothing.
			n.ttl.Store(int64(min(granted, n.asked)))
			return nil
		}
		if !silent(err) && ctx.Err() == nil {
			return n.explain(ctx, err)
		}
		n.s.leave(at)
	}
	return n.explain(ctx, err)
}

// renew asks a server to renew the lease, which it may not know yet.
func (n *session) renew(ctx context.Context, at *server) (granted time.Duration, err error) {
	if lost := n.lost.Load(); lost != nil {
		return 0, *lost
	}
	req, version := n.memory.request(n.secret)
	resp, err := at.RenewSession(ctx, req)
	return n.renewed(resp, err, version)
}

// renewed takes the answer to a renewal with a version of the memory.
func (n *session) renewed(resp *slicerv1.RenewSessionResponse, err error, version int) (time.Duration, error) {
	switch {
	case err == nil:
		n.memory.reached(resp.GetRevision())
		return millis(resp.GetTtlMs()), nil
	case status.Code(err) == codes.DataLoss && n.memory.changed(version):
		// What was remembered was not so any more when it was compared.
		return 0, status.Error(codes.Aborted, "claims changed hands meanwhile: "+status.Convert(err).Message())
	}
	return 0, err
}

// explain maps an error onto the contract's. A session that is lost stays so.
func (n *session) explain(ctx context.Context, err error) error {
	if errors.Is(err, lease.ErrLost) {
		return err
	}
	if err = explain(ctx, err); errors.Is(err, lease.ErrLost) {
		n.lost.CompareAndSwap(nil, &err)
	}
	return err
}

// call makes a call, to a server that does not know the session after a renewal. It is
// made once: of a second one it could not be told which of the two is carried out last.
func (n *session) call(ctx context.Context, f func(at *server) error) error {
	if lost := n.lost.Load(); lost != nil {
		return *lost
	}
	at := n.s.server()
	err := f(at)
	if status.Code(err) == codes.Aborted {
		// Nothing has been carried out. This renewal counts for nothing else.
		if _, err = n.renew(ctx, at); err == nil {
			err = f(at)
		}
	}
	return n.explain(ctx, err)
}

func (n *session) Join(ctx context.Context, job string) error { return n.JoinAs(ctx, job, "") }

// JoinAs implements lease.TaskSession.
func (n *session) JoinAs(ctx context.Context, job, task string) error {
	if was, joined := n.memory.joined(job); joined && (was == task || task == "") {
		return nil
	}
	err := n.call(ctx, func(at *server) error {
		_, err := at.JoinJob(ctx, &slicerv1.JoinJobRequest{Session: n.secret, Job: job, Task: task})
		return err
	})
	if err == nil {
		n.memory.join(job, task)
	}
	return err
}

func (n *session) Close(ctx context.Context) error {
	defer n.renewals.end()
	return n.call(ctx, func(at *server) error {
		_, err := at.CloseSession(ctx, &slicerv1.CloseSessionRequest{Session: n.secret})
		return err
	})
}

func (n *session) Acquire(ctx context.Context, job string, c lease.Claim) (seen lease.Seen, ok bool, err error) {
	n.memory.begin()
	var resp *slicerv1.AcquireClaimResponse
	err = n.call(ctx, func(at *server) (err error) {
		resp, err = at.AcquireClaim(ctx, &slicerv1.AcquireClaimRequest{Session: n.secret, Job: job, Claim: claim(c)})
		return err
	})
	if err != nil {
		return lease.Seen{}, false, err
	}
	if seen, err = records(resp.GetRecords()); err != nil {
		return lease.Seen{}, false, err
	}
	n.memory.tell(job, seen, resp.GetRecords().GetFingerprint())
	if resp.GetAcquired() {
		n.memory.hold(job, c, resp.GetCreated())
	}
	return seen, resp.GetAcquired(), nil
}

func (n *session) Release(ctx context.Context, job string, c lease.Claim) error {
	n.memory.drop(job, c)
	return n.call(ctx, func(at *server) error {
		_, err := at.ReleaseClaim(ctx, &slicerv1.ReleaseClaimRequest{Session: n.secret, Job: job, Claim: claim(c)})
		return err
	})
}

func claim(c lease.Claim) *slicerv1.Claim {
	return &slicerv1.Claim{From: int64(c.From), To: int64(c.To)}
}

// records decodes what the network brings.
func records(r *slicerv1.LeaseRecords) (lease.Seen, error) {
	s := lease.Seen{
		Revision: r.GetRevision(),
		Guard:    lease.Guard{Generation: assignment.Generation(r.GetGuard()), Open: r.GetGuardOpen()},
		Bridge:   lease.Bridge{From: assignment.Generation(r.GetBridgeFrom()), To: assignment.Generation(r.GetBridgeTo()), Open: r.GetBridgeOpen()},
	}
	g, b := s.Guard, s.Bridge
	bad := s.Revision < 0 || g.Generation < 0 || g.Generation > assignment.MaxGeneration || g.Generation == 0 && g.Open ||
		b != lease.Bridge{} && (b.From <= 0 || b.To <= b.From || b.To > assignment.MaxGeneration)
	if bad {
		return lease.Seen{}, fmt.Errorf("%w: guard %+v, bridge %+v, revision %d", lease.ErrCorrupt, g, b, s.Revision)
	}
	return s, nil
}
