package distributor

import (
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/distributor/fanout"
	"github.com/slicer-project/slicer/distributor/limiter/fair"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

const (
	// patience is how long a subscriber waits for somebody to know its job.
	patience = 3 * time.Second
	// unknownFor is how long it is believed that there is no such job before the
	// assigner is asked again.
	unknownFor = time.Second
	// usualHeartbeat stands for a heartbeat timeout that nobody has told yet.
	usualHeartbeat = 5 * time.Second
)

// job is what the Distributor has and does for one job. A goroutine of its own
// (run) does what falls due; all else happens in the goroutines of those whom it
// concerns. Lock order: Distributor.mu, job.mu, attachment.mu.
type job struct {
	d    *Distributor
	name string
	log  *slog.Logger
	// askedBy is the peer that the name counts against while no store is known to have
	// the job. Guarded by mu, once the job is shared.
	askedBy string
	m       *jobMetrics
	wake    chan struct{} // holds a token when run is to look again

	// Guarded by Distributor.mu: who needs the job, and since when nobody has.
	refs      int
	idleSince time.Time

	mu        sync.Mutex
	shelf     fanout.DeltaCache
	bases     fanout.Bases
	conv      fanout.Convergence
	tasks     fanout.Reports
	clients   fanout.Clients
	up        fanout.Schedule
	subs      map[uint64]*subscription
	preferred *attachment // nil when it is not attached
	target    *attachment // who is asked for assignments
	answer    answer
	lostAt    time.Time      // when the last answer lost its worth
	orphansAt time.Time      // when somebody may next have waited in vain for an answer
	heardAt   time.Time      // when the preferred assigner last heard this Distributor, zero: never
	reported  fanout.Version // the newest that a slicelet, or another Distributor, has
	home      uint64         // the store that keeps the job, as the assigners say; 0: they have not
	acksSent  fanout.Summary
	board     fanout.StatusPublisher
	slow      slowWatch
	share     fanout.Rebalancer
	paced     time.Time     // until when handshakes and letGo are held up by the newest; zero: not at all
	arrived   time.Time     // when the newest assignment came, until all hold it
	changed   chan struct{} // closed and replaced when newest or answer change

	guestLoads guestLoads
	joins      *fair.Rate // of tasks; nil before the first
}

// answer is what the assigner that is asked has said about the job.
type answer struct {
	by      *attachment // nil: nothing yet
	unknown bool
	at      time.Time
	status  *slicerv1.JobStatus // the last that was not unknown, whoever sent it
}

func newJob(d *Distributor, name string) *job {
	j := &job{
		d: d, name: name, log: d.log.With("job", name), m: d.metrics.job(name),
		wake: make(chan struct{}, 1), changed: make(chan struct{}),
		conv: fanout.NewConvergence(), tasks: fanout.NewReports(), clients: fanout.NewClients(), subs: make(map[uint64]*subscription),
		share: fanout.NewRebalancer(d.cfg.ID, name),
	}
	j.shelf.Encode = encoderOf(d.host.memo, j.m.encoded)
	return j
}

// run does what falls due until nobody has needed the job for a while or the
// Distributor closes.
func (j *job) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		now := time.Now()
		next := j.step(now)
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
		case <-j.d.stop:
			return
		}
	}
}

func (j *job) poke() {
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// step does what is due and returns when it is to be called again at the latest.
func (j *job) step(now time.Time) (next time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, s := range j.up.Mark(now) {
		for _, a := range []*attachment{j.target, j.preferred} {
			if a != nil && s != 0 && a.number == s {
				a.mark(j.name)
				break
			}
		}
	}
	next = fanout.Sooner(j.up.Wake(), j.sendWholes(now))
	next = fanout.Sooner(next, j.keepBases(now))
	next = fanout.Sooner(next, j.endOrphans(now))
	next = fanout.Sooner(next, j.watchHearing(now))
	next = fanout.Sooner(next, j.publish(now))
	next = fanout.Sooner(next, j.rebalance(now))
	return fanout.Sooner(next, j.watchSlow(now))
}

// known says whether the assigner that is asked knows the job.
func (j *job) known() bool {
	return j.answer.by != nil && j.answer.by == j.target && !j.answer.unknown
}

// endOrphans ends the streams of those who have waited in vain for somebody who
// knows the job, so that they turn to the Backup Distributor.
func (j *job) endOrphans(now time.Time) (next time.Time) {
	if j.shelf.Newest() != nil || j.known() {
		j.orphansAt = time.Time{}
		return time.Time{}
	}
	if j.orphansAt.After(now) {
		return j.orphansAt // whoever has come since may stay longer
	}
	for _, s := range j.subs {
		since := s.joined
		if j.lostAt.After(since) {
			since = j.lostAt
		}
		if at := since.Add(patience); at.After(now) {
			next = fanout.Sooner(next, at)
		} else {
			s.end(j.unavailable())
		}
	}
	j.orphansAt = next
	return next
}

func (j *job) unavailable() error {
	if j.target == nil {
		return status.Errorf(codes.Unavailable, "job %q: no %s is connected and no assignment is held here", j.name, j.d.asked())
	}
	return status.Errorf(codes.Unavailable, "job %q: %s %s has not answered and no assignment is held here", j.name, j.d.asked(), j.target.id)
}

func (j *job) notFound() error {
	return status.Errorf(codes.NotFound, "job %q does not exist; slicerctl job apply makes it", j.name)
}

// notifyLocked tells those who wait for a first assignment or answer.
func (j *job) notifyLocked() {
	close(j.changed)
	j.changed = make(chan struct{})
}

// setPeers says who is to be told and asked: the preferred assigner's stream, nil
// if it is not attached, and the target's. store is the one that they say keeps the job,
// 0 if they say nothing.
func (j *job) setPeers(now time.Time, preferred, target *attachment, store uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.home != store {
		j.home = store
		for _, s := range j.subs {
			j.kick(s) // what is held here may go to more of them now
		}
	}
	if target == j.target && preferred == j.preferred {
		return
	}
	j.log.Info("assigner chosen", "preferred", preferred.name(), "asked", target.name(), "before", j.target.name())
	if j.target != target {
		if j.answer.by != nil {
			j.lostAt = now
		}
		if j.target != nil {
			j.up.Ended(j.target.number)
			j.target.mark(j.name) // to take its Want back
		}
	}
	j.noteHeard(now)
	j.target, j.preferred = target, preferred
	j.up.SetPeers(now, preferred.session(), target.session())
	j.poke()
}
