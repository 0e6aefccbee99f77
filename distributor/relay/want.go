package relay

import (
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/backoff"
	"github.com/slicer-project/slicer/distributor/fanout"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// want is a job that a Distributor of the second tier wants: a subscription to it, entered
// again when it has ended because the job was unknown.
type want struct {
	b       *downstream
	job     string
	stopped chan struct{} // closed when it is not wanted any more

	mu   sync.Mutex
	said *slicerv1.Want // the last
	feed Feed           // nil while it is not entered
}

func (w *want) run() {
	for again := true; again; {
		err := w.subscribe()
		if status.Code(err) == codes.NotFound {
			w.b.put(&slicerv1.AttachResponse{Message: &slicerv1.AttachResponse_Status{Status: &slicerv1.JobStatus{Job: w.job, Unknown: true}}})
		}
		again = w.pause(backoff.Jitter(2 * fanout.UnknownFor))
	}
}

// pause waits, and reports whether the job is still wanted.
func (w *want) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-w.stopped:
	case <-w.b.done:
	}
	return false
}

// subscribe sends what there is of the job until the job is unknown, or not wanted any
// more.
func (w *want) subscribe() error {
	in := fanout.Hello{Job: w.job, Role: slicerv1.Role_ROLE_OBSERVER, Name: "distributor " + w.b.id, Index: -1}
	w.mu.Lock()
	in.Held, in.Checksum = heldBy(w.said)
	in.Compressed = w.said.GetCompressed()
	reported := reportedIn(w.said)
	feed, err := w.b.s.cfg.Source.Join(w.job, in, w.pass)
	w.feed = feed
	w.mu.Unlock()
	if err != nil {
		return err
	}
	feed.HeldElsewhere(time.Now(), reported)
	select {
	case <-feed.Done():
		err = feed.Err()
	case <-w.stopped:
	case <-w.b.done:
	}
	w.mu.Lock()
	w.feed = nil
	w.mu.Unlock()
	feed.Leave(time.Now())
	return err
}

// heldBy is what a Want says that is held.
func heldBy(m *slicerv1.Want) (fanout.Version, uint64) {
	if m.GetGeneration() == 0 {
		return fanout.Version{}, 0
	}
	return fanout.Version{Store: m.GetStoreId(), Gen: assignment.Generation(m.GetGeneration())}, m.GetChecksum()
}

// anew takes a Want for a job that is wanted already. What it says is held counts: it
// may have let go of what it was sent.
func (w *want) anew(now time.Time, m *slicerv1.Want) {
	w.mu.Lock()
	w.said = m
	feed := w.feed
	w.mu.Unlock()
	if feed == nil {
		return // it will be entered with that
	}
	held, sum := heldBy(m)
	feed.Holds(now, held, sum, m.GetCompressed())
	feed.HeldElsewhere(now, reportedIn(m))
}

// reportedIn is the newest that a slicelet of another Distributor holds.
func reportedIn(m *slicerv1.Want) fanout.Version {
	return fanout.Version{Store: m.GetNewestReportedStoreId(), Gen: assignment.Generation(m.GetNewestReported())}
}

// pass sends on what a subscriber is sent. Assignments count as taken when they are
// sent: what does not decode is asked for anew.
func (w *want) pass(feed Feed, m *slicerv1.WatchResponse) {
	now := time.Now()
	if m.GetStatus() != nil {
		if st := feed.Status(); st != nil {
			w.b.put(&slicerv1.AttachResponse{Message: &slicerv1.AttachResponse_Status{Status: st}})
		}
		return
	}
	p := piece(m)
	p.Job = w.job
	t := m.GetTrailer()
	if t != nil {
		p.AgeUs = feed.Age(now, assignment.Generation(t.GetGeneration())).Microseconds()
	}
	if w.b.put(&slicerv1.AttachResponse{Message: &slicerv1.AttachResponse_Assignment{Assignment: p}}) && t != nil {
		feed.Took(now, assignment.Generation(t.GetGeneration()))
	}
}
