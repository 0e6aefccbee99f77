package assigner

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/slicer-project/slicer/assigner/clientindex"
	"github.com/slicer-project/slicer/assigner/generate"
	"github.com/slicer-project/slicer/assigner/membership"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/loadbalance"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// runner carries out what the core of one job asks for.
type runner struct {
	a    *Assigner
	name string
	log  *slog.Logger
	wake chan struct{} // holds a token when something was heard

	mu       sync.Mutex
	core     *generate.Core
	home     *shelf                // the store that keeps the job, nil when it is not known
	watchers map[*session]struct{} // Distributors that have asked about the job
	clients  *clientindex.Table
	attached []clientindex.Session // room for those of indexClients
	frames   frames
	status   *slicerv1.JobStatus // nil before the store has answered
	version  int64               // of the config, as last looked at for preference
	exists   bool
	turn     chan struct{} // closed when assignment, preference or what is in force change
	mine     bool
	inForce  assignment.Generation
	// stepSince is when the change under way began or went one step further.
	stepSince time.Duration

	// The job's goroutine's: the session under which the job lease was asked for,
	// and what ends the change under way.
	session lease.WriteSession
	abandon context.CancelFunc
}

func newRunner(a *Assigner, job string) *runner {
	now := a.now()
	r := &runner{
		a: a, name: job, log: a.log.With("job", job), wake: make(chan struct{}, 1),
		core:     generate.New(generate.Config{ID: a.cfg.ID, Start: a.start}, job, now),
		watchers: make(map[*session]struct{}), turn: make(chan struct{}), clients: clientindex.New(clientindex.Config{}),
	}
	for _, s := range a.sessions() {
		r.core.Attach(now, s.id, s.name)
	}
	return r
}

// tell has the core take something in, and the runner look what follows.
func (r *runner) tell(f func(c *generate.Core, now generate.Now)) {
	r.mu.Lock()
	f(r.core, r.a.now())
	r.settle()
	r.mu.Unlock()
	poke(r.wake)
}

// ask looks at the core.
func (r *runner) ask(f func(generate.View)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(r.viewLocked())
}

func (r *runner) viewLocked() generate.View { return r.core.View(r.a.now()) }

// recheck has the store asked once more whether there is such a job, before
// anybody is told again that there is none.
func (r *runner) recheck() {
	r.tell(func(c *generate.Core, now generate.Now) {
		if _, known, exists := c.View(now).Job(); known && !exists {
			c.Forget(now)
			r.status = nil
		}
	})
}

// release takes a Distributor off the watchers if there is no such job.
func (r *runner) release(s *session) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known, exists := r.viewLocked().Job(); !known || exists {
		return false
	}
	delete(r.watchers, s)
	poke(r.wake)
	return true
}

// forget takes note that a Distributor's stream has ended.
func (r *runner) forget(s *session) {
	r.mu.Lock()
	delete(r.watchers, s)
	r.mu.Unlock()
	r.tell(func(c *generate.Core, now generate.Now) { c.Detach(now, s.id) })
}

// idleLocked says whether nobody would miss the runner.
func (r *runner) idleLocked() bool {
	_, known, exists := r.viewLocked().Job()
	return known && !exists && len(r.watchers) == 0 && !r.viewLocked().Leading()
}

// isMine reports whether this assigner was preferred for the job when the core last spoke.
func (r *runner) isMine() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mine
}

// whereabouts say which store keeps the job, and in which zone it runs. ok is
// false when there is no such job or that is not known yet.
func (r *runner) whereabouts() (home *shelf, zone string, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	job, known, exists := r.viewLocked().Job()
	return r.home, job.Config.Zone, known && exists && r.home != nil
}

// decides reports whether the store takes this assigner's decisions.
func (r *runner) decides() bool {
	home := r.whose()
	return home != nil && home.health.decides()
}

