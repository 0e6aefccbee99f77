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
// second tier, to a Distributor of the first that answers in an assigner's place. What is to
// be said on it is kept as the names of jobs, never as messages: the messages
// are made of what is newest when their turn comes.
type attachment struct {
	d        *Distributor
	number   fanout.Session
	id, zone string // the assigner's
	address  string
	upper    bool // it is to a Distributor of the first tier
	saysSo   bool // it says every second whether it hears us
	conn     grpc.ClientConnInterface
	cancel   context.CancelFunc // ends the stream
	wake     chan struct{}      // holds a token when a job has been marked

	// told are the jobs that this assigner is preferred for and has been, or is
	// being, told of completely. Guarded by Distributor.mu.
	told map[string]struct{}

	// assemblers of assignments, and of bases, by job, are the receiver's.
	assemblers, bases map[string]*wire.Assembler

	mu     sync.Mutex
	queue  []string            // marked jobs, oldest first
	marked map[string]struct{} // the same, as a set
	// vacant are marked jobs that nobody here subscribes to: the assigner is to
	// know that, too.
	vacant map[string]struct{}
	// beliefs: the assigner is to be told who is taken for preferred.
	beliefs bool
	heardAt time.Time // when the assigner last said that it hears us
}

// newAttachment begins a stream to an assigner that has said hello.
func (d *Distributor) newAttachment(h *slicerv1.AssignerHello, address string, conn grpc.ClientConnInterface, cancel context.CancelFunc) *attachment {
	return &attachment{
		d: d, id: h.GetAssignerId(), zone: h.GetZone(), address: address, conn: conn, cancel: cancel,
		saysSo: h.GetSaysHeard(), heardAt: d.host.now(),
		wake: make(chan struct{}, 1), told: make(map[string]struct{}), assemblers: make(map[string]*wire.Assembler),
		bases:  make(map[string]*wire.Assembler),
		marked: make(map[string]struct{}), vacant: make(map[string]struct{}),
	}
}

// peer is what the core calls it.
func (a *attachment) peer() fanout.Peer {
	if a == nil {
		return fanout.Peer{}
	}
	return fanout.Peer{Session: a.number, ID: a.id, Upper: a.upper}
}

// mark has the job looked at when its turn comes.
func (a *attachment) mark(job string) {
	a.mu.Lock()
	a.markLocked(job)
	a.mu.Unlock()
	a.poke()
}

// markVacant has the assigner told that nobody here subscribes to the job.
func (a *attachment) markVacant(job string) {
	a.mu.Lock()
	a.markLocked(job)
	a.vacant[job] = struct{}{}
	a.mu.Unlock()
	a.poke()
}

func (a *attachment) markLocked(job string) {
	if _, marked := a.marked[job]; !marked {
		a.marked[job] = struct{}{}
		a.queue = append(a.queue, job)
	}
}

func (a *attachment) poke() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
	if f := a.d.host.woke; f != nil {
		f()
	}
}

// pop returns the job whose turn it is.
func (a *attachment) pop() (job string, vacant, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch len(a.queue) {
	case 0:
		return "", false, false
	case 1:
		job, a.queue = a.queue[0], a.queue[:0] // its room is for the next one
	default:
		job, a.queue = a.queue[0], a.queue[1:]
	}
	_, vacant = a.vacant[job]
	delete(a.marked, job)
	delete(a.vacant, job)
	return job, vacant, true
}

// send says what is to be said until the stream ends.
func (a *attachment) send(ctx context.Context, stream slicerv1.AssignerService_AttachClient) error {
	idle := time.NewTicker(heartbeat)
	defer idle.Stop()
	wanted := make(map[string]struct{}) // jobs that this stream holds a Want for
	for {
		for _, m := range a.popBeliefs(a.d.host.now()) {
			if err := stream.Send(m); err != nil {
				return err
			}
			idle.Reset(heartbeat)
		}
		if job, vacant, ok := a.pop(); ok {
			for _, m := range a.messages(job, vacant, wanted) {
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

// messages is what the assigner is to know of a job now.
func (a *attachment) messages(name string, vacant bool, wanted map[string]struct{}) []*slicerv1.AttachRequest {
	var msgs []*slicerv1.AttachRequest
	j := a.d.lookup(name)
	asked := false
	if j != nil {
		tell := j.step(a.d.host.now(), fanout.PeerReady{Session: a.number}).(fanout.Tell)
		msgs, asked = tell.Messages, tell.Target
	} else if vacant {
		msgs = fanout.Vacant(name)
	}
	_, was := wanted[name]
	switch {
	case asked:
		wanted[name] = struct{}{}
	case was:
		delete(wanted, name)
		msgs = append(msgs, fanout.WantRequest(&slicerv1.Want{Job: name, Stop: true}))
	}
	return msgs
}
