package distributor

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/limiter"
	"github.com/slicer-project/slicer/distributor/fanout"
	"github.com/slicer-project/slicer/distributor/internal/prepared"
)

// job is what the Distributor has and does for one job: it carries out what its
// fanout.Job decides. A goroutine of its own (run) does what falls due; all else happens
// in the goroutines of those that it concerns. Lock order: Distributor.mu, job.mu,
// attachment.mu.
type job struct {
	d    *Distributor
	name string
	log  *slog.Logger
	// askedBy is the peer that the name counts against while no store is known to have
	// the job. Guarded by mu, once the job is shared.
	askedBy string
	m       *jobMetrics
	wake    chan struct{} // holds a token when run is to look again

	// Guarded by Distributor.mu: how many need the job, and since when none has.
	refs      int
	idleSince time.Time

	mu      sync.Mutex
	core    *fanout.Job
	subs    map[uint64]*subscription       // by number
	clients map[uint64]*autoshardingClient // by number
	// preferred and target are the streams of the core's Peers, nil for none; was is the
	// target before, while the core is told.
	preferred, target, was *attachment
	changed                chan struct{} // closed and replaced when what fetches wait for may have come

	clientLoads clientLoads
}

func newJob(d *Distributor, name string) *job {
	j := &job{
		d: d, name: name, log: d.log.With("job", name), m: d.metrics.job(name),
		wake: make(chan struct{}, 1), changed: make(chan struct{}), subs: make(map[uint64]*subscription), clients: make(map[uint64]*autoshardingClient),
	}
	j.core = fanout.NewJob(fanout.Config{
		Name: name, Distributor: d.cfg.ID, Nth: d.given.jobs.Add(1) - 1, SecondTier: d.secondTier(),
		Encode: prepared.Encoder(j.m.encoded), Estimates: j.estimates,
		Limiter: jobWholes{j}, Observer: j.m, PauseFor: limiter.PauseFor,
	})
	return j
}

// run does what falls due until nothing has needed the job for a while or the
// Distributor closes.
func (j *job) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		now := time.Now()
		next := j.tick(now)
		dropAt, dropped := j.d.dropIfIdle(j, now)
		if dropped {
			return
		}
		if next = fanout.Sooner(next, dropAt); next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(next.Sub(now))
		}
		select {
		case <-j.wake:
		case <-timer.C:
		case <-j.d.handlers.Done():
			return
		}
	}
}

// Notify wakes run: something may be due. It implements limiter.Subject.
func (j *job) Notify() {
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// tick does what is due and returns when it is to be called again at the latest.
func (j *job) tick(now time.Time) (next time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.stepLocked(now, fanout.Tick{Acknowledged: j.preferred.lastAcknowledged(now)}).(fanout.Timer).At
}

// step tells the core what has happened and carries out what follows. It returns the
// answer to an event that has one, else nil.
func (j *job) step(now time.Time, e fanout.Event) (answer fanout.Action) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.stepLocked(now, e)
}

func (j *job) stepLocked(now time.Time, e fanout.Event) (answer fanout.Action) {
	for _, a := range j.core.Step(now, e) {
		switch a := a.(type) {
		case fanout.Wake:
			j.d.handlers.Go(j.subs[a.ID].send)
		case fanout.Served:
			if s := j.subs[a.ID]; s != nil {
				s.isServed()
			}
		case fanout.End:
			if s := j.subs[a.ID]; s != nil {
				s.end(a.Err)
			}
		case fanout.Due:
			j.Notify()
		case fanout.Notify:
			j.notifyLocked(a.Session)
		case fanout.Changed:
			j.changedLocked()
		case fanout.AccessChanged:
			j.reviewLocked()
		case fanout.Known:
			j.knownLocked()
		case fanout.Pause:
			j.d.handshakes.Pause(now, j)
		case fanout.Resume:
			j.d.handshakes.Resume(now, j)
		case fanout.Log:
			j.log.Log(context.Background(), a.Level, a.Message, a.Attrs...)
		default:
			answer = a
		}
	}
	return answer
}

// notifyLocked tells a peer to look at the job when its turn comes.
func (j *job) notifyLocked(s fanout.Session) {
	for _, a := range []*attachment{j.target, j.preferred, j.was} {
		if a != nil && a.Session == s {
			a.notify(func(u *fanout.Upstream) { u.Mark(j.name) })
			return
		}
	}
}

// knownLocked is for when a store turns out to have the job.
func (j *job) knownLocked() {
	j.m.show()
	if j.askedBy != "" {
		j.d.unknowns.Known(j.askedBy)
		j.askedBy = ""
	}
}

// setPeers says which streams are to be told and asked: the preferred assigner's, nil
// if it is not attached, and the target's. store is the one that they say keeps the job,
// 0 if they say nothing.
func (j *job) setPeers(now time.Time, preferred, target *attachment, store uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e := fanout.Peers{Preferred: preferred.peer(), Target: target.peer(), Store: store, Acknowledged: j.preferred.lastAcknowledged(now)}
	j.was, j.target, j.preferred = j.target, target, preferred
	j.stepLocked(now, e)
	j.was = nil
}

// newest is the newest assignment, nil if there is none.
func (j *job) newest() *assignment.Assignment {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.core.Newest()
}

// held is the assignment of a generation, nil if it is not held.
func (j *job) held(g assignment.Generation) *assignment.Assignment {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.core.Held(g)
}

// age is how long ago an assignment was stored, 0 if that is not known.
func (j *job) age(now time.Time, g assignment.Generation) time.Duration {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.core.Age(now, g)
}

// join enters a subscriber, which gets what is newest from that moment on. The error, if
// any, ends its stream.
func (j *job) join(ctx context.Context, s *subscription) error {
	return j.admit(ctx, s.petition, func(now time.Time) error { return j.joinLocked(now, s) })
}

func (j *job) joinLocked(now time.Time, s *subscription) (err error) {
	came := fanout.Came{ID: s.id, Hello: s.in}
	if s.petition != nil {
		came.Key = s.petition.peer
	}
	if s.petition.policy() != nil {
		came.Identity = string(s.petition.caller.Identity)
	}
	if s.leave, err = j.d.tasks.enter(s.petition, j.name); err != nil {
		return err
	}
	j.subs[s.id] = s
	if r, refused := j.stepLocked(now, came).(fanout.Refuse); refused {
		j.outLocked(s)
		return r.Err
	}
	s.in.Report = nil // the next one takes its place
	return nil
}

// leave ends what join began.
func (j *job) leave(now time.Time, id uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.stepLocked(now, fanout.Left{ID: id})
	if s := j.subs[id]; s != nil {
		j.outLocked(s)
	}
}

func (j *job) outLocked(s *subscription) {
	delete(j.subs, s.id)
	s.leave()
}
