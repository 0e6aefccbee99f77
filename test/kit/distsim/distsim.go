// Package distsim is a Distributor without clock, goroutine and network, for simulations
// and load generators: it carries out what package fanout decides, as package distributor
// does, and leaves out how connections are kept and set up, metrics, the second tier, the
// service for operators and gRPC's auto-sharding protocol. Its driver says what happens and
// when, and carries messages. The same events give the same messages, though not always in
// the same order to different peers.
package distsim

import (
	"slices"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/limiter"
	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/distributor/fanout"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// As package distributor has them.
const (
	// heartbeat is the longest silence on a stream to an assigner.
	heartbeat = 500 * time.Millisecond
	// together is by how much a sign of life may be early to go with another.
	together = heartbeat / 2
	// idleFor is how long a job is kept that nothing needs, idleUnknownFor one of which
	// nothing is held.
	idleFor, idleUnknownFor = time.Minute, 5 * time.Second
)

// Decode makes an assignment of the bytes that a trailer ends. See wire.Assembler.
type Decode func(t *slicerv1.Trailer, data []byte, base *assignment.Assignment) (*assignment.Assignment, error)

// Distributor is one. It is not safe for concurrent use.
//
// After each call the driver has been told all that is to be sent. Step is to be
// called when the time that it returned last has come, and after other calls if
// Due says so.
type Distributor struct {
	id          string
	made        uint64 // jobs
	decode      Decode
	now         time.Time
	jobs        []*job // in order of coming
	byName      map[string]*job
	pending     []*Subscriber // those that lack something
	peers       []*Assigner   // all streams, in order of coming
	attached    map[string]*Assigner
	prefs       fanout.Preferences
	views       fanout.PreferenceView
	wholes      *limiter.Wholes[*job]
	sessions    fanout.Session
	subscribers uint64
}

// New makes one. decode may be nil.
func New(id string, now time.Time, decode Decode) *Distributor {
	if decode == nil {
		decode = decodeAlone
	}
	return &Distributor{
		id: id, decode: decode, now: now, byName: make(map[string]*job), attached: make(map[string]*Assigner),
		views: make(fanout.PreferenceView), wholes: limiter.NewWholes[*job](limiter.DefaultWholes, limiter.DefaultWholeBytes),
	}
}

func decodeAlone(t *slicerv1.Trailer, data []byte, base *assignment.Assignment) (*assignment.Assignment, error) {
	var s wire.Assembler
	if err := s.Add(&slicerv1.Chunk{Data: data}); err != nil {
		return nil, err
	}
	return s.Finish(t, base)
}

func (d *Distributor) at(now time.Time) {
	if now.After(d.now) {
		d.now = now
	}
}

// Due reports whether a call before has left something that Step is to look at.
func (d *Distributor) Due() bool {
	return slices.ContainsFunc(d.jobs, func(j *job) bool { return j.due })
}

// Step does what is due and returns when it has to be called again at the latest.
func (d *Distributor) Step(now time.Time) (next time.Time) {
	d.at(now)
	next = now.Add(heartbeat)
	for _, j := range slices.Clone(d.jobs) {
		if !j.due && (j.at.IsZero() || j.at.After(now)) {
			next = fanout.Sooner(next, j.at)
			continue
		}
		j.due = false
		j.at = j.step(fanout.Tick{Acknowledged: j.preferred.lastAcknowledged(now)}).(fanout.Timer).At
		j.at = fanout.Sooner(j.at, d.dropIfIdle(j))
		next = fanout.Sooner(next, j.at)
	}
	d.flush()
	early := time.Duration(0)
	for _, p := range d.peers {
		if !p.quiet.After(now) {
			early = together
		}
	}
	for _, p := range d.peers {
		if p.quiet.Sub(now) <= early {
			p.say(now, signOfLife)
		}
		next = fanout.Sooner(next, p.quiet)
	}
	return next
}

var signOfLife = fanout.ReportsRequest(&slicerv1.TaskReports{})

// dropIfIdle lets go of a job that nothing has needed for a while, or returns when it
// would.
func (d *Distributor) dropIfIdle(j *job) (at time.Time) {
	keep := idleFor
	if j.core.Newest() == nil {
		keep = idleUnknownFor
	}
	switch at := j.idleSince.Add(keep); {
	case j.refs > 0:
		return time.Time{}
	case at.After(d.now):
		return at
	}
	delete(d.byName, j.name)
	d.jobs = slices.DeleteFunc(d.jobs, func(k *job) bool { return k == j })
	if j.target != nil {
		j.target.mark(func(u *fanout.Upstream) { u.Mark(j.name) }) // to take the Want back
	}
	if j.preferred != nil {
		j.preferred.mark(func(u *fanout.Upstream) { u.MarkVacant(j.name) })
	}
	d.wholes.Forget(d.now, j)
	return time.Time{}
}

// wire tells every job which streams there are now, and every assigner which are taken
// for preferred, and of the jobs that it has become preferred for.
func (d *Distributor) wire() {
	news := d.views.Look(d.now, d.prefs.Jobs(), d.prefs.Preferred)
	for _, j := range d.jobs {
		d.wireJob(j)
	}
	named := d.prefs.Named()
	for _, p := range d.peers {
		if d.attached[p.ID] != p {
			continue // a newer stream has taken its place
		}
		p.mark(func(u *fanout.Upstream) {
			if news {
				u.MarkViews()
			}
			u.SetPreferred(named[p.ID], func(name string) bool { return d.byName[name] != nil })
		})
	}
}

func (d *Distributor) wireJob(j *job) {
	preferred, target := fanout.Choose(&d.prefs, j.name, d.attached, nil, false)
	store, _ := d.prefs.StoreOf(j.name)
	acknowledged := j.preferred.lastAcknowledged(d.now)
	j.preferred, j.target = preferred, target
	j.step(fanout.Peers{Preferred: preferred.peer(), Target: target.peer(), Store: store, Acknowledged: acknowledged})
}

// flush carries out what the calls before have left to do.
func (d *Distributor) flush() {
	for i := 0; i < len(d.pending); i++ { // sending may add to them
		d.pending[i].sendAll()
	}
	clear(d.pending)
	d.pending = d.pending[:0]
	for _, p := range d.peers {
		p.sayAll()
	}
}

// job is what a Distributor has of one job.
type job struct {
	d                 *Distributor
	name              string
	core              *fanout.Job
	subs              map[uint64]*Subscriber
	preferred, target *Assigner
	refs              int
	idleSince         time.Time
	at                time.Time // when it is to be looked at next, zero if never
	due               bool      // it is to be looked at now
}

func (d *Distributor) job(name string) *job {
	j := d.byName[name]
	if j == nil {
		d.made++
		j = &job{d: d, name: name, subs: make(map[uint64]*Subscriber), at: d.now}
		j.core = fanout.NewJob(fanout.Config{Name: name, Distributor: d.id, Nth: d.made - 1, Limiter: wholes{d.wholes, j}, PauseFor: limiter.PauseFor})
		d.byName[name] = j
		d.wireJob(j)
		d.jobs = append(d.jobs, j)
	}
	return j
}

func (j *job) step(e fanout.Event) (answer fanout.Action) {
	for _, a := range j.core.Step(j.d.now, e) {
		switch a := a.(type) {
		case fanout.Wake:
			j.d.pending = append(j.d.pending, j.subs[a.ID])
		case fanout.End:
			j.subs[a.ID].finish(a.Err)
		case fanout.Due:
			j.due = true
		case fanout.Notify:
			for _, p := range j.d.peers {
				if p.Session == a.Session {
					p.mark(func(u *fanout.Upstream) { u.Mark(j.name) })
				}
			}
		case fanout.Served, fanout.Changed, fanout.Known, fanout.Pause, fanout.Resume, fanout.Log:
		default:
			answer = a
		}
	}
	return answer
}

// Notify implements what limiter.Wholes wants of a job.
func (j *job) Notify() { j.due = true }

// wholes limits the whole assignments of one job, among those of all.
type wholes struct {
	*limiter.Wholes[*job]
	j *job
}

func (w wholes) Acquire(now time.Time, id uint64, key string, class, bytes int) bool {
	return w.Wholes.Acquire(now, id, key, class, w.j, bytes)
}

func (w wholes) Granted(now time.Time) []uint64 { return w.Wholes.Granted(now, w.j) }

func (w wholes) Next() time.Time {
	_, next := w.Look()
	return next
}
