package distributor

import (
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/distributor/fanout"
	"github.com/slicer-project/slicer/distributor/internal/prepared"
	"github.com/slicer-project/slicer/distributor/limiter/fair"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// join makes a subscriber a member, from which moment on it gets what is newest.
// The error, if any, ends its stream.
func (j *job) join(now time.Time, s *subscription) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.admitLocked(now); err != nil {
		return err
	}
	if s.in.role == slicerv1.Role_ROLE_SLICELET {
		if err := j.admitTask(now, s); err != nil {
			return err
		}
		j.tasks.Connect(now, s.id, s.in.task, s.in.report)
		s.in.report = nil // the next one takes its place
		s.reportedAt = now
		j.up.ReportsChanged(now, true)
	}
	s.joined = now
	s.progress = fanout.Progress{Held: s.in.held, Sum: s.in.sum}
	j.subs[s.id] = s
	j.joinClient(now, s)
	j.conv.Join(s.id, s.in.role, s.in.name, j.heldBy(s))
	j.up.AcksChanged(now)
	if s.in.role == slicerv1.Role_ROLE_SLICELET {
		j.noteReported(now, s.in.held)
	}
	j.m.subscribers(s.in.role, 1)
	j.measure(now)
	j.kick(s)
	if !s.sending {
		s.isServed()
	}
	j.poke()
	return nil
}

// admitLocked refuses everybody while there is no such job. After a while it has
// the assigner asked again instead.
func (j *job) admitLocked(now time.Time) error {
	if j.answer.unknown && j.answer.by == j.target {
		if now.Sub(j.answer.at) < unknownFor {
			return j.notFound()
		}
		j.askAnewLocked(now)
	}
	return nil
}

// heldBy is what a subscriber counts as holding: not what it says that it holds
// when that is not what is held here.
func (j *job) heldBy(s *subscription) fanout.Version {
	held := s.progress.Held
	if a := j.shelf.Find(held.Gen); a != nil && a.StoreID() == held.Store && a.Checksum() != s.progress.Sum {
		return fanout.Version{}
	}
	return held
}

