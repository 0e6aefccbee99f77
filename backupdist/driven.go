package backupdist

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// Driven is a Backup Distributor of one store without clock, goroutine, network and
// store: its driver says what happens and when, carries messages, and reads the
// store for it. It decides by the very code that New's does; what it leaves out is
// how the store is watched, Fetch and AdminService. The same events give the same
// messages. It is not safe for concurrent use.
//
// Step is to be called after every other call, and when the time has come that it
// returned last.
type Driven struct {
	s     *Server
	rng   *rand.Rand
	jobs  []*drivenJob // in order of name
	peers []*SubscriberPeer
}

type drivenJob struct {
	*job
	pace pace
	old  *state // what was held when the reading under way began, nil if there is none
	idle bool   // nobody needed it then
}

// SubscriberPeer is a stream of a subscriber.
type SubscriberPeer struct {
	c        *client
	j        *job
	end      func(error)
	waited   bool
	waitTill time.Time
	repeat   time.Time // when the status is said again
}

// Loaded is what the store says of a job. Assignment may be nil.
type Loaded struct {
	Err        error
	Exists     bool
	Job        store.Job
	Assignment *assignment.Assignment
}

// NewDriven makes one. The seed is of its waits.
func NewDriven(seed uint64) (*Driven, error) {
	m, err := newMetrics(nil)
	if err != nil {
		return nil, err
	}
	v := &Driven{rng: rand.New(rand.NewPCG(seed, 0))}
	v.s = &Server{log: slog.New(slog.DiscardHandler), m: m, life: context.Background(), jobs: make(map[string]*job), keep: v.keep}
	v.s.sources = []*source{newSource(v.s, NamedStore{})}
	return v, nil
}

func (v *Driven) find(name string) (at int, ok bool) {
	return slices.BinarySearchFunc(v.jobs, name, func(j *drivenJob, name string) int { return strings.Compare(j.name, name) })
}

func (v *Driven) keep(j *job) {
	at, _ := v.find(j.name)
	v.jobs = slices.Insert(v.jobs, at, &drivenJob{job: j})
}

// StoreChanged says that the store has named a job, or that it has changed.
func (v *Driven) StoreChanged(name string) {
	if j, err := v.s.acquire(name); err == nil {
		j.changed()
		v.s.release(j)
	}
}

// Loaded answers a reading that Step has asked for.
func (v *Driven) Loaded(now time.Time, name string, l Loaded) {
	at, ok := v.find(name)
	if !ok || v.jobs[at].old == nil {
		return
	}
	j := v.jobs[at]
	f := found{err: l.Err}
	if l.Err == nil && l.Exists {
		f.source, f.job = v.s.sources[0], l.Job
	}
	next, err := j.merge(*j.old, f, l.Assignment)
	j.settle(*j.old, next, err)
	j.old = nil
	j.pace.read(now, err, j.idle, v.rng.Float64())
}

// Join begins a subscriber's stream with its first message. send carries a message
// to it, end is called when the stream is to end. The error is why it ends at once.
func (v *Driven) Join(now time.Time, first *slicerv1.WatchRequest, send func(*slicerv1.WatchResponse), end func(error)) (*SubscriberPeer, error) {
	if first.GetHello() == nil {
		return nil, status.Error(codes.InvalidArgument, "the first message, and no other, is a hello")
	}
	c := &client{s: v.s, stream: carrier{send: send}, acked: make(chan struct{}, 1)}
	j, err := v.s.admit(c, first.GetHello())
	if err != nil {
		return nil, err
	}
	p := &SubscriberPeer{c: c, j: j, end: end, waitTill: now.Add(patience), repeat: now.Add(repeatEvery)}
	v.peers = append(v.peers, p)
	return p, nil
}

// FromSubscriber says what a subscriber has sent.
func (v *Driven) FromSubscriber(p *SubscriberPeer, m *slicerv1.WatchRequest) {
	if m.GetAck() != nil {
		p.c.ack(m.GetAck())
	}
}

// Left says that a subscriber's stream has ended, by whomever.
func (v *Driven) Left(p *SubscriberPeer) {
	if i := slices.Index(v.peers, p); i >= 0 {
		v.peers = slices.Delete(v.peers, i, i+1)
		v.s.release(p.j)
	}
}

func (v *Driven) finish(p *SubscriberPeer, err error) {
	v.Left(p)
	p.end(err)
}

// Step does what is due. It returns the jobs that the driver is to read, each to be
// answered by Loaded, and when it has to be called again, zero if never.
func (v *Driven) Step(now time.Time) (read []string, next time.Time) {
	sooner := func(t time.Time) {
		if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	for _, p := range slices.Clone(v.peers) {
		v.serve(p, now)
		if !p.waited {
			sooner(p.waitTill)
		}
		sooner(p.repeat)
	}
	for _, j := range slices.Clone(v.jobs) {
		if j.old != nil {
			continue
		}
		idle := v.s.needed(j.job) == 0
		do, wait := j.due(&j.pace, now, idle)
		switch {
		case do == toRead:
			old := j.begin()
			j.old, j.idle = &old, idle
			read = append(read, j.name)
		case do == toDrop && v.s.drop(j.job):
			at, _ := v.find(j.name)
			v.jobs = slices.Delete(v.jobs, at, at+1)
		case wait >= 0:
			sooner(now.Add(wait))
		}
	}
	return read, next
}

// serve sends a subscriber what it lacks.
func (v *Driven) serve(p *SubscriberPeer, now time.Time) {
	p.waited = p.waited || !now.Before(p.waitTill)
	if !now.Before(p.repeat) {
		p.c.said = nil
		p.repeat = now.Add(repeatEvery)
	}
	for {
		say, e, kind, err := p.c.turn(p.j, p.j.now(), p.waited)
		switch {
		case say != nil:
			p.repeat = now.Add(repeatEvery)
			err = p.c.stream.Send(&slicerv1.WatchResponse{Message: &slicerv1.WatchResponse_Status{Status: say}})
		case e != nil:
			var n int
			n, err = e.send(p.c.stream)
			v.s.m.updates(kind, n)
		case err == nil:
			return
		}
		if err != nil {
			v.finish(p, err)
			return
		}
	}
}

// carrier is a subscriber's stream to a driver.
type carrier struct {
	grpc.BidiStreamingServer[slicerv1.WatchRequest, slicerv1.WatchResponse]
	send func(*slicerv1.WatchResponse)
}

func (c carrier) Context() context.Context     { return context.Background() }
func (c carrier) SetHeader(metadata.MD) error  { return nil }
func (c carrier) SendHeader(metadata.MD) error { return nil }

func (c carrier) SendMsg(m any) error {
	c.send(m.(*slicerv1.WatchResponse))
	return nil
}

func (c carrier) Send(m *slicerv1.WatchResponse) error { return c.SendMsg(m) }
