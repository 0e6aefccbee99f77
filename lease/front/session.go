package front

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/lease"
	etcdlease "github.com/slicer-project/slicer/lease/etcd"
	"github.com/slicer-project/slicer/lease/internal/rpc"
)

// ticket is the right to a session: random, and told to its holder alone.
type ticket [16]byte

// name is that of the session's record in etcd, which tells nothing of the ticket.
func (t ticket) name() string {
	sum := sha256.Sum256(t[:])
	return hex.EncodeToString(sum[:])
}

// errUnknownHere: the session may be another front's, and is to be renewed here first.
var errUnknownHere = errors.New("the session is not known here: renew it first")

// errHoldsUp: the session has held what was recalled for as long as it may.
var errHoldsUp = fmt.Errorf("%w: it has held up a change for longer than the job's lease_duration", errFull)

// session is one that has come here. The front's lock guards what is not said to be constant.
type session struct {
	lease  *etcdlease.PoolSession // constant
	ticket ticket                 // constant
	from   rpc.Origin             // constant: where it has come from
	until  time.Time              // when it is forgotten unless it is renewed here
	looked time.Time              // when its claims were last looked for in etcd
	jobs   map[string]*part       // that it takes part in
	news   int                    // counts what it has acquired and released here
	// repeated is when an answer has told last that what its watches have told is so still.
	repeated time.Time
}

// part is a session's part in a job.
type part struct {
	job           *job
	task          string    // as which it takes part, if that is known
	may           rpc.Asked // that its holder may own the job as that task
	watch         *watch    // nil for none
	guard, bridge holding
}

// holding is a claim that a session holds, as far as it has passed through here.
type holding struct {
	claim lease.Claim
	since time.Time // when it was first found not to be granted any more, 0 if it is
	news  int       // the session's, when it was acquired or released last
}

// changes takes note of an acquire or a release.
func (x *session) changes(h *holding, c lease.Claim) {
	x.news++
	*h = holding{claim: c, news: x.news}
}

// found takes in what etcd had after so much news of the session, unless there is more of it now.
func (h *holding) found(c lease.Claim, news int) {
	if h.news <= news && h.claim != c {
		h.claim, h.since = c, time.Time{}
	}
}

func (p *part) of(c lease.Claim) *holding {
	if c.Bridge() {
		return &p.bridge
	}
	return &p.guard
}

// find returns the session that a ticket is the right to, if it has come here.
// (A lookup in a map whose hash is seeded at random tells nothing of 128 random bits by
// the time that it takes.)
func (f *Front) find(t []byte, o rpc.Origin) (*session, error) {
	if len(t) != len(ticket{}) {
		return nil, lease.ErrLost
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch x := f.byName[ticket(t)]; {
	case x == nil:
		return nil, errUnknownHere
	case x.from.Caller.Identity != o.Caller.Identity:
		return nil, lease.ErrLost
	default:
		return x, nil
	}
}

// opened is what came of an opening.
type opened struct {
	*session
	jobs     []string
	revision int64
}

// openSession opens a session in those of the jobs that it may take part in.
func (f *Front) openSession(ctx context.Context, o rpc.Origin, ttl time.Duration, names []string, tasks map[string]string) (opened, error) {
	if err := errors.Join(lease.CheckTTL(ttl), lease.CheckJobs(names), rpc.CheckTasks(names, tasks)); err != nil {
		return opened{}, err
	}
	pool, err := f.open(ctx)
	if err != nil {
		return opened{}, err
	}
	f.mu.Lock()
	err = f.limits.room(o)
	f.mu.Unlock()
	if err != nil {
		return opened{}, err
	}
	limits, refused := map[string]time.Duration{}, error(nil)
	for _, name := range names {
		limit, err := f.allowed(ctx, o, name, tasks[name])
		if err != nil {
			if refused == nil {
				refused = err
			}
			continue
		}
		limits[name] = limit
		ttl = min(ttl, limit)
	}
	if len(limits) == 0 {
		return opened{}, refused
	}
	var t ticket
	rand.Read(t[:])
	l, revision, err := pool.Open(ctx, ttl, t.name(), string(o.Caller.Identity))
	if err != nil {
		return opened{}, err
	}
	x, err := f.admit(l, t, o, limits, tasks)
	if err != nil {
		f.wg.Go(func() { f.giveBack(l) })
		return opened{}, err
	}
	out := opened{session: x, revision: revision}
	out.jobs = slices.Sorted(maps.Keys(limits))
	return out, nil
}

// giveBack ends a session that its holder was not told of.
func (f *Front) giveBack(l *etcdlease.PoolSession) {
	ctx, cancel := context.WithTimeout(f.ctx, l.TTL())
	defer cancel()
	if err := l.Close(ctx); err != nil {
		f.cfg.Logger.Info("session not given back: it runs out", "error", err)
	}
}

// admit makes a session known here.
func (f *Front) admit(l *etcdlease.PoolSession, t ticket, o rpc.Origin, limits map[string]time.Duration, tasks map[string]string) (*session, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, errClosed
	}
	if x := f.byName[t]; x != nil {
		return x, nil // another renewal was faster
	}
	if err := f.limits.room(o); err != nil {
		return nil, err
	}
	x := &session{lease: l, ticket: t, from: o, until: time.Now().Add(l.TTL()), looked: time.Now(), jobs: map[string]*part{}}
	f.byName[t] = x
	f.limits.sessions[o.Peer]++
	f.limits.came[o.Connection]++
	for name, limit := range limits {
		f.enterLocked(x, name, tasks[name], limit)
	}
	return x, nil
}

