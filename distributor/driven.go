package distributor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/slicer-project/slicer/distributor/fanout"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// Driven is a Distributor without clock, goroutine and network: its driver says
// what happens and when, and carries messages. It decides by the very code that
// New's does; what it leaves out is how connections are made and kept, Fetch, the
// services for operators and gRPC's auto-sharding protocol. The same events give
// the same messages, though not always in the same order to different peers. It
// is not safe for concurrent use.
//
// After each call the driver has been told all that is to be sent. Step is to be
// called when the time that it returned last has come, and after other calls if
// Due says so.
type Driven struct {
	d       *Distributor
	now     time.Time
	pending []*subscription // those who lack something
	kept    []keptJob       // in order of name
	peers   []*AssignerPeer
	woken   bool // one of them has something to say
}

// keptJob is a job and when it is to be looked at next, zero if never.
type keptJob struct {
	*job
	at time.Time
}

// AssignerPeer is a stream to an assigner.
type AssignerPeer struct {
	a      *attachment
	send   func(*slicerv1.AttachRequest)
	wanted map[string]struct{}
	quiet  time.Time // until when nothing has to be said
}

// SubscriberPeer is a stream of a subscriber.
type SubscriberPeer struct {
	j *job
	s *subscription
}

// NewDriven makes one. Of the config only ID, Zone, Logger and Registerer matter.
func NewDriven(cfg Config, now time.Time) (*Driven, error) {
	cfg = cfg.withDefaults()
	cfg.Assigners = []string{"driven.invalid:1"}
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("distributor config: %w", err)
	}
	m, err := newMetrics(cfg.ID, cfg.Registerer)
	if err != nil {
		return nil, fmt.Errorf("distributor config: %w", err)
	}
	v := &Driven{now: now}
	ctx, cancel := context.WithCancel(context.Background())
	v.d = &Distributor{
		cfg: cfg, log: cfg.Logger.With("distributor", cfg.ID), metrics: m,
		life: ctx, cancel: cancel, stop: ctx.Done(), candidates: make(chan struct{}, 1),
		jobs: make(map[string]*job), attachments: make(map[string]*attachment), errs: make(map[string]string), wholes: newWholes(), handshakes: m.newHandshakes(), unknowns: newUnknowns(),
		host: host{now: func() time.Time { return v.now }, send: func(s *subscription) { v.pending = append(v.pending, s) }, keep: v.keep, woke: func() { v.woken = true }},
	}
	return v, nil
}

func (v *Driven) keep(j *job) {
	at, _ := slices.BinarySearchFunc(v.kept, j.name, func(k keptJob, name string) int { return strings.Compare(k.name, name) })
	v.kept = slices.Insert(v.kept, at, keptJob{j, v.now})
}

func (v *Driven) at(now time.Time) {
	if now.After(v.now) {
		v.now = now
	}
}

// Attached says that a stream to an assigner stands and both have said hello.
// send carries a message to it; end has the stream ended.
func (v *Driven) Attached(now time.Time, h *slicerv1.AssignerHello, address string, send func(*slicerv1.AttachRequest), end func()) *AssignerPeer {
	v.at(now)
	p := &AssignerPeer{a: v.d.newAttachment(h, address, nil, end), send: send, wanted: map[string]struct{}{}, quiet: now.Add(heartbeat)}
	v.peers = append(v.peers, p)
	v.d.attached(p.a)
	v.flush()
	return p
}

// Detached says that it has ended.
func (v *Driven) Detached(now time.Time, p *AssignerPeer) {
	v.at(now)
	v.peers = slices.DeleteFunc(v.peers, func(q *AssignerPeer) bool { return p == q })
	v.d.detached(p.a)
	v.flush()
}

// FromAssigner says what an assigner has sent.
func (v *Driven) FromAssigner(now time.Time, p *AssignerPeer, m *slicerv1.AttachResponse) {
	v.at(now)
	p.a.received(now, m)
	v.flush()
}

