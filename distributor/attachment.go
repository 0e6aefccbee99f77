package distributor

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/distributor/fanout"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// heartbeat is the longest silence on a stream to an assigner. What tasks do
// during a longer one does not count against them.
const heartbeat = 500 * time.Millisecond

// attachment is one stream to an assigner, from its hello to its end; or, in the
// second tier, to a Distributor of the first that answers in an assigner's place.
type attachment struct {
	d *Distributor
	fanout.Peer
	zone    string
	address string
	conn    grpc.ClientConnInterface
	cancel  context.CancelFunc // ends the stream
	wake    chan struct{}      // holds a token when there is something to say

	// assemblers of assignments, and of bases, by job, are the receiver's.
	assemblers, bases map[string]*wire.Assembler

	mu sync.Mutex
	up fanout.Upstream
}

// newAttachment begins a stream to an assigner that has said hello.
func (d *Distributor) newAttachment(h *slicerv1.AssignerHello, firstTier bool, address string, conn grpc.ClientConnInterface, cancel context.CancelFunc) *attachment {
	return &attachment{
		d: d, Peer: fanout.Peer{ID: h.GetAssignerId(), FirstTier: firstTier}, zone: h.GetZone(), address: address, conn: conn, cancel: cancel,
		wake: make(chan struct{}, 1), assemblers: make(map[string]*wire.Assembler), bases: make(map[string]*wire.Assembler),
		up: fanout.NewUpstream(time.Now(), firstTier, h),
	}
}

// peer is what the core calls it.
func (a *attachment) peer() fanout.Peer {
	if a == nil {
		return fanout.Peer{}
	}
	return a.Peer
}

// notify enters what is to be said, and wakes the sender.
func (a *attachment) notify(what func(*fanout.Upstream)) {
	a.mu.Lock()
	what(&a.up)
	a.mu.Unlock()
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// acknowledged notes that the assigner hears this Distributor.
func (a *attachment) acknowledged(now time.Time) {
	a.mu.Lock()
	again := a.up.Acknowledged(now)
	a.mu.Unlock()
	if !again {
		return
	}
	a.d.mu.Lock()
	defer a.d.mu.Unlock()
	for _, j := range a.d.jobs {
		j.Notify()
	}
}

// lastAcknowledged is when the assigner is known to have heard this Distributor, zero for nil.
func (a *attachment) lastAcknowledged(now time.Time) time.Time {
	if a == nil {
		return time.Time{}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.up.LastAcknowledged(now)
}

// next is what to say next, nil for nothing.
func (a *attachment) next() (msgs []*slicerv1.AttachRequest, ok bool) {
	a.mu.Lock()
	views := a.up.PopViews()
	job, vacant, ok := "", false, false
	if !views {
		job, vacant, ok = a.up.Pop()
	}
	a.mu.Unlock()
	switch {
	case views:
		a.d.mu.Lock()
		defer a.d.mu.Unlock()
		return a.d.views.Messages(time.Now()), true
	case !ok:
		return nil, false
	}
	var tell fanout.Tell
	if j := a.d.lookup(job); j != nil {
		tell = j.step(time.Now(), fanout.PeerReady{Session: a.Session}).(fanout.Tell)
	} else if vacant {
		tell.Messages = fanout.Vacant(job)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.up.Say(job, tell), true
}

// send says what is to be said until the stream ends.
func (a *attachment) send(ctx context.Context, stream slicerv1.AssignerService_AttachClient) error {
	idle := time.NewTicker(heartbeat)
	defer idle.Stop()
	for {
		if msgs, ok := a.next(); ok {
			for _, m := range msgs {
				if err := stream.Send(m); err != nil {
					return err
				}
				idle.Reset(heartbeat)
			}
			continue
		}
		select {
		case <-a.wake:
		case <-idle.C:
			if err := stream.Send(fanout.ReportsRequest(&slicerv1.TaskReports{})); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