// drop forgets a session, and ends its watches.
func (f *Front) drop(x *session, why error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dropLocked(x, why)
}

func (f *Front) dropLocked(x *session, why error) {
	if f.byName[x.ticket] != x {
		return
	}
	delete(f.byName, x.ticket)
	down(f.limits.sessions, x.from.Peer)
	down(f.limits.came, x.from.Connection)
	for name, p := range x.jobs {
		if p.watch != nil {
			p.watch.end(why)
		}
		if p.job.sessions--; p.job.sessions == 0 {
			p.job.cancel()
			delete(f.jobs, name)
		}
	}
}

// join makes a session take part in a further job.
func (f *Front) join(ctx context.Context, o rpc.Origin, x *session, name, task string) error {
	if err := errors.Join(assignment.ValidateJobName(name), rpc.CheckTask(task)); err != nil {
		return err
	}
	if task == "" {
		task = f.taskOf(x, name)
	}
	limit, err := f.allowed(ctx, o, name, task)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.closed:
		return errClosed
	case f.byName[x.ticket] != x:
		return errUnknownHere
	case x.jobs[name] == nil && len(x.jobs) >= lease.MaxJobs:
		return &assignment.FieldError{Field: "jobs", Value: len(x.jobs) + 1, Allowed: fmt.Sprintf("at most %d", lease.MaxJobs)}
	}
	f.enterLocked(x, name, task, limit)
	return nil
}

// taskOf is as which one a session takes part in a job, if that is known.
func (f *Front) taskOf(x *session, name string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := x.jobs[name]; p != nil {
		return p.task
	}
	return ""
}

// introduced is a session that another front has opened.
type introduced struct {
	jobs    []etcdlease.Memory       // in which it takes part, as it says or by its claims
	limits  map[string]time.Duration // of the jobs in which it takes part
	refused map[string]error         // why it may hold nothing in some of them
}

// introduce finds a session that another front has opened, and finds out in which of the jobs
// in which it takes part, as it says or as its claims say, it may hold something.
func (f *Front) introduce(ctx context.Context, o rpc.Origin, t ticket, jobs []etcdlease.Memory, tasks map[string]string) (*session, *introduced, error) {
	pool, err := f.open(ctx)
	if err != nil {
		return nil, nil, err
	}
	if err := f.unknown(o.Peer); err != nil {
		return nil, nil, err
	}
	l, err := pool.Find(ctx, t.name())
	if err != nil {
		return nil, nil, err
	}
	f.known(o.Peer)
	if l.Owner() != string(o.Caller.Identity) {
		return nil, nil, lease.ErrLost
	}
	if jobs, err = f.withClaims(ctx, o, l, jobs); err != nil {
		return nil, nil, err
	}
	in, err := f.mayHold(ctx, o, jobs, tasks)
	if err != nil {
		return nil, nil, err
	}
	return &session{lease: l, ticket: t, from: o}, in, nil
}

// mayHold finds out in which jobs a session may hold something.
func (f *Front) mayHold(ctx context.Context, o rpc.Origin, jobs []etcdlease.Memory, tasks map[string]string) (*introduced, error) {
	in := &introduced{jobs, map[string]time.Duration{}, map[string]error{}}
	for _, j := range jobs {
		err := f.own(ctx, o, j.Job, tasks[j.Job])
		if refused(err) {
			in.refused[j.Job] = err
		} else if err != nil {
			return nil, err
		}
		switch limit, err := f.limitOf(ctx, o, j.Job); {
		case errors.Is(err, errUnknownJob): // it has gone, and its access; the session goes on in the others
			delete(in.refused, j.Job)
		case err != nil:
			return nil, err
		default:
			in.limits[j.Job] = limit
		}
	}
	return in, nil
}

