// Package assignersim is an assigner without clock, goroutine, network and store, for
// simulations: it carries out what packages downstream and generate decide, as package
// assigner does, and leaves out how connections and its registration are kept, the service
// for operators, metrics, what it would note in a job's history (so a freeze by order has
// no end in time), and jobs in consistent mode. Its driver says what happens and when,
// carries messages, and reads and writes the store for it. The same events give the same
// messages.
package assignersim

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slicer-project/slicer/assigner/downstream"
	"github.com/slicer-project/slicer/assigner/generate"
	"github.com/slicer-project/slicer/assigner/preference"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/loadbalance"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// Assigner is one, of one store. It is not safe for concurrent use.
type Assigner struct {
	id         string
	storeID    uint64
	start, now generate.Now
	jobs       []*job // in order of name; none is ever forgotten
	streams    []*Distributor
	sessions   downstream.Session
	candidates []store.Candidate
	revision   int64
	listed     bool // the candidates are known
	dirty      bool // preferences are to be worked out anew
	asked      []Request
	work       loadbalance.Workspace
}

// Request asks the driver to read a job and its newest assignment (Write is nil), or to
// write an assignment that follows its Previous and was decided under the overrides of a
// version: under others the write is a conflict. The answer is Loaded or Written; there is
// one request a job at a time.
type Request struct {
	Job       string
	Write     *assignment.Assignment
	Overrides int64 // version, 0 before the first
}

// Distributor is a stream of one.
type Distributor struct {
	stream *downstream.Stream
	reader downstream.Reader
	heard  time.Duration
	send   func(*slicerv1.AttachResponse)
	end    func()
}

type job struct {
	name string
	core *downstream.Job
	busy bool // the driver is at the store for it
}

// New makes one for a store.
func New(id string, storeID uint64, now generate.Now) *Assigner {
	return &Assigner{id: id, storeID: storeID, start: now, now: now}
}

// Attached begins a Distributor's stream with its hello. send takes a message to it; end
// is called when the stream is to end. The error is why it ends at once.
func (a *Assigner) Attached(now generate.Now, h *slicerv1.DistributorHello, send func(*slicerv1.AttachResponse), end func()) (*Distributor, error) {
	a.now = now
	if err := downstream.CheckHello(h); err != nil {
		return nil, err
	}
	a.sessions++
	d := &Distributor{
		stream: downstream.NewStream(a.id, ""), reader: downstream.Reader{From: a.sessions, Name: h.GetDistributorId()}, heard: now.Mono, send: send, end: end,
	}
	for _, old := range a.streams {
		if old.reader.Name == d.reader.Name {
			old.end()
		}
	}
	a.streams = append(a.streams, d)
	a.each(downstream.Attached{From: d.reader.From, Name: d.reader.Name})
	a.dirty = true
	return d, nil
}

// Detached says that the stream has ended.
func (a *Assigner) Detached(now generate.Now, d *Distributor) {
	a.now = now
	a.streams = slices.DeleteFunc(a.streams, func(o *Distributor) bool { return o == d })
	a.each(downstream.Detached{From: d.reader.From})
}

func (a *Assigner) each(e downstream.Event) {
	for _, j := range a.jobs {
		a.step(j, e)
	}
}

// FromDistributor says what a Distributor has sent. Step is to follow unless it was a sign
// of life.
func (a *Assigner) FromDistributor(now generate.Now, d *Distributor, m *slicerv1.AttachRequest) {
	a.now = now
	d.heard = now.Mono
	name, _ := d.stream.Received(now.Mono, m)
	if name == "" {
		a.sendAll(d)
		return
	}
	e, _ := d.reader.Read(now.Mono, m)
	j := a.job(name)
	if of, ok := a.step(j, e).(downstream.ReadBase); ok {
		a.step(j, downstream.BaseRead{Of: of}) // none is ever found
	}
}

// Candidates says which assigners can be preferred, as of a revision of the store.
func (a *Assigner) Candidates(now generate.Now, cs []store.Candidate, revision int64) {
	a.now = now
	a.candidates, a.revision, a.listed, a.dirty = cs, revision, true, true
}

// StoreChanged says that a job or its assignment has changed in the store.
func (a *Assigner) StoreChanged(now generate.Now, name string) {
	a.core(now, a.job(name), (*generate.Core).StoreChanged)
}

// Loaded answers a Request without Write.
func (a *Assigner) Loaded(now generate.Now, name string, l generate.Loaded) {
	j := a.job(name)
	j.busy = false
	a.core(now, j, func(c *generate.Core, now generate.Now) { c.Loaded(now, l) })
}

// Written answers a Request with Write, as store.Store's Write would.
func (a *Assigner) Written(now generate.Now, name string, err error) {
	j := a.job(name)
	j.busy = false
	a.core(now, j, func(c *generate.Core, now generate.Now) { c.Written(now, err) })
}

func (a *Assigner) core(now generate.Now, j *job, f downstream.Core) {
	a.now = now
	a.step(j, f)
}

// HasDistributor reports whether one is attached, without which an assigner is no candidate.
func (a *Assigner) HasDistributor() bool { return len(a.streams) > 0 }