// run is the job's goroutine.
func (r *runner) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for r.a.ctx.Err() == nil {
		action, wake := r.next()
		switch x := action.(type) {
		case generate.Load:
			l, home := r.a.read(r.a.ctx, r.name, r.whose())
			if x.Penalties && l.Exists && l.Err == nil {
				l.Penalties, l.PenaltiesAt = home.penalties(r.a.ctx, r.name)
				l.Recalled = true
			}
			r.tell(func(c *generate.Core, now generate.Now) {
				if l.Err == nil {
					r.home = home
				}
				c.Loaded(now, l)
			})
			continue
		case *generate.Plan:
			d := runIn(x)
			r.a.metrics.roundSeconds.Observe((r.a.now().Mono - x.Began()).Seconds())
			r.tell(func(c *generate.Core, now generate.Now) { c.Planned(now, d) })
			continue
		case generate.Write:
			err := r.write(x)
			r.tell(func(c *generate.Core, now generate.Now) { c.Written(now, err) })
			continue
		case generate.Note:
			err := r.note(x)
			r.tell(func(c *generate.Core, now generate.Now) { c.Noted(now, x, err) })
			continue
		case generate.Lead:
			token, err := r.lead()
			r.tell(func(c *generate.Core, now generate.Now) { c.Led(now, token, err) })
			continue
		case generate.Change:
			r.change(x)
			continue
		case generate.Abandon:
			r.abandon()
			continue
		case generate.Resign:
			err := r.resign(x.Token)
			r.tell(func(c *generate.Core, now generate.Now) { c.Resigned(now, err) })
			continue
		}
		r.mu.Lock()
		idle := r.idleLocked()
		r.mu.Unlock()
		if idle && r.a.retire(r) {
			return
		}
		timer.Reset(wake)
		select {
		case <-r.wake:
		case <-timer.C:
		case <-r.a.ctx.Done():
		}
	}
}

// workspaces are for rounds, of whatever job, one at a time each.
var workspaces = sync.Pool{New: func() any { return new(loadbalance.Workspace) }}

// runIn works a plan out in memory that is used again.
func runIn(p *generate.Plan) *generate.Planned {
	w := workspaces.Get().(*loadbalance.Workspace)
	defer workspaces.Put(w)
	p.Work = w
	return p.Run()
}

// next asks the core what to do, and for how long there is nothing.
func (r *runner) next() (action generate.Action, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.a.now()
	if r.viewLocked().IsPreferred() {
		for _, s := range r.a.sessions() {
			r.core.Heard(now, s.id, s.lastHeard())
		}
	}
	action, wake := r.core.Next(now)
	wake = min(wake, r.indexClients(now))
	r.settle()
	return action, max(wake-now.Mono, time.Millisecond)
}

func (r *runner) whose() *shelf {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.home
}

// writeWithin bounds one write.
const writeWithin = 10 * time.Second

// settle passes on what the core has to say and what has changed in it. r.mu is held.
func (r *runner) settle() {
	r.effects(r.core.Effects())
	job, known, exists := r.viewLocked().Job()
	if !known {
		return
	}
	turned := false
	if r.frames.publish(r.a.now().Mono, r.viewLocked().Stored()) {
		turned = true
		for s := range r.watchers {
			s.assignment(r)
		}
	}
	if r.statusLocked() {
		for s := range r.watchers {
			s.status(r)
		}
	}
	if !exists {
		// Those that stopped to want it before it was known that there is none.
		maps.DeleteFunc(r.watchers, func(s *session, _ struct{}) bool { return s.forgets(r.name) })
	}
	if r.exists != exists || r.version != job.Version {
		r.exists, r.version = exists, job.Version
		poke(r.a.dirty)
	}
	if mine := r.viewLocked().IsPreferred(); mine != r.mine {
		r.mine, turned = mine, true
		if mine {
			r.a.metrics.begin(r.name)
		}
	}
	if g := r.viewLocked().InForce(); g != r.inForce {
		r.inForce, turned = g, true
	}
	if turned {
		close(r.turn)
		r.turn = make(chan struct{})
	}
}

// effects carries out what has come up. r.mu is held.
func (r *runner) effects(e generate.Effects) {
	for _, l := range e.Logs {
		r.log.Log(r.a.ctx, l.Level, l.Message, l.Attrs...)
	}
	for _, x := range e.Rounds {
		if r.log.Enabled(r.a.ctx, slog.LevelDebug) {
			for _, d := range x.Decisions {
				r.log.Debug("decision", "kind", string(d.Kind), "reason", string(d.Reason), "round", string(x.Why), "slice", d.Slice.String(),
					"from", d.From, "to", d.To, "benefit", d.Benefit, "key_churn", d.KeyChurn, "load_churn", d.LoadChurn)
			}
		}
	}
	for _, x := range e.Refusals {
		for _, s := range r.a.sessions() {
			if containsSession(x.Sessions, s.id) {
				s.refuse(r.name, x)
			}
		}
	}
	r.a.metrics.observe(r.name, e)
}

func containsSession(ids []membership.Session, id membership.Session) bool {
	for _, x := range ids {
		if x == id {
			return true
		}
	}
	return false
}