// renewed is what came of a renewal.
type renewed struct {
	session  *session
	ttl      time.Duration
	revision int64
}

// renew renews a session, with one keepalive.
func (f *Front) renew(ctx context.Context, o rpc.Origin, t []byte, revision int64, jobs []etcdlease.Memory, tasks map[string]string) (renewed, error) {
	x, err := f.find(t, o)
	var in *introduced
	if err == nil && f.hides(ctx, o, x) { // then it is as one that has come from elsewhere
		f.drop(x, errUnknownHere)
		err = errUnknownHere
	}
	if errors.Is(err, errUnknownHere) {
		if x, in, err = f.introduce(ctx, o, ticket(t), jobs, tasks); err == nil {
			jobs = in.jobs
		}
	} else if err == nil {
		if err = f.holdsUp(x); err == nil {
			err = f.ownStill(ctx, o, x)
		}
	}
	if err != nil {
		return renewed{}, err
	}
	f.mu.Lock()
	asked, news := time.Now(), x.news
	f.mu.Unlock()
	r, err := x.lease.Renew(ctx, revision, jobs, func(held []etcdlease.Memory) error {
		if in == nil {
			return nil
		}
		return heldByOthers(in.refused, held)
	})
	if err != nil {
		return renewed{}, f.failed(x, err)
	}
	if in != nil {
		if x, err = f.admit(x.lease, x.ticket, o, in.limits, tasks); err != nil {
			return renewed{}, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	// Not sooner than a lease that was renewed in another way than this is over.
	x.until = asked.Add(2 * x.lease.TTL())
	for _, h := range r.Held {
		if p := x.jobs[h.Job]; p != nil {
			p.guard.found(h.Guard.Claim, news)
			p.bridge.found(h.Bridge.Claim, news)
		}
	}
	out := renewed{x, x.lease.TTL(), r.Revision}
	for _, p := range x.jobs {
		out.ttl = min(out.ttl, p.job.leaseTime())
	}
	return out, nil
}

// failed takes note of an error of a session's. One that says that etcd has gone back is
// of this session's memory, which its holder may have changed meanwhile, or of etcd; then the
// next renewal is as one of a session that is new here.
func (f *Front) failed(x *session, err error) error {
	if errors.Is(err, lease.ErrLost) {
		f.drop(x, err)
	}
	return err
}

// holdsUp returns an error if a session has held what was recalled for longer than
// the job's lease_duration.
func (f *Front) holdsUp(x *session) error {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range x.jobs {
		if p.guard.claim == (lease.Claim{}) && p.bridge.claim == (lease.Claim{}) {
			continue
		}
		r, fresh, _ := p.job.look()
		if !fresh {
			continue
		}
		for _, h := range []*holding{&p.guard, &p.bridge} {
			switch {
			case h.claim == lease.Claim{} || r.Grants(h.claim):
				h.since = time.Time{}
			case h.since.IsZero():
				h.since = now
			case now.Sub(h.since) > p.job.leaseTime():
				return errHoldsUp
			}
		}
	}
	return nil
}

// takesPart returns a session's part in a job.
func (f *Front) takesPart(x *session, name string) (*part, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := x.jobs[name]; p != nil {
		return p, nil
	}
	return nil, &assignment.FieldError{Field: "job", Value: name, Allowed: "one that the session takes part in"}
}

func (f *Front) acquire(ctx context.Context, o rpc.Origin, x *session, name string, c lease.Claim) (etcdlease.Acquired, error) {
	p, err := f.takesPart(x, name)
	if err == nil {
		err = f.own(ctx, o, name, f.taskOf(x, name))
	}
	if err != nil {
		return etcdlease.Acquired{}, err
	}
	a, err := x.lease.Acquire(ctx, name, c)
	f.mu.Lock()
	// Without an answer it holds the claim, perhaps.
	if h := p.of(c); a.OK || err != nil && h.claim == (lease.Claim{}) {
		x.changes(h, c)
	}
	f.mu.Unlock()
	return a, f.failed(x, err)
}

func (f *Front) release(ctx context.Context, x *session, name string, c lease.Claim) error {
	p, err := f.takesPart(x, name)
	if err != nil {
		return err
	}
	if err := x.lease.Release(ctx, name, c); err != nil {
		return f.failed(x, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if h := p.of(c); h.claim == c {
		x.changes(h, lease.Claim{})
	} else {
		x.news++
		h.news = x.news
	}
	return nil
}
