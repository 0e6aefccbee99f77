package distributor

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

// downstreamWant is a job that a Distributor of the second tier wants: a subscription to
// it, entered again when it has ended because the job was unknown.
type downstreamWant struct {
	b       *downstream
	job     string
	stopped chan struct{} // closed when it is not wanted any more

	mu   sync.Mutex
	said *slicerv1.Want // the last
	sub  *subscription  // nil while it is not entered
}

func (w *downstreamWant) run() {
	for again := true; again; {
		err := w.subscribe()
		if status.Code(err) == codes.NotFound {
			w.b.put(&slicerv1.AttachResponse{Message: &slicerv1.AttachResponse_Status{Status: &slicerv1.JobStatus{Job: w.job, Unknown: true}}})
		}
		again = w.pause(backoff.Jitter(2 * fanout.UnknownFor))
	}
}

// pause waits, and reports whether the job is still wanted.
func (w *downstreamWant) pause(d time.Duration) bool {
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
func (w *downstreamWant) subscribe() error {
	d := w.b.d
	j, err := d.acquire(w.job, "") // the other Distributor has its own limit
	if err != nil {
		return err
	}
	defer d.release(j)
	s := &subscription{
		id: d.given.subscribers.Add(1), job: j, done: make(chan struct{}),
		in: fanout.Hello{Job: w.job, Role: slicerv1.Role_ROLE_OBSERVER, Name: "distributor " + w.b.id, Index: -1},
	}
	s.stream = carrier{send: func(m *slicerv1.WatchResponse) { w.pass(s, m) }}
	w.mu.Lock()
	s.in.Held, s.in.Checksum = heldBy(w.said)
	reported := reportedIn(w.said)
	w.sub = s
	w.mu.Unlock()
	if err := j.join(time.Now(), s); err != nil {
		return err
	}
	j.step(time.Now(), fanout.HeldElsewhere{Held: reported})
	select {
	case <-s.done:
		err = s.err
	case <-w.stopped:
	case <-w.b.done:
	}
	w.mu.Lock()
	w.sub = nil
	w.mu.Unlock()
	j.leave(time.Now(), s.id)
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
func (w *downstreamWant) anew(now time.Time, m *slicerv1.Want) {
	w.mu.Lock()
	w.said = m
	s := w.sub
	w.mu.Unlock()
	if s == nil {
		return // it will be entered with that
	}
	held, sum := heldBy(m)
	s.job.step(now, fanout.Holds{ID: s.id, Held: held, Checksum: sum})
	s.job.step(now, fanout.HeldElsewhere{Held: reportedIn(m)})
}

// reportedIn is the newest that a slicelet of another Distributor holds.
func reportedIn(m *slicerv1.Want) fanout.Version {
	return fanout.Version{Store: m.GetNewestReportedStoreId(), Gen: assignment.Generation(m.GetNewestReported())}
}

// pass sends on what a subscriber is sent. Assignments count as taken when they are
// sent: what does not decode is asked for anew.
func (w *downstreamWant) pass(s *subscription, m *slicerv1.WatchResponse) {
	j, now := s.job, time.Now()
	if m.GetStatus() != nil {
		j.mu.Lock()
		st := j.core.Status()
		j.mu.Unlock()
		if st != nil {
			w.b.put(&slicerv1.AttachResponse{Message: &slicerv1.AttachResponse_Status{Status: st}})
		}
		return
	}
	p := piece(m)
	p.Job = w.job
	t := m.GetTrailer()
	if t != nil {
		p.AgeUs = j.age(now, assignment.Generation(t.GetGeneration())).Microseconds()
	}
	if w.b.put(&slicerv1.AttachResponse{Message: &slicerv1.AttachResponse_Assignment{Assignment: p}}) && t != nil {
		j.step(now, fanout.Acked{ID: s.id, Gen: assignment.Generation(t.GetGeneration())})
	}
}
