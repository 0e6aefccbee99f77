package assigner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slicer-project/slicer/assigner/generate"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// Driven is an assigner without clock, goroutine, network and store: its driver
// says what happens and when, carries messages, and reads and writes the store
// for it. It decides by the very code that New's does; what it leaves out is how
// connections and its registration are kept, the service for operators, what it would
// note in a job's history (so a freeze by order has no end in time), and jobs in
// consistent mode. The same events give the same messages. It is not safe for
// concurrent use.
type Driven struct {
	a   *Assigner
	now generate.Now
	// busy are the jobs for which the driver is at the store.
	busy     map[string]bool
	runners  []*runner // in order of name; none is ever retired
	sessions []*DistributorPeer
	asked    []StoreRequest
}

// StoreRequest asks the driver to read a job and its newest assignment (Write is
// nil), or to write an assignment that follows its Previous and was decided under
// the operators' orders of a version: under others the write is a conflict. The
// answer is Loaded or Written; there is one request a job at a time.
type StoreRequest struct {
	Job       string
	Write     *assignment.Assignment
	Overrides int64 // version of the orders, 0 before the first
}

// DistributorPeer is a stream of a Distributor.
type DistributorPeer struct{ s *session }

// onlyID stands for the one store.
type onlyID struct {
	store.Backend
	id uint64
}

func (o onlyID) ID() uint64 { return o.id }

// NewDriven makes one for one store. Of the config Stores and LeaseTTL do not
// matter.
func NewDriven(cfg Config, storeID uint64, now generate.Now) (*Driven, error) {
	cfg.Stores = []NamedStore{{Backend: onlyID{id: storeID}}}
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("assigner: %w", err)
	}
	v := &Driven{now: now, busy: map[string]bool{}}
	v.a = &Assigner{
		cfg: cfg, log: cfg.Logger.With("assigner", cfg.ID), dirty: make(chan struct{}, 1), jobs: make(map[string]*runner),
		host: host{now: func() generate.Now { return v.now }, keep: v.keep}, start: now,
	}
	v.a.attached.Store(new([]*session))
	v.a.ctx, v.a.cancel = context.WithCancel(context.Background())
	v.a.metrics = newMetrics(v.a)
	if err := v.a.metrics.register(cfg.Registerer, cfg.ID); err != nil {
		return nil, fmt.Errorf("assigner %s: metrics: %w", cfg.ID, err)
	}
	v.a.shelves = []*shelf{newShelf(v.a, 0, cfg.Stores[0])}
	return v, nil
}

func (v *Driven) keep(r *runner) {
	at, _ := slices.BinarySearchFunc(v.runners, r.name, func(r *runner, name string) int { return strings.Compare(r.name, name) })
	v.runners = slices.Insert(v.runners, at, r)
}

// send takes messages to the driver.
type send func(*slicerv1.AttachResponse)

func (f send) Send(m *slicerv1.AttachResponse) error { f(m); return nil }

// Attached begins a Distributor's stream with its hello. out takes a message to it.
// The error is why the stream ends at once. When ended returns an error the
// stream is to be ended.
func (v *Driven) Attached(now generate.Now, h *slicerv1.DistributorHello, out func(*slicerv1.AttachResponse)) (*DistributorPeer, error) {
	v.now = now
	s := newSession(v.a, send(out))
	if err := s.hello(h); err != nil {
		return nil, err
	}
	p := &DistributorPeer{s}
	v.sessions = append(v.sessions, p)
	return p, nil
}

// Detached says that the stream has ended.
func (v *Driven) Detached(now generate.Now, p *DistributorPeer) {
	v.now = now
	p.s.leave()
	v.sessions = slices.DeleteFunc(v.sessions, func(q *DistributorPeer) bool { return p == q })
}

// FromDistributor says what a Distributor has sent.
func (v *Driven) FromDistributor(now generate.Now, p *DistributorPeer, m *slicerv1.AttachRequest) {
	v.now = now
	p.s.received(m)
	if p.s.greeted {
		_, _ = p.s.sayHeard() // the driver takes everything
	}
}

// Candidates says which assigners can be preferred, as of a revision of the store.
func (v *Driven) Candidates(now generate.Now, cs []store.Candidate, revision int64) {
	v.now = now
	s := v.a.shelves[0]
	s.mu.Lock()
	s.candidates, s.revision, s.seen, s.listed = cs, revision, true, true
	s.mu.Unlock()
	poke(v.a.dirty)
}

// StoreChanged says that a job or its assignment has changed in the store.
func (v *Driven) StoreChanged(now generate.Now, job string) {
	v.now = now
	v.a.changed(job)
}

// Loaded answers a StoreRequest without Write.
func (v *Driven) Loaded(now generate.Now, job string, l generate.Loaded) {
	v.now = now
	delete(v.busy, job)
	if r := v.a.lookup(job); r != nil {
		r.tell(func(c *generate.Core, now generate.Now) {
			if l.Err == nil && l.Exists {
				r.home = v.a.shelves[0]
			}
			c.Loaded(now, l)
		})
	}
}

// Written answers a StoreRequest with Write, as store.Store's Write would.
func (v *Driven) Written(now generate.Now, job string, err error) {
	v.now = now
	delete(v.busy, job)
	if r := v.a.lookup(job); r != nil {
		r.tell(func(c *generate.Core, now generate.Now) { c.Written(now, err) })
	}
}

// Ended says why a stream is to be ended, nil if it is not.
func (p *DistributorPeer) Ended() error {
	select {
	case err := <-p.s.end:
		return err
	default:
		return nil
	}
}

// Manned says whether a Distributor is attached, without which an assigner is no
// candidate.
func (v *Driven) Manned() bool { return len(v.a.sessions()) > 0 }

// Core is what a job's core knows, which there has to be.
func (v *Driven) Core(job string) generate.View { return v.a.lookup(job).viewLocked() }

// Step does what is due. It returns what the driver is to ask the store, and when
// it has to be called again at the latest; it is to be called after any other
// call, too.
func (v *Driven) Step(now generate.Now) (ask []StoreRequest, next time.Duration) {
	v.now = now
	next = now.Mono + time.Hour
	for range 100 { // what does not settle goes on at the next step
		again := false
		for _, r := range v.runners {
			wake, more := v.step(r)
			next, again = min(next, wake), again || more
		}
		select {
		case <-v.a.dirty:
			v.a.preferOnce()
			again = true
		default:
		}
		for _, p := range v.sessions {
			if p.s.live() {
				_ = p.s.sendAll() // the driver takes everything
			}
		}
		if !again {
			break
		}
	}
	ask, v.asked = v.asked, nil
	return ask, next
}

// step has one job's core do what it can without the store.
func (v *Driven) step(r *runner) (wake time.Duration, more bool) {
	for !v.busy[r.name] {
		action, wait := r.next()
		switch x := action.(type) {
		case generate.Load:
			v.busy[r.name] = true
			v.asked = append(v.asked, StoreRequest{Job: r.name})
		case generate.Write:
			v.busy[r.name] = true
			v.asked = append(v.asked, StoreRequest{Job: r.name, Write: x.Next, Overrides: max(x.Overrides, 0)})
		case *generate.Plan:
			d := runIn(x)
			r.tell(func(c *generate.Core, now generate.Now) { c.Planned(now, d) })
			more = true
		case generate.Note:
			r.tell(func(c *generate.Core, now generate.Now) { c.Noted(now, x, nil) })
		case nil:
			return v.now.Mono + wait, more
		default:
			panic(errors.New("assigner: a driven one cannot serve jobs in consistent mode"))
		}
	}
	return v.now.Mono + time.Hour, more
}
