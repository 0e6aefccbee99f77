package downstream

import (
	"slices"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/slicer-project/slicer/assigner/clientindex"
	"github.com/slicer-project/slicer/assigner/generate"
	"github.com/slicer-project/slicer/assigner/membership"
	"github.com/slicer-project/slicer/assignment"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// maxIndexes is how many indexes go into one message: it stays far below 1 MiB.
const maxIndexes = 4096

// Job is one job: its core, and what each Distributor has said of it and is to be told.
// It is not safe for concurrent use.
type Job struct {
	name     string
	core     *generate.Core
	clients  *clientindex.Table
	frames   frames
	status   *slicerv1.JobStatus // nil before the store has answered
	access   assignment.Access   // that of status
	tasks    conditions
	quotas   quotas
	attached []clientindex.Session // all streams, in order of coming
	names    map[Session]string    // of the Distributors
	watchers map[Session]*watcher  // those that have said something of the job
	now      generate.Now
	out      []Action

	// As last looked at.
	exists, mine bool
	version      int64 // of the config
	inForce      assignment.Generation
}

// watcher is what a Distributor has said of the job, and what it is to be told.
type watcher struct {
	wants  bool
	stop   bool // it has said last that it does not want it any more
	held   Mark // what it holds when it has taken what was sent
	reads  bool // compressed wholes
	newest generate.Held
	base   *Say   // the answer to a BaseWanted, nil if none is due
	acked  *acked // nil before it has said how far its subscribers are
	// What it is to be told: whatever is newest when its turn comes.
	assignment, status, indexes bool
	quotas                      quotasDue
	used                        time.Duration // when it last said what customers ask for
}

// NewJob makes a job of which nothing is known yet. Each encoding goes through once: it
// is called for each Distributor that gets it, and is to do the work one time.
func NewJob(cfg generate.Config, name string, now generate.Now, once func(Encode) Encode) *Job {
	return &Job{
		name: name, core: generate.New(cfg, name, now), clients: clientindex.New(clientindex.Config{}),
		frames: frames{once: once}, watchers: make(map[Session]*watcher), names: make(map[Session]string), quotas: newQuotas(),
	}
}

// View is what the job's core knows.
func (j *Job) View(now generate.Now) generate.View { return j.core.View(now) }

// Idle reports whether nothing is lost if the job is forgotten.
func (j *Job) Idle(now generate.Now) bool {
	v := j.core.View(now)
	_, known, exists := v.Job()
	return known && !exists && len(j.watchers) == 0 && !v.Leading()
}

// ClientStats are those of the job's clients.
func (j *Job) ClientStats() clientindex.Stats { return j.clients.Stats() }

// Step takes in what has happened and returns what is to be done.
func (j *Job) Step(now generate.Now, e Event) []Action {
	j.now, j.out = now, nil
	switch e := e.(type) {
	case Ready:
		if s := j.next(j.watchers[e.To], clientindex.Session(e.To)); s != nil {
			j.add(*s)
		}
		return j.out
	case Attached:
		j.attached = append(j.attached, clientindex.Session(e.From))
		j.names[e.From] = e.Name
		j.core.Attach(now, e.From, e.Name)
	case Detached:
		j.attached = slices.DeleteFunc(j.attached, func(s clientindex.Session) bool { return s == clientindex.Session(e.From) })
		delete(j.watchers, e.From)
		delete(j.names, e.From)
		j.tasks.detach(e.From)
		j.quotas.claims.Set(e.From, nil, 0, nil)
		j.core.Detach(now, e.From)
	case Core:
		e(j.core, now)
	case Tick:
		j.core.Names.Policy(now, e.Policy)
		if j.core.View(now).IsPreferred() {
			for s, at := range e.Heard {
				j.core.Heard(now, s, at)
			}
		}
		action, wake := j.core.Next(now)
		wake = min(wake, j.giveIndexes())
		j.add(Do{action, max(wake-now.Mono, time.Millisecond)})
	case BaseRead:
		if w := j.watchers[e.Of.For]; w != nil {
			j.answer(e.Of, w, e.Assignment)
		}
	case Said:
		if w := j.watcher(e.From); w != nil {
			j.said(e.From, w, e.What)
		}
	}
	j.settle()
	return j.out
}

func (j *Job) add(a Action) { j.out = append(j.out, a) }

// watcher is a Distributor that says something of the job, nil if it is not attached.
func (j *Job) watcher(s Session) *watcher {
	w := j.watchers[s]
	if w == nil && slices.Contains(j.attached, clientindex.Session(s)) {
		w = &watcher{}
		j.watchers[s] = w
	}
	return w
}

func (j *Job) said(from Session, w *watcher, what any) {
	switch x := what.(type) {
	case Want:
		j.want(from, w, x)
	case Reports:
		j.core.Reports(j.now, from, x.Complete, x.Reports)
		j.tasks.report(j.now.Mono, from, x.Complete, ofTheirOwn(x.said, x.Reports))
		clear(x.Reports)
		clear(x.said)
	case Acks:
		w.acked = x.progress
		j.core.Acked(j.now, from, x.Acks)
	case Clients:
		j.clients.Report(j.now.Mono, clientindex.Session(from), x.Complete, x.Clients)
		j.giveIndexes()
	case Uses:
		j.uses(from, w, x)
	case WantBase:
		of := ReadBase{from, x.Held, x.Compressed}
		if a := j.frames.base(x.Held); a != nil {
			j.answer(of, w, a)
		} else {
			j.add(of)
		}
	}
}

func (j *Job) want(from Session, w *watcher, x Want) {
	w.wants, w.stop, w.held, w.reads, w.newest = !x.Stop, x.Stop, x.Held, x.Compressed, x.Newest
	_, known, exists := j.core.View(j.now).Job()
	switch none := known && !exists; {
	case none && x.Stop: // names that were made up must not add up
		j.drop(from)
		return
	case none: // the store is asked once more before that is said again
		j.core.Forget(j.now)
		j.status = nil
	}
	if w.wants {
		w.assignment, w.status = true, true
		w.quotas.due = w.quotas.due || j.quotas.limited()
		j.add(Notify{from})
	}
	j.core.Wanted(j.now, from, w.wants, x.Newest, generate.Held{Store: x.Held.Store, Generation: x.Held.Generation})
}

func (j *Job) drop(from Session) {
	delete(j.watchers, from)
	j.add(Drop{from})
}

// answer is for a WantBase. Without a checksum any of that generation will do.
func (j *Job) answer(of ReadBase, w *watcher, a *assignment.Assignment) {
	w.base = &Say{Job: j.name, Base: true}
	if a != nil && of.Held.fits(a) {
		w.base.Assignment, w.base.encode = a, j.frames.older(a, of.Compressed)
	}
	j.add(Notify{of.For})
}

// each is called with the Distributors that have said something of the job, in order of coming.
func (j *Job) each(f func(s Session, w *watcher)) {
	for _, s := range j.attached {
		if w := j.watchers[Session(s)]; w != nil {
			f(Session(s), w)
		}
	}
}

// giveIndexes does what is due for the job's clients. It returns when it is to be called
// again.
func (j *Job) giveIndexes() (wake time.Duration) {
	j.clients.Prefer(j.now.Mono, j.core.View(j.now).IsPreferred())
	j.clients.Sessions(j.now.Mono, j.attached)
	wake = j.clients.Advance(j.now.Mono)
	j.each(func(s Session, w *watcher) {
		if j.clients.Pending(clientindex.Session(s)) {
			w.indexes = true
			j.add(Notify{s})
		}
	})
	return wake
}

// settle looks at what has changed in the core.
func (j *Job) settle() {
	out := j.core.Outputs()
	j.add(out)
	for _, e := range out.Refusals {
		j.refuse(e)
	}
	v := j.core.View(j.now)
	job, known, exists := v.Job()
	if !known {
		return
	}
	turned, mine := j.frames.publish(j.now.Mono, v.Stored()), v.IsPreferred()
	j.newQuotas(job.Config.Limits, mine && exists)
	if status := j.newStatus(v); turned || status {
		j.each(func(s Session, w *watcher) {
			w.assignment, w.status = w.assignment || turned, w.status || status
			j.add(Notify{s})
		})
	}
	if !exists { // those that stopped to want it before it was known that there is none
		j.each(func(s Session, w *watcher) {
			if w.stop {
				j.drop(s)
			}
		})
	}
	if j.exists != exists || j.version != job.Version {
		j.add(Prefer{})
	}
	if turned || mine != j.mine || v.InForce() != j.inForce {
		j.add(Turned{Mine: mine && !j.mine})
	}
	j.exists, j.version, j.mine, j.inForce = exists, job.Version, mine, v.InForce()
}

// refuse ends the stream of a task.
func (j *Job) refuse(e membership.Event) {
	code := codes.AlreadyExists
	if e.Full {
		code = codes.ResourceExhausted
	}
	for _, s := range e.Sessions {
		j.add(Refuse{s, &slicerv1.RefuseTask{Job: j.name, Task: e.Task, Incarnation: e.Incarnation, Code: uint32(code), Message: e.Reason}})
	}
}
