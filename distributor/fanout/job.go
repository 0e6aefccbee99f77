package fanout

import (
	"log/slog"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/limiter/fair"
	"github.com/slicer-project/slicer/distributor/internal/prepared"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

const (
	// Patience is how long a subscriber waits for an assigner to know its job.
	Patience = 3 * time.Second
	// UnknownFor is how long it is believed that there is no such job before the
	// assigner is asked again.
	UnknownFor = time.Second
	// usualHeartbeat stands for a heartbeat timeout that is not known yet.
	usualHeartbeat = 5 * time.Second
	// keepActions is how many actions memory is kept for between two events.
	keepActions = 256
)

// Config is what a Job is made with.
type Config struct {
	Name        string
	Distributor string // its id
	// Nth is how many jobs the Distributor has made before, of whatever names. The numbers
	// of reports go on from those of the job of that name before: an assigner takes lower
	// ones on the same stream for old.
	Nth uint64
	// SecondTier: assignments come from Distributors of the first tier.
	SecondTier bool
	// Encode makes the messages that lead from a base, nil for none, to an assignment, which
	// without a base may be compressed; both may be parts. nil is prepared.Encoder.
	Encode func(base, a *assignment.Assignment, compressed bool) *prepared.Messages
	// Estimates returns the load of tasks that report none, nil if nothing is known. What
	// it returns may return nil, too. It may be nil.
	Estimates func(now time.Time, newest *assignment.Assignment) func(task string, cpu float64) *slicerv1.LoadReport
	Limiter   Limiter  // nil: nothing is limited
	Observer  Observer // may be nil
	// PauseFor is for how long an assignment that is on its way holds other things up at
	// most: see Pause.
	PauseFor time.Duration
}

// Job is all that is decided for one job: Step joins its parts. It is not safe for
// concurrent use.
type Job struct {
	*core
	down         downward
	up           upward
	counts       counts
	rebalancer   rebalancer
	autosharding map[uint64]*autoshardingClient // auto-sharding clients
	joins        *fair.Rate                     // of tasks; nil before the first
}

// core is what all parts of a job know.
type core struct {
	cfg      Config
	cache    deltaCache
	conv     convergence
	schedule schedule
	subs     subscribers
	slow     slowWatch

	complaints *fair.Lines // by client; nil before the first

	out []Action
	due bool // Due is to be among them
}

// downward is what subscribers are sent.
type downward struct {
	*core
	bases     bases
	publisher statusPublisher
	tasks     conditions
	quotas    quotas
	home      uint64 // the store that keeps the job, as the assigners say; 0: they have not
}

// upward is what assigners are told, and say.
type upward struct {
	*core
	down           *downward
	reports        reports
	clients        clients
	preferred      Peer // zero when it is not attached
	target         Peer // is asked for assignments
	answer         answer
	acknowledgedAt time.Time // by the preferred assigner, zero: never
	reported       Version   // the newest that a slicelet, or another Distributor, has
	acksSent       summary
}

// counts is how far the newest assignment has come.
type counts struct {
	*core
	paced   time.Time // until when the newest holds other things up; zero: not at all
	arrived time.Time // when the newest assignment came, until all hold it
}

// answer is what the assigner that is asked has said about the job.
type answer struct {
	by      Session // 0: nothing yet
	unknown bool
	at      time.Time
	status  *slicerv1.JobStatus // the last that was not unknown, from any peer
	lostAt  time.Time           // when the last answer lost its worth
	access  *assignment.Access  // what the job's config says of rights; nil: not known
	// orphansAt is when a subscriber may next have waited in vain for an answer.
	orphansAt time.Time
}

// NewJob makes a job that knows nothing yet.
func NewJob(cfg Config) *Job {
	if cfg.Encode == nil {
		cfg.Encode = prepared.Encoder(func(string) {})
	}
	if cfg.Limiter == nil {
		cfg.Limiter = unlimited{}
	}
	if cfg.Observer == nil {
		cfg.Observer = unobserved{}
	}
	c := &core{cfg: cfg, conv: newConvergence(), cache: deltaCache{encode: cfg.Encode}, subs: newSubscribers()}
	j := &Job{
		core: c, down: downward{core: c, tasks: newConditions(), quotas: newQuotas()}, counts: counts{core: c},
		rebalancer: newRebalancer(cfg.Distributor, cfg.Name), autosharding: make(map[uint64]*autoshardingClient),
	}
	j.up = upward{core: c, down: &j.down, reports: newReports(cfg.Nth), clients: newClients()}
	return j
}

// Step takes what has happened, and returns what is to be done, in that order. The slice
// is good until the next Step.
func (j *Job) Step(now time.Time, e Event) []Action {
	if clear(j.out); cap(j.out) > keepActions {
		j.out = nil
	}
	j.out = j.out[:0]
	switch e := e.(type) {
	case Tick:
		j.tick(now, e.Acknowledged)
	case Ready:
		j.down.send(now, e.ID, j.up.target.Session)
	case PartCut:
		j.down.sendPart(now, e, j.up.target.Session)
	case Reported:
		j.report(now, e)
	case Acked:
		j.ack(now, e)
	case PeerReady:
		j.up.tell(now, e.Session)
	case Came:
		j.came(now, e)
	case Left:
		j.left(now, e.ID)
	case ClientCame, ClientAsks, ClientHolds, ClientRefuses, ClientObserves:
		j.client(now, e)
	case Fetched:
		j.fetch(now, e)
	case AccessAsked:
		j.askAccess(now, e)
	case DeltaFailed:
		if s := j.subs.get(e.ID); s != nil {
			s.progress.declined()
		}
	case Holds:
		if s := j.subs.get(e.ID); s != nil {
			s.progress.held, s.progress.sum, s.repeat, s.in.Compressed = e.Held, e.Checksum, true, e.Compressed
			j.down.wake(s)
		}
	case HeldElsewhere:
		j.up.noteReported(now, e.Held)
		j.due = true
	default:
		j.fromAbove(now, e)
	}
	if j.due {
		j.due = false
		j.do(Due{})
	}
	return j.out
}

func (c *core) do(a Action) { c.out = append(c.out, a) }

// end ends a subscriber's stream, once.
func (c *core) end(s *subscriber, err error) {
	if s != nil && !s.ended {
		s.ended = true
		c.do(End{s.id, err})
	}
}

func (c *core) say(level slog.Level, message string, attrs ...any) {
	c.do(Log{level, message, attrs})
}

// Complaints about what one client sends leave so many lines at once, and one each complainEvery:
// it may send without end.
const complainEvery, complainBurst = 100 * time.Millisecond, 10

// complain is a warning about what a client, by its key to limiters, has sent.
func (c *core) complain(now time.Time, key, message string, attrs ...any) {
	if c.complaints == nil {
		c.complaints = fair.NewLines(complainEvery, complainBurst)
	}
	left, ok := c.complaints.Allow(now, key)
	if !ok {
		return
	}
	if left > 0 {
		attrs = append(attrs, "unlogged", left)
	}
	c.say(slog.LevelWarn, message, attrs...)
}

// tick does what is due.
func (j *Job) tick(now, acknowledged time.Time) {
	for _, s := range j.schedule.mark(now) {
		if s != 0 {
			j.do(Notify{s})
		}
	}
	next := Sooner(j.schedule.wake(), j.down.sendWholes(now))
	next = Sooner(next, j.down.expireBases(now))
	next = Sooner(next, j.endOrphans(now))
	j.up.noteAcknowledged(acknowledged)
	next = Sooner(next, j.up.watchAcknowledgement(now))
	next = Sooner(next, j.down.publish(now))
	next = Sooner(next, j.rebalance(now))
	next = Sooner(next, j.counts.watchSlow(now))
	j.do(Timer{next})
}

// Newest is the newest assignment, nil if there is none.
func (j *Job) Newest() *assignment.Assignment { return j.cache.newest() }

// Held is the assignment of a generation, nil if it is not held.
func (j *Job) Held(g assignment.Generation) *assignment.Assignment { return j.cache.find(g) }

// Age is how long ago an assignment was stored, 0 if that is not known. It need not be
// the newest any more.
func (j *Job) Age(now time.Time, g assignment.Generation) time.Duration {
	written := j.cache.written(g)
	if written.IsZero() {
		return 0
	}
	return max(now.Sub(written), 0)
}

// Status is the last that an assigner has said of the job, nil before the first.
func (j *Job) Status() *slicerv1.JobStatus { return j.up.answer.status }

// Unmeasured reports whether there are tasks and none has reported load.
func (j *Job) Unmeasured() bool { return j.up.reports.unmeasured() }

// known reports whether the assigner that is asked knows the job.
func (u *upward) known() bool {
	return u.answer.by != 0 && u.answer.by == u.target.Session && !u.answer.unknown
}

// unknown reports whether the assigner that is asked says that there is no such job.
func (u *upward) unknown() bool { return u.answer.unknown && u.answer.by == u.target.Session }

// endOrphans ends the streams of those that have waited in vain for an assigner that
// knows the job, so that they turn to the Backup Distributor.
func (j *Job) endOrphans(now time.Time) (next time.Time) {
	if j.cache.newest() != nil || j.up.known() {
		j.up.answer.orphansAt = time.Time{}
		return time.Time{}
	}
	if j.up.answer.orphansAt.After(now) {
		return j.up.answer.orphansAt // what has come since may stay longer
	}
	for _, s := range j.subs.all {
		if at := j.up.answer.since(s.joined).Add(Patience); at.After(now) {
			next = Sooner(next, at)
		} else {
			j.end(s, j.up.unavailable())
		}
	}
	j.up.answer.orphansAt = next
	return next
}

// since is from when an answer has been waited for.
func (a *answer) since(joined time.Time) time.Time {
	if a.lostAt.After(joined) {
		return a.lostAt
	}
	return joined
}

// asked is what is asked for assignments.
func (c *Config) asked() string {
	if c.SecondTier {
		return "distributor of the first tier"
	}
	return "assigner"
}

func (u *upward) unavailable() error {
	if u.target == (Peer{}) {
		return status.Errorf(codes.Unavailable, "job %q: no %s is connected and no assignment is held here", u.cfg.Name, u.cfg.asked())
	}
	return status.Errorf(codes.Unavailable, "job %q: %s %s has not answered and no assignment is held here", u.cfg.Name, u.cfg.asked(), u.target.ID)
}

func (u *upward) notFound() error {
	return status.Errorf(codes.NotFound, "job %q does not exist; slicerctl job apply makes it", u.cfg.Name)
}

// askAnew asks the assigner again whether there is such a job.
func (u *upward) askAnew(now time.Time) {
	u.answer.by, u.answer.unknown = 0, false
	u.answer.lostAt = now
	u.schedule.askAnew(now)
}

// fetch looks for one generation.
func (j *Job) fetch(now time.Time, e Fetched) {
	newest := j.cache.newest()
	g := e.Gen
	switch {
	case newest != nil && g == 0:
		g = newest.Generation()
	case newest != nil && j.cache.find(g) == nil && !e.Waited && j.down.seekBase(now, g, j.up.target.Session):
		return
	case newest != nil && j.cache.find(g) == nil:
		j.do(Found{Err: status.Errorf(codes.NotFound, "job %q: generation %d is not held here, the newest is %d", j.cfg.Name, g, newest.Generation())})
		return
	case newest != nil:
	case j.up.unknown() && now.Sub(j.up.answer.at) < UnknownFor:
		j.do(Found{Err: j.up.notFound()})
		return
	case j.up.answer.unknown && !e.Waited:
		j.up.askAnew(now)
		j.due = true
		return
	case !e.Waited:
		return
	case j.up.known():
		j.do(Found{Err: status.Errorf(codes.NotFound, "job %q: it has no assignment yet", j.cfg.Name)})
		return
	default:
		j.do(Found{Err: j.up.unavailable()})
		return
	}
	if it := j.cache.item(g); e.Part != "" && it.a.NumSlices() >= assignment.PartFrom {
		cut := it.parts()
		j.do(Found{Messages: prepared.Later(func() *prepared.Messages { return j.cfg.Encode(nil, cut.Part(e.Part), false) })})
		return
	}
	j.do(Found{Messages: j.cache.whole(g, e.Compressed)})
}