// Core is what a job's core knows.
func (a *Assigner) Core(name string) generate.View { return a.job(name).core.View(a.now) }

func (a *Assigner) job(name string) *job {
	at, ok := slices.BinarySearchFunc(a.jobs, name, func(j *job, name string) int { return strings.Compare(j.name, name) })
	if !ok {
		j := &job{name: name, core: downstream.NewJob(generate.Config{ID: a.id, Start: a.start}, name, a.now,
			func(e downstream.Encode) downstream.Encode { return sync.OnceValues(e) })}
		for _, d := range a.streams {
			a.step(j, downstream.Attached{From: d.reader.From, Name: d.reader.Name})
		}
		a.jobs = slices.Insert(a.jobs, at, j)
	}
	return a.jobs[at]
}

// step takes an event to a job, and returns what is asked for in return.
func (a *Assigner) step(j *job, e downstream.Event) (answer downstream.Action) {
	for _, x := range j.core.Step(a.now, e) {
		switch x := x.(type) {
		case downstream.Notify:
			a.say(x.To, func(s *downstream.Stream) { s.Mark(j.name) })
		case downstream.Drop:
			a.say(x.From, func(s *downstream.Stream) { s.Drop(j.name) })
		case downstream.Refuse:
			a.say(x.To, func(s *downstream.Stream) { s.Refuse(x.Message) })
		case downstream.Prefer:
			a.dirty = true
		case downstream.Turned, generate.Outputs:
		default:
			answer = x
		}
	}
	return answer
}

func (a *Assigner) say(to downstream.Session, f func(*downstream.Stream)) {
	for _, d := range a.streams {
		if d.reader.From == to {
			f(d.stream)
		}
	}
}

// Step does what is due. It returns what the driver is to ask the store, and when it has
// to be called again at the latest; it is to be called after any other call, too.
func (a *Assigner) Step(now generate.Now) (ask []Request, next time.Duration) {
	a.now = now
	next = now.Mono + time.Hour
	for range 100 { // what does not settle goes on at the next step
		again := false
		for _, j := range a.jobs {
			wake, more := a.carryOut(j)
			next, again = min(next, wake), again || more
		}
		if a.dirty {
			a.dirty, again = false, true
			a.prefer()
		}
		for _, d := range a.streams {
			a.sendAll(d)
		}
		if !again {
			break
		}
	}
	ask, a.asked = a.asked, nil
	return ask, next
}

// carryOut has one job's core do what it can without the store.
func (a *Assigner) carryOut(j *job) (wake time.Duration, more bool) {
	for !j.busy {
		do := a.step(j, downstream.Tick{Heard: a.heard}).(downstream.Do)
		switch x := do.Action.(type) {
		case generate.Load:
			j.busy = true
			a.asked = append(a.asked, Request{Job: j.name})
		case generate.Write:
			j.busy = true
			a.asked = append(a.asked, Request{Job: j.name, Write: x.Next, Overrides: max(x.Overrides, 0)})
		case *generate.Plan:
			x.Work = &a.work
			d := x.Run()
			a.core(a.now, j, func(c *generate.Core, now generate.Now) { c.Planned(now, d) })
			more = true
		case generate.Audit:
			a.core(a.now, j, func(c *generate.Core, now generate.Now) { c.Audited(now, x, nil) })
		case nil:
			return a.now.Mono + do.Wait, more
		default:
			panic(errors.New("assignersim: jobs in consistent mode are left out"))
		}
	}
	return a.now.Mono + time.Hour, more
}

func (a *Assigner) heard(yield func(downstream.Session, time.Duration) bool) {
	for _, d := range a.streams {
		if !yield(d.reader.From, d.heard) {
			return
		}
	}
}

// prefer works out which assigner is preferred for each job.
func (a *Assigner) prefer() {
	if !a.listed {
		return
	}
	p := downstream.NewPreference(a.storeID, a.revision, a.candidates)
	for _, j := range a.jobs {
		job, _, exists := j.core.View(a.now).Job()
		if !exists {
			continue
		}
		c, _ := preference.Choose(a.candidates, j.name, job.Config.Zone)
		a.core(a.now, j, func(core *generate.Core, now generate.Now) { core.Preferred(now, c.ID) })
		p.Jobs = append(p.Jobs, &slicerv1.JobPreference{Job: j.name, AssignerId: c.ID})
	}
	for _, d := range a.streams {
		d.stream.Prefer(0, p)
	}
}

// sendAll says what there is to say to a Distributor.
func (a *Assigner) sendAll(d *Distributor) {
	for m, name, ok := d.stream.Pop(); ok; m, name, ok = d.stream.Pop() {
		if m != nil {
			d.send(m)
			continue
		}
		for say, ok := a.ready(name, d); ok; say, ok = a.ready(name, d) {
			f, err := say.Frame()
			if err != nil {
				panic(err)
			}
			for m := range say.Messages(f, func() time.Duration { return a.now.Mono }) {
				d.send(m)
			}
		}
	}
}

func (a *Assigner) ready(name string, d *Distributor) (say downstream.Say, ok bool) {
	say, ok = a.step(a.job(name), downstream.Ready{To: d.reader.From}).(downstream.Say)
	return say, ok
}