// admitTask refuses a slicelet while another of its name lives, and has one take
// its own place when it has reconnected.
func (j *job) admitTask(now time.Time, s *subscription) error {
	t, ok := j.tasks.Holder(s.in.task.GetName())
	if again := ok && t.Task.GetIncarnation() == s.in.task.GetIncarnation(); !again {
		if err := j.admitJoin(now, s); err != nil {
			return err
		}
	}
	if !ok {
		return nil
	}
	old := j.subs[t.By]
	name := s.in.task.GetName()
	switch {
	case t.Task.GetIncarnation() == s.in.task.GetIncarnation():
		j.log.Info("slicelet has reconnected", "task", name)
	case old != nil && now.Sub(old.reportedAt) <= j.heartbeat():
		j.log.Warn("second live task of one name refused", "task", name,
			"address", s.in.task.GetAddress(), "first", t.Task.GetAddress())
		return status.Errorf(codes.AlreadyExists, "job %q: task %q is alive at %s as another incarnation (%016x)",
			j.name, name, t.Task.GetAddress(), t.Task.GetIncarnation())
	default:
		j.log.Info("silent task makes way for another incarnation", "task", name, "address", s.in.task.GetAddress())
		j.tasks.Disconnect(t.By, name, j.up.Receives())
	}
	if old != nil {
		j.removeLocked(now, old)
		old.end(status.Errorf(codes.Aborted, "job %q: a newer stream of task %q has taken this one's place", j.name, name))
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
func (j *job) admitJoin(now time.Time, s *subscription) error {
	if s.peer == "" {
		return nil // it is driven
	}
	if j.joins == nil {
		j.joins = fair.NewRate(joinEvery, joinBurst)
	}
	name := s.in.task.GetName()
	if !j.joins.Allow(now, name+" "+s.peer) {
		return status.Errorf(codes.ResourceExhausted, "job %q: task %q has joined too often from %s: once in %s is allowed, and %d times at once", j.name, name, s.peer, joinEvery, joinBurst)
	}
	return nil
}

// heartbeat is how long a task may be silent before it counts as dead.
func (j *job) heartbeat() time.Duration {
	if ms := j.answer.status.GetHeartbeatTimeoutMs(); ms > 0 {
		return time.Duration(ms) * time.Millisecond
	}
	return usualHeartbeat
}

// leave ends a membership; it may have ended before.
func (j *job) leave(now time.Time, s *subscription) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.subs[s.id] != s {
		return
	}
	if s.in.role == slicerv1.Role_ROLE_SLICELET && j.tasks.Disconnect(s.id, s.in.task.GetName(), j.up.Receives()) {
		j.up.ReportsChanged(now, true)
	}
	j.removeLocked(now, s)
	j.poke()
}

func (j *job) removeLocked(now time.Time, s *subscription) {
	s.left = true
	delete(j.subs, s.id)
	j.d.wholes.Release(now, s.id)
	j.conv.Leave(s.id)
	j.pace(now, false)
	j.leaveClient(now, s)
	j.up.AcksChanged(now)
	j.m.subscribers(s.in.role, -1)
	j.measure(now)
}

// noteReported remembers the newest generation that a slicelet has, for the assigner
// to go on from.
// What is of another store than the newest, or far ahead, is the past of another
// store, or made up.
func (j *job) noteReported(now time.Time, m fanout.Version) {
	newest := fanout.VersionOf(j.shelf.Newest())
	limit := max(newest.Gen, assignment.Generation(now.UnixMilli())) + assignment.Generation(assignment.MaxReportedAhead.Milliseconds())
	if m.Gen > limit {
		j.log.Warn("generation that a slicelet claims is too far ahead, it counts for nothing", "generation", m.Gen, "store", m.Store)
		return
	}
	if m.Gen == 0 || newest.Gen != 0 && m.Store != newest.Store {
		return
	}
	if m.Gen > j.reported.Gen || newest.Gen != 0 && j.reported.Store != newest.Store {
		j.reported = m
	}
	j.up.Reported(now, j.reported.Gen, newest.Gen)
}

// noteStore is for when the newest assignment is of another store than the one before:
// only what slicelets hold of that counts from then on.
func (j *job) noteStore(now time.Time) {
	j.reported, j.up.Asked = fanout.Version{}, 0
	for _, s := range j.subs {
		if s.in.role == slicerv1.Role_ROLE_SLICELET {
			j.noteReported(now, s.progress.Held)
		}
	}
}

func (j *job) askAnewLocked(now time.Time) {
	j.answer.by, j.answer.unknown = nil, false
	j.lostAt = now
	j.up.AskAnew(now)
}

// report takes a slicelet's report.
func (j *job) report(now time.Time, s *subscription, r *slicerv1.Report) {
	j.mu.Lock()
	defer j.mu.Unlock()
	s.reportedAt = now
	changed := j.tasks.Report(now, s.id, s.in.task.GetName(), r)
	idle := j.up.Reports.At.IsZero()
	j.up.ReportsChanged(now, changed)
	j.m.report()
	if changed || idle {
		j.poke()
	}
}

// ack takes a subscriber's acknowledgement or refusal of what it was sent.
func (j *job) ack(now time.Time, s *subscription, a *slicerv1.Ack) error {
	g := assignment.Generation(a.GetGeneration())
	if err := checkGeneration(g, now); err != nil {
		return invalid("ack", err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.d.wholes.Release(now, s.id)
	if a.GetRefusal() != "" {
		j.log.Warn("assignment refused by a subscriber", "subscriber", s.in.name, "generation", g, "reason", assignment.Clip(a.GetRefusal(), maxText))
		j.m.refused()
		s.progress.Declined()
	} else {
		s.progress.Acked(g)
		if s.in.role == slicerv1.Role_ROLE_SLICELET {
			j.noteReported(now, s.progress.Held)
		}
		if !s.left {
			j.holds(now, s.id, s.in.role, s.progress.Held)
		}
	}
	j.kick(s)
	return nil
}

// clip shortens what somebody else wrote to what a log line can bear.
// kick has a subscriber sent what it lacks, if anything, unless somebody is at it.
func (j *job) kick(s *subscription) {
	if s.sending || s.left || !j.lacks(s) {
		return
	}
	s.sending = true
	j.d.host.send(s)
}

func (j *job) lacks(s *subscription) bool {
	if st, version := j.board.Newest(s.in.role); st != nil && (s.repeat || s.statusSeen != version || s.owesIndex()) {
		return true
	}
	next := j.nextStep(s)
	return next == fanout.StepDelta || next == fanout.StepWhole && !j.d.wholes.Waits(s.id)
}

func (j *job) nextStep(s *subscription) fanout.Step {
	newest := j.shelf.Newest()
	if newest == nil {
		return s.progress.Next(fanout.Version{}, 0, j.home)
	}
	return s.progress.Next(fanout.VersionOf(newest), newest.Checksum(), j.home)
}

// nextFor is what is to be sent to a subscriber next; without anything its
// sending goroutine ends.
func (j *job) nextFor(s *subscription) (out outgoing, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !s.left {
		if st, version := j.board.Newest(s.in.role); st != nil && (s.repeat || s.statusSeen != version || s.owesIndex()) {
			s.repeat, s.statusSeen = false, version
			return outgoing{messages: j.statusFor(s, st)}, true
		}
		switch j.nextStep(s) {
		case fanout.StepDelta:
			if p := j.shelf.Delta(s.progress.Held.Gen, s.progress.Sum); p != nil {
				j.d.wholes.Release(j.d.host.now(), s.id)
				return j.dispatch(s, p, kindDelta), true
			}
			if j.awaitBase(j.d.host.now(), s) {
				return s.rest() // it is kicked when the base comes, or does not
			}
			fallthrough
		case fanout.StepWhole:
			now := j.d.host.now()
			if !j.d.wholes.Acquire(now, s.id, s.peer, fanout.GroupOf(s.in.role), j, wholeBytes(j.shelf.Newest())) {
				return s.rest() // it is kicked when its turn has come
			}
			return j.dispatch(s, j.shelf.Whole(j.shelf.Newest().Generation()), kindWhole), true
		}
	}
	if !s.progress.InFlight() && !j.d.wholes.Waits(s.id) {
		j.d.wholes.Release(j.d.host.now(), s.id)
	}
	return s.rest()
}

// rest ends a sending goroutine.
func (s *subscription) rest() (outgoing, bool) {
	s.sending = false
	s.isServed()
	return outgoing{}, false
}

func (j *job) dispatch(s *subscription, p *prepared.Messages, kind string) outgoing {
	newest := j.shelf.Newest()
	s.progress.Sent(fanout.VersionOf(newest), newest.Checksum(), kind == kindWhole)
	s.flightAt = j.d.host.now()
	s.isServed() // what reads slowly does not hold up those that are to be set up
	return outgoing{p, kind}
}

// withoutDelta has a subscriber sent the whole because the delta did not encode.
func (j *job) withoutDelta(s *subscription) {
	j.mu.Lock()
	defer j.mu.Unlock()
	s.progress.Declined()
}
