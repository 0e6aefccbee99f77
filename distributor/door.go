package distributor

import (
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// When a Distributor has restarted all its subscribers come at once. Each is little
// work, but ten thousand at a time make whatever else there is to do wait: reports,
// and changes for those who are back already. So the door lets in a limited number
// that have not been served yet, slicelets at once, since a task that is not heard
// counts as dead before long, and all others in the order in which they came. Who
// has waited for too long, or finds too many waiting, is told when to come back.
const (
	// maxUnserved is how many may be inside that have not been served yet.
	maxUnserved = 256
	// maxAtDoor is how many wait.
	maxAtDoor = 1 << 14
	// atDoorFor is how long they do: well below the 15 s in which a subscriber
	// expects a first word.
	atDoorFor = 5 * time.Second
	// comeBackIn is what those who are sent away are told, the least and the most.
	comeBackMin = time.Second
	comeBackMax = 4 * time.Second
)

// door admits subscribers. Safe for concurrent use.
type door struct {
	limit int // maxUnserved, save in tests

	mu     sync.Mutex
	inside int // let in and not served yet
	queue  []*waiter
	gone   int // of the queue, those who wait no more
}

type waiter struct {
	in   chan struct{} // closed when it is let in
	let  bool
	gone bool
}

func newDoor() *door { return &door{limit: maxUnserved} }

// enter lets a subscriber in, now or when its turn comes: once it has been served,
// or has gone, served is to be called. The error is what ends its stream.
func (d *door) enter(role slicerv1.Role, gone, stop <-chan struct{}) (served func(), err error) {
	d.mu.Lock()
	if role == slicerv1.Role_ROLE_SLICELET || d.inside < d.limit && len(d.queue) == d.gone {
		d.inside++
		d.mu.Unlock()
		return sync.OnceFunc(d.served), nil
	}
	if len(d.queue)-d.gone >= maxAtDoor {
		d.mu.Unlock()
		return nil, comeBack()
	}
	w := &waiter{in: make(chan struct{})}
	d.queue = append(d.queue, w)
	d.mu.Unlock()
	patient := time.NewTimer(atDoorFor)
	defer patient.Stop()
	select {
	case <-w.in:
		return sync.OnceFunc(d.served), nil
	case <-patient.C:
		err = comeBack()
	case <-gone:
		err = status.Error(codes.Canceled, "the subscriber has gone")
	case <-stop:
		err = errClosing
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if w.let {
		return sync.OnceFunc(d.served), nil
	}
	w.gone = true
	d.gone++
	return nil, err
}

// served has the next ones let in.
func (d *door) served() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.inside--
	for d.inside < d.limit && len(d.queue) > 0 {
		w := d.queue[0]
		d.queue = d.queue[1:]
		if w.gone {
			d.gone--
			continue
		}
		w.let = true
		close(w.in)
		d.inside++
	}
	if len(d.queue) == 0 {
		d.queue = nil
	}
}

// waiting is how many are at the door.
func (d *door) waiting() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.queue) - d.gone
}

// isComeBack says whether a stream ends so, and when the subscriber is to be back.
func isComeBack(err error) (after time.Duration, is bool) {
	for _, d := range status.Convert(err).Details() {
		if m, ok := d.(*slicerv1.ComeBack); ok {
			return time.Duration(m.GetAfterMs()) * time.Millisecond, true
		}
	}
	return 0, false
}

// comeBack sends a subscriber away for a while.
func comeBack() error {
	after := comeBackMin + rand.N(comeBackMax-comeBackMin)
	s := status.New(codes.Unavailable, "too many subscribers have come at once")
	if with, err := s.WithDetails(&slicerv1.ComeBack{AfterMs: after.Milliseconds()}); err == nil {
		s = with
	}
	return s.Err()
}
