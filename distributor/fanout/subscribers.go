package fanout

import (
	"cmp"
	"log/slog"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/limiter/fair"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// subscriber is what is known of one subscriber that has been let in.
type subscriber struct {
	id       uint64
	in       Hello
	key      string // of the client to limiters
	identity string // of its certificate, "" if rights are not asked for
	joined   time.Time
	progress progress

	statusSeen uint64    // version of the status that was sent last
	repeat     bool      // send the status although it has been seen
	sending    bool      // it has been woken, and takes what there is
	ended      bool      // its stream is about to end
	flightAt   time.Time // since when an acknowledgement has been waited for
	reportedAt time.Time // when a slicelet was last heard
	client     *client   // nil if it is not a clerk that says which
	quotas     quotasDue // a slicelet's
	index      int       // a clerk's, as far as it knows, -1 if none
	part       sentPart  // zero if it was sent none, or a whole after that
}

// owesIndex reports whether a clerk has an index that it does not know of.
func (s *subscriber) owesIndex() bool {
	return s.client != nil && s.client.index >= 0 && s.client.index != s.index
}

// subscribers are all that have been let in.
type subscribers struct {
	all  []*subscriber // in order of number
	byID map[uint64]*subscriber
}

func newSubscribers() subscribers { return subscribers{byID: make(map[uint64]*subscriber)} }

// get returns nil for one that is not there.
func (s *subscribers) get(id uint64) *subscriber { return s.byID[id] }

func (s *subscribers) add(x *subscriber) {
	at, _ := s.find(x.id)
	s.all = slices.Insert(s.all, at, x)
	s.byID[x.id] = x
}

func (s *subscribers) remove(id uint64) {
	if at, ok := s.find(id); ok {
		s.all = slices.Delete(s.all, at, at+1)
		delete(s.byID, id)
	}
}

func (s *subscribers) find(id uint64) (at int, ok bool) {
	if n := len(s.all); n == 0 || s.all[n-1].id < id {
		return n, false // nearly all come in order
	}
	return slices.BinarySearchFunc(s.all, id, func(x *subscriber, id uint64) int { return cmp.Compare(x.id, id) })
}

// came lets a subscriber in, from which moment on it gets what is newest.
func (j *Job) came(now time.Time, e Came) {
	s := &subscriber{id: e.ID, in: e.Hello, key: e.Key, identity: e.Identity, joined: now}
	slicelet := s.in.Role == slicerv1.Role_ROLE_SLICELET
	err := j.admit(now)
	if err == nil && slicelet {
		err = j.admitTask(now, s)
	}
	if err != nil {
		j.do(Refuse{s.id, err})
		return
	}
	if slicelet {
		j.down.tasks.report(now, j.up.reports.connect(now, s.id, s.identity, s.in.Task, s.in.Report))
		j.down.use(now, s, s.in.Report)
		s.quotas = quotasDue{due: j.down.quotas.above != nil, limits: j.down.quotas.above != nil}
		s.in.Report = nil // the next one takes its place
		s.reportedAt = now
		j.schedule.reportsChanged(now, true)
	}
	s.progress = progress{held: s.in.Held, sum: s.in.Checksum}
	j.subs.add(s)
	if s.in.Client != "" {
		s.index = s.in.Index
		s.client = j.up.clients.join(now, s.id, s.in.Client, s.in.Index)
		j.schedule.clientsChanged(now)
	}
	j.conv.join(s.id, s.in.Role, s.in.Name, j.heldBy(s))
	j.schedule.acksChanged(now)
	if slicelet {
		j.up.noteReported(now, s.in.Held)
	}
	j.cfg.Observer.Subscribers(s.in.Role, 1)
	j.counts.measure(now)
	j.down.wake(s)
	if !s.sending {
		j.do(Served{s.id})
	}
	j.due = true
}

// admit refuses all while there is no such job. After a while the assigner is asked
// again instead.
func (j *Job) admit(now time.Time) error {
	if j.up.unknown() {
		if now.Sub(j.up.answer.at) < UnknownFor {
			return j.up.notFound()
		}
		j.up.askAnew(now)
	}
	return nil
}

// heldBy is what a subscriber counts as holding: not what it says that it holds when
// that is not what is held here.
func (j *Job) heldBy(s *subscriber) Version {
	held := s.progress.held
	if it := j.cache.item(held.Gen); it != nil && it.a.StoreID() == held.Store && it.a.Checksum() != s.progress.sum && !s.holdsPart(it) {
		return Version{}
	}
	return held
}

// admitTask refuses a slicelet while another of its name lives. One that has reconnected
// takes its own place.
func (j *Job) admitTask(now time.Time, s *subscriber) error {
	name := s.in.Task.GetName()
	t, ok := j.up.reports.holder(name)
	again := ok && t.task.GetIncarnation() == s.in.Task.GetIncarnation() && !t.foreign(s.identity)
	if !again {
		if err := j.admitJoin(now, s); err != nil {
			return err
		}
	}
	if !ok {
		return nil
	}
	old := j.subs.get(t.by)
	switch {
	case again:
		j.say(slog.LevelInfo, "slicelet has reconnected", "task", name)
	case old != nil && now.Sub(old.reportedAt) <= j.up.answer.heartbeat():
		attrs := []any{"task", name, "address", s.in.Task.GetAddress(), "first", t.task.GetAddress(), "identity", s.identity, "first_identity", t.identity}
		if t.foreign(s.identity) { // which may not learn whose it is, nor where
			j.say(slog.LevelWarn, "second live task of one name refused", append(attrs, "audit", "refused")...)
			return status.Errorf(codes.AlreadyExists, "job %q: task %q is alive, and of another identity", j.cfg.Name, name)
		}
		j.say(slog.LevelWarn, "second live task of one name refused", attrs...)
		return status.Errorf(codes.AlreadyExists, "job %q: task %q is alive at %s as another incarnation (%016x)", j.cfg.Name, name, t.task.GetAddress(), t.task.GetIncarnation())
	default:
		j.say(slog.LevelInfo, "silent task makes way for another incarnation", "task", name, "address", s.in.Task.GetAddress())
		j.up.disconnect(now, t.by, name)
	}
	if old != nil {
		j.remove(now, old)
		j.end(old, status.Errorf(codes.Aborted, "job %q: a newer stream of task %q has taken this one's place", j.cfg.Name, name))
	}
	return nil
}

const (
	// joinEvery is how often a name may join that has a new incarnation each time, or was
	// away, from one address, and joinBurst how often at once.
	joinEvery, joinBurst = time.Second, 10
)

// admitJoin refuses a slicelet whose name joins again and again: each time the assigners
// would have to make an assignment.
func (j *Job) admitJoin(now time.Time, s *subscriber) error {
	if s.key == "" {
		return nil
	}
	if j.joins == nil {
		j.joins = fair.NewRate(joinEvery, joinBurst)
	}
	name := s.in.Task.GetName()
	if !j.joins.Allow(now, name+" "+s.key) {
		return status.Errorf(codes.ResourceExhausted, "job %q: task %q has joined too often from %s: once in %s is allowed, and %d times at once", j.cfg.Name, name, s.key, joinEvery, joinBurst)
	}
	return nil
}

// heartbeat is how long a task may be silent before it counts as dead.
func (a *answer) heartbeat() time.Duration {
	if ms := a.status.GetHeartbeatTimeoutMs(); ms > 0 {
		return time.Duration(ms) * time.Millisecond
	}
	return usualHeartbeat
}

// left takes the end of a stream. The subscriber may have been removed before.
func (j *Job) left(now time.Time, id uint64) {
	if g := j.autosharding[id]; g != nil {
		delete(j.autosharding, id)
		j.conv.leave(id)
		j.cfg.Observer.Subscribers(slicerv1.Role_ROLE_CLERK, -1)
		j.counts.recount(now)
		return
	}
	s := j.subs.get(id)
	if s == nil {
		return
	}
	if s.in.Role == slicerv1.Role_ROLE_SLICELET && j.up.disconnect(now, s.id, s.in.Task.GetName()) {
		j.schedule.reportsChanged(now, true)
		j.schedule.usesChanged(now, j.up.limited())
	}
	j.remove(now, s)
	j.due = true
}

// disconnect forgets a task whose stream ends, and reports whether it did.
func (u *upward) disconnect(now time.Time, by uint64, task string) bool {
	ok := u.reports.disconnect(by, task, u.schedule.receives())
	if ok {
		u.down.tasks.leave(now, task)
		u.down.quotas.gone(task)
	}
	return ok
}

func (j *Job) remove(now time.Time, s *subscriber) {
	j.subs.remove(s.id)
	j.cfg.Limiter.Release(now, s.id)
	j.conv.leave(s.id)
	j.counts.pace(now, false)
	if s.in.Client != "" && j.up.clients.leave(s.id, s.in.Client, j.schedule.knowsClients()) {
		j.schedule.clientsChanged(now)
	}
	j.schedule.acksChanged(now)
	j.cfg.Observer.Subscribers(s.in.Role, -1)
	j.counts.measure(now)
}

// report takes a slicelet's report.
func (j *Job) report(now time.Time, e Reported) {
	s := j.subs.get(e.ID)
	if s == nil {
		return
	}
	s.reportedAt = now
	t, changed := j.up.reports.report(now, s.id, s.in.Task.GetName(), e.Report)
	idle := j.schedule.reports.at.IsZero()
	j.schedule.reportsChanged(now, changed)
	j.cfg.Observer.Report()
	told := !j.down.tasks.due.at.IsZero()
	if t != nil {
		j.down.tasks.report(now, t)
		j.down.use(now, s, e.Report)
		j.schedule.usesChanged(now, j.up.limited())
	}
	if changed || idle || told != !j.down.tasks.due.at.IsZero() {
		j.due = true
	}
}

// ack takes a subscriber's acknowledgement or refusal of what it was sent.
func (j *Job) ack(now time.Time, e Acked) {
	s := j.subs.get(e.ID)
	if s == nil {
		return
	}
	j.cfg.Limiter.Release(now, s.id)
	if e.Refusal != "" {
		j.complain(now, s.key, "assignment refused by a subscriber", "subscriber", s.in.Name, "generation", e.Gen, "reason", assignment.Clip(e.Refusal, maxText))
		j.cfg.Observer.Refused()
		s.in.Parts = s.in.Parts && !s.progress.flightWhole
		s.progress.declined()
		s.in.Compressed = false // should that be why
	} else {
		s.progress.acked(e.Gen)
		if s.in.Role == slicerv1.Role_ROLE_SLICELET {
			j.up.noteReported(now, s.progress.held)
		}
		j.counts.holds(now, s.id, s.in.Role, s.progress.held)
	}
	j.down.wake(s)
}

// maxText bounds what others say in a log line, bytes.
const maxText = 256