// Join begins a subscriber's stream with its first message. send carries a
// message to it; end is called, once, when the stream is to end, nil standing for
// an orderly end. The error is why it ends at once.
func (v *Driven) Join(now time.Time, hello *slicerv1.WatchRequest, send func(*slicerv1.WatchResponse), end func(error)) (*SubscriberPeer, error) {
	v.at(now)
	defer v.flush()
	in, err := checkHello(hello, now)
	if err != nil {
		return nil, err
	}
	j, err := v.d.acquire(in.Job, "")
	if err != nil {
		return nil, err
	}
	s := &subscription{id: v.d.number(), in: in, stream: carrier{send: send}, job: j, done: make(chan struct{}), ended: end}
	if err := j.join(now, s); err != nil {
		v.d.release(j)
		return nil, err
	}
	return &SubscriberPeer{j, s}, nil
}

// FromSubscriber says what a subscriber has sent.
func (v *Driven) FromSubscriber(now time.Time, p *SubscriberPeer, m *slicerv1.WatchRequest) {
	v.at(now)
	if err := p.s.handle(m); err != nil {
		p.s.end(endOf(err))
	}
	v.flush()
}

// Left says that a subscriber's stream has ended, by whomever.
func (v *Driven) Left(now time.Time, p *SubscriberPeer) {
	v.at(now)
	p.j.leave(now, p.s.id)
	v.d.release(p.j)
	v.flush()
}

// Due says whether a call before has left something that Step is to look at.
func (v *Driven) Due() bool {
	for _, j := range v.kept {
		if len(j.wake) > 0 {
			return true
		}
	}
	return false
}

// Step does what is due and returns when it has to be called again at the latest.
func (v *Driven) Step(now time.Time) (next time.Time) {
	v.at(now)
	next = now.Add(heartbeat)
	dropped := false
	for i := range v.kept {
		k := &v.kept[i]
		if len(k.wake) > 0 {
			<-k.wake
		} else if k.at.IsZero() || k.at.After(now) {
			next = fanout.Sooner(next, k.at)
			continue
		}
		k.at = k.tick(now)
		dropAt, drop := v.d.dropIfIdle(k.job, now)
		k.at, dropped = fanout.Sooner(k.at, dropAt), dropped || drop
		next = fanout.Sooner(next, k.at)
	}
	if dropped {
		v.kept = slices.DeleteFunc(v.kept, func(k keptJob) bool { return v.d.lookup(k.name) != k.job })
	}
	v.flush()
	early := time.Duration(0)
	for _, p := range v.peers {
		if !p.quiet.After(now) {
			early = together
		}
	}
	for _, p := range v.peers {
		if p.quiet.Sub(now) <= early {
			p.say(now, signOfLife)
		}
		next = fanout.Sooner(next, p.quiet)
	}
	return next
}

// together is by how much a sign of life may be early to go with another.
const together = heartbeat / 2

var signOfLife = fanout.ReportsRequest(&slicerv1.TaskReports{})

func (p *AssignerPeer) say(now time.Time, m *slicerv1.AttachRequest) {
	p.quiet = now.Add(heartbeat)
	p.send(m)
}

// flush carries out what the calls before have left to do.
func (v *Driven) flush() {
	for i := 0; i < len(v.pending); i++ { // sending may add to them
		v.pending[i].send()
	}
	clear(v.pending)
	v.pending = v.pending[:0]
	if !v.woken {
		return
	}
	v.woken = false
	for _, p := range v.peers {
		if len(p.a.wake) == 0 {
			continue
		}
		<-p.a.wake
		for _, m := range p.a.popBeliefs(v.now) {
			p.say(v.now, m)
		}
		for job, vacant, ok := p.a.pop(); ok; job, vacant, ok = p.a.pop() {
			for _, m := range p.a.messages(job, vacant, p.wanted) {
				p.say(v.now, m)
			}
		}
	}
}

// carrier is a subscriber's stream to a driver.
type carrier struct {
	grpc.BidiStreamingServer[slicerv1.WatchRequest, slicerv1.WatchResponse]
	send func(*slicerv1.WatchResponse)
}

// Local says that messages are taken as they are.
func (c carrier) Local() {}

func (c carrier) Context() context.Context     { return context.Background() }
func (c carrier) SetHeader(metadata.MD) error  { return nil }
func (c carrier) SendHeader(metadata.MD) error { return nil }

func (c carrier) SendMsg(m any) error {
	c.send(m.(*slicerv1.WatchResponse))
	return nil
}

func (c carrier) Send(m *slicerv1.WatchResponse) error { return c.SendMsg(m) }
