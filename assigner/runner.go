package assigner

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/slicer-project/slicer/assigner/downstream"
	"github.com/slicer-project/slicer/assigner/generate"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/trace"
	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/loadbalance"
)

// runner carries out what the core of one job asks for.
type runner struct {
	a    *Assigner
	name string
	log  *slog.Logger
	wake chan struct{} // holds a token when something was heard

	mu      sync.Mutex
	job     *downstream.Job
	home    *storeWatch   // the store that keeps the job, nil when it is not known
	turn    chan struct{} // closed when assignment, preference or what is in force change
	retired bool          // another one has taken its place, or will
	// stepSince is when the change under way began or went one step further.
	stepSince time.Duration

	// The job's goroutine's: the session under which the job lease was asked for,
	// and what ends the change under way.
	session lease.WriteSession
	abandon context.CancelFunc
}

func newRunner(a *Assigner, job string) *runner {
	now := a.now()
	r := &runner{a: a, name: job, log: a.log.With("job", job), wake: make(chan struct{}, 1), turn: make(chan struct{})}
	r.job = downstream.NewJob(generate.Config{ID: a.cfg.ID, Start: a.start}, job, now, func(e downstream.Encode) downstream.Encode { return sync.OnceValues(e) })
	policy, _ := a.cfg.Rights.Policy() // before anything is reported
	r.job.Step(now, func(c *generate.Core, now generate.Now) { c.Names.Policy(now, policy) })
	for _, s := range a.sessions() {
		r.job.Step(now, downstream.Attached{From: s.id, Name: s.name})
	}
	return r
}

// tell gives the job an event, and notifies its goroutine of it. It returns the answer,
// nil if the event has none; ok is false when the runner is retired.
func (r *runner) tell(e downstream.Event) (answer downstream.Action, ok bool) {
	defer notify(r.wake)
	return r.step(e)
}

// step is tell without waking the job's goroutine.
func (r *runner) step(e downstream.Event) (answer downstream.Action, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.retired {
		return nil, false
	}
	for _, x := range r.job.Step(r.a.now(), e) {
		switch x := x.(type) {
		case downstream.Notify:
			r.say(x.To, func(s *downstream.Stream) { s.Mark(r.name) })
		case downstream.Drop:
			r.say(x.From, func(s *downstream.Stream) { s.Drop(r.name) })
		case downstream.Refuse:
			r.say(x.To, func(s *downstream.Stream) { s.Refuse(x.Message) })
		case downstream.Prefer:
			notify(r.a.dirty)
		case downstream.Turned:
			if x.Mine {
				r.a.metrics.begin(r.name)
			}
			close(r.turn)
			r.turn = make(chan struct{})
		case generate.Outputs:
			r.outputs(x)
		default:
			answer = x
		}
	}
	return answer, true
}

// say changes what is to be said to a Distributor, if its stream has not ended.
func (r *runner) say(to downstream.Session, f func(*downstream.Stream)) {
	all := r.a.sessions()
	if i, ok := slices.BinarySearchFunc(all, to, func(s *session, id downstream.Session) int { return cmp.Compare(s.id, id) }); ok {
		all[i].tell(f)
	}
}

// ask looks at the core.
func (r *runner) ask(f func(generate.View)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(r.viewLocked())
}

func (r *runner) viewLocked() generate.View { return r.job.View(r.a.now()) }

// whereabouts say which store keeps the job, and in which zone it runs. ok is
// false when there is no such job or that is not known yet.
func (r *runner) whereabouts() (home *storeWatch, zone string, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	job, known, exists := r.viewLocked().Job()
	return r.home, job.Config.Zone, known && exists && r.home != nil
}

// config is the job as it was read last; ok is false when there is no such job or that is not
// known yet.
func (r *runner) config() (job store.Job, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	job, known, exists := r.viewLocked().Job()
	return job, known && exists
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
	round := r.a.ctx // with the span of the last one
	for r.a.ctx.Err() == nil {
		policy, _ := r.a.cfg.Rights.Policy()
		answer, _ := r.step(downstream.Tick{Heard: r.a.heard, Policy: policy})
		do := answer.(downstream.Do)
		switch x := do.Action.(type) {
		case generate.Load:
			l, home := r.a.read(r.a.ctx, r.name, r.whose())
			if x.Penalties && l.Exists && l.Err == nil {
				l.Penalties, l.PenaltiesAt = home.penalties(r.a.ctx, r.name)
				l.Recalled = true
			}
			if x.Names && l.Exists && l.Err == nil {
				l.Names, l.Err = home.names(r.a.ctx, r.name)
				l.Named = l.Err == nil
			}
			r.tell(func(c *generate.Core, now generate.Now) {
				if l.Err == nil {
					r.home = home
				}
				c.Loaded(now, l)
			})
			continue
		case *generate.Plan:
			var d *generate.Planned
			round, d = r.traceRound(x)
			r.a.metrics.roundSeconds.Observe((r.a.now().Mono - x.Began()).Seconds())
			r.tell(func(c *generate.Core, now generate.Now) { c.Planned(now, d) })
			continue
		case generate.Write:
			ctx, span := trace.Start(round, r.a.cfg.Tracer, "slicer.write", slog.String("job", r.name), slog.Int64("generation", int64(x.Next.Generation())))
			err := r.write(ctx, x)
			span.End(err)
			r.tell(func(c *generate.Core, now generate.Now) { c.Written(now, err) })
			continue
		case generate.PutNames:
			err := r.putNames(x)
			r.tell(func(c *generate.Core, now generate.Now) { c.Names.Put(now, err) })
			continue
		case generate.Audit:
			err := r.audit(x)
			r.tell(func(c *generate.Core, now generate.Now) { c.Audited(now, x, err) })
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
		if r.a.retire(r) {
			return
		}
		timer.Reset(do.Wait)
		select {
		case <-r.wake:
		case <-timer.C:
		case <-r.a.ctx.Done():
		}
	}
}

// traceRound works a plan out, and returns a context with its span in it.
func (r *runner) traceRound(p *generate.Plan) (context.Context, *generate.Planned) {
	ctx, span := trace.Start(r.a.ctx, r.a.cfg.Tracer, "slicer.round", slog.String("job", r.name), slog.String("round", string(p.Why)))
	d := runIn(p)
	span.Set(slog.Int("decisions", len(d.Out.Decisions)), slog.Float64("key_churn", d.Out.Stats.KeyChurn), slog.Float64("load_churn", d.Out.Stats.LoadChurn))
	span.End(d.Err)
	return ctx, d
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

func (r *runner) whose() *storeWatch {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.home
}

// writeWithin bounds one write.
const writeWithin = 10 * time.Second

// outputs logs and counts what has come up.
func (r *runner) outputs(e generate.Outputs) {
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
	r.a.metrics.observe(r.name, e)
}
