package distributor

import (
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
)

// When a Distributor has restarted all its subscribers come at once. What that costs
// is connections: handshakes and buffers on both sides, half a millisecond of CPU time
// each, and whatever else there is to do waits for as many of them as have begun. So a
// few are begun at a time, as many as keep the machine busy, and the next when one of
// them has been served: the pace is what the machine can do, whatever that is. And
// while a change is on its way to those who are in, hardly any are begun at all. The
// others wait where they cost nothing, in the kernel, in the order in which they came;
// whom that takes too long tries again later, at random.
const (
	// maxSetUps is how many connections are being set up at once.
	maxSetUps = 64
	// fewSetUps is how many while those who are in wait for a change.
	fewSetUps = 2
	// setUpFor is how long a connection counts as being set up at most: it may be for
	// something else than a subscription, or its other end may be slow.
	setUpFor = time.Second
	// changeFor is how long a change holds others up at most: by then it is to have
	// reached everybody, and who does not read it is not to be waited for.
	changeFor = time.Second
)

// door admits connections. Safe for concurrent use.
type door struct {
	limit int // maxSetUps, save in tests
	few   int // fewSetUps, save in tests

	gauge prometheus.Gauge // of setUps

	mu      sync.Mutex
	setUps  int
	changes map[*job]time.Time // that those who are in wait for, until when at most
	moved   chan struct{}      // closed and replaced when somebody may come in
	wait    bool               // somebody looks at moved
}

func newDoor(setUps prometheus.Gauge) *door {
	return &door{limit: maxSetUps, few: fewSetUps, gauge: setUps, changes: make(map[*job]time.Time), moved: make(chan struct{})}
}

// Admit returns a listener for the server that Register is called with to serve on in
// place of lis. It admits connections no faster than they can be served: after a
// restart all subscribers come at once.
func (d *Distributor) Admit(lis net.Listener) net.Listener {
	return &admission{Listener: lis, door: d.door, closed: make(chan struct{})}
}

type admission struct {
	net.Listener
	door   *door
	once   sync.Once
	closed chan struct{}
}

// Accept waits for room before it takes the next connection.
func (a *admission) Accept() (net.Conn, error) {
	if !a.door.enter(a.closed) {
		return nil, net.ErrClosed
	}
	c, err := a.Listener.Accept()
	if err != nil {
		a.door.leave()
		return nil, err
	}
	setUserTimeout(c)
	return admitted{c, a.door.begin(c.RemoteAddr())}, nil
}

func (a *admission) Close() error {
	a.once.Do(func() { close(a.closed) })
	return a.Listener.Close()
}

// admitted is a connection that was let in.
type admitted struct {
	net.Conn
	setUp *setUp
}

// RemoteAddr is where the handlers of its streams find the set-up.
func (a admitted) RemoteAddr() net.Addr { return a.setUp }

func (a admitted) Close() error {
	a.setUp.over()
	return a.Conn.Close()
}

// setUp is a connection's way from its acceptance until its subscriber is served.
type setUp struct {
	net.Addr // of the other end
	door     *door

	// Guarded by door.mu.
	late  *time.Timer
	ended bool
}

// setUpOf is the set-up of a stream's connection, nil if it did not come through a door.
func setUpOf(stream grpc.ServerStream) *setUp {
	p, _ := peer.FromContext(stream.Context())
	if p == nil {
		return nil
	}
	s, _ := p.Addr.(*setUp)
	return s
}

// over says that it is, for the first time or once more.
func (s *setUp) over() {
	if s == nil {
		return
	}
	s.door.mu.Lock()
	defer s.door.mu.Unlock()
	if !s.ended {
		s.ended = true
		s.late.Stop()
		s.door.leaveLocked()
	}
}

// enter waits until there is room for one more set-up, and says whether there is before
// stop is closed.
func (d *door) enter(stop <-chan struct{}) bool {
	for {
		d.mu.Lock()
		now := time.Now()
		room, until := d.room(now)
		if d.setUps < room {
			d.setUps++
			d.gauge.Set(float64(d.setUps))
			d.mu.Unlock()
			return true
		}
		d.wait = true
		moved := d.moved
		d.mu.Unlock()
		var late <-chan time.Time
		if !until.IsZero() {
			late = time.After(until.Sub(now))
		}
		select {
		case <-moved:
		case <-late:
		case <-stop:
			return false
		}
	}
}

// begin is called for who has entered.
func (d *door) begin(from net.Addr) *setUp {
	s := &setUp{Addr: from, door: d}
	d.mu.Lock()
	defer d.mu.Unlock()
	s.late = time.AfterFunc(setUpFor, s.over)
	return s
}

// leave takes back an enter that came to nothing.
func (d *door) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.leaveLocked()
}

func (d *door) leaveLocked() {
	d.setUps--
	d.gauge.Set(float64(d.setUps))
	d.moveLocked()
}

func (d *door) moveLocked() {
	if d.wait {
		d.wait = false
		close(d.moved)
		d.moved = make(chan struct{})
	}
}

// room is how many may be set up now, and until when if that is for a change's sake.
func (d *door) room(now time.Time) (n int, until time.Time) {
	for _, at := range d.changes {
		if at.After(now) {
			until = sooner(until, at)
		}
	}
	if until.IsZero() {
		return d.limit, until
	}
	return d.few, until
}

// changing says that those of a job who are in wait for what has come just now.
func (d *door) changing(now time.Time, j *job) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.changes[j] = now.Add(changeFor)
}

// changed says that they wait no more.
func (d *door) changed(j *job) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.changes, j)
	d.moveLocked()
}
