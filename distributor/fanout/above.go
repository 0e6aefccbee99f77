package fanout

import (
	"log/slog"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/slicer-project/slicer/assignment"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// fromAbove takes what concerns streams upwards.
func (j *Job) fromAbove(now time.Time, e Event) {
	switch e := e.(type) {
	case Peers:
		j.setPeers(now, e)
	case Offered:
		j.do(Judged{j.offered(now, e)})
	case Undecodable:
		if e.From == j.target.Session {
			j.schedule.failed(now)
			j.due = true
		}
	case BaseOffered:
		j.baseOffered(e)
	case Answered:
		j.answered(now, e)
	case TaskRefused:
		j.refuseTask(e.Refusal)
	case Indexed:
		if e.From != j.preferred.Session {
			return // it is not for it to say, not any more
		}
		for _, x := range e.Indexes.GetIndexes() {
			for _, id := range slices.Sorted(maps.Keys(j.clients.grant(x.GetClientId(), x.GetIndex()))) {
				j.wake(j.subs.get(id))
			}
		}
	}
}

// setPeers takes the peers that the job tells and asks from now on.
func (j *Job) setPeers(now time.Time, e Peers) {
	if j.home != e.Store {
		j.home = e.Store
		j.wakeAll() // what is held here may go to more of them now
	}
	if e.Target == j.target && e.Preferred == j.preferred {
		return
	}
	j.say(slog.LevelInfo, "assigner chosen", "preferred", e.Preferred.ID, "asked", e.Target.ID, "before", j.target.ID)
	if j.target != e.Target {
		if j.answer.by != 0 {
			j.answer.lostAt = now
		}
		if j.target != (Peer{}) {
			j.schedule.ended(j.target.Session)
			j.do(Notify{j.target.Session}) // to take its Want back
		}
	}
	j.noteAcknowledged(e.Acknowledged)
	j.target, j.preferred = e.Target, e.Preferred
	j.schedule.setPeers(now, e.Preferred.Session, e.Target.Session)
	j.due = true
}

// offered takes an assignment, and returns what became of it.
func (j *Job) offered(now time.Time, e Offered) Verdict {
	a, newest := e.Assignment, j.cache.newest()
	v := judge(newest, a, e.From.Session == j.preferred.Session || e.From.Session == j.target.Session && e.From.FirstTier)
	if v == VerdictMalformed || a.Job() != j.cfg.Name {
		return VerdictMalformed
	}
	j.schedule.succeeded()
	if v == VerdictStale || v == VerdictForeign {
		return v
	}
	if newest != nil && newest.StoreID() != a.StoreID() {
		j.say(slog.LevelWarn, "the store has changed", "from", newest.StoreID(), "to", a.StoreID(),
			"from_generation", newest.Generation(), "to_generation", a.Generation())
	}
	written := now.Add(-e.Age)
	changed := versionOf(newest).Store != a.StoreID()
	j.cache.put(a, written)
	if changed {
		j.noteStore(now)
	}
	j.arrived = now
	j.do(Known{})
	j.cfg.Observer.Generation(a)
	j.say(slog.LevelDebug, "assignment", "generation", a.Generation(), "from", e.From.ID, "subscribers", len(j.subs.all))
	j.conv.came(versionOf(a), written)
	j.pace(now, true)
	j.schedule.acksChanged(now)
	j.measure(now)
	j.do(Changed{})
	j.wakeAll()
	j.due = true
	return v
}

// answered takes what the assigner that is asked says about the job.
func (j *Job) answered(now time.Time, e Answered) {
	if e.From.Session != j.target.Session {
		return
	}
	m, before := e.Status, j.answer
	j.answer.by, j.answer.unknown, j.answer.at = e.From.Session, m.GetUnknown(), now
	if m.GetUnknown() {
		j.forget(e.From)
	} else {
		j.do(Known{})
		if g := before.status.GetConvergedGeneration(); g > 0 && m.GetConvergedGeneration() == 0 {
			m = proto.CloneOf(m)
			m.ConvergedGeneration = g
		}
		j.answer.status = m
		j.publisher.changed(now, m)
		j.schedule.reportsEvery(now, reportInterval(m))
	}
	if before.by != e.From.Session || before.unknown != m.GetUnknown() {
		j.do(Changed{})
	}
	j.due = true
}

// forget is for when the store says that there is no such job.
func (j *Job) forget(from Peer) {
	if len(j.subs.all) > 0 || j.cache.newest() != nil {
		j.say(slog.LevelInfo, "there is no such job", "assigner", from.ID, "subscribers", len(j.subs.all))
	}
	j.cache.clear()
	j.answer.status = nil
	j.publisher.reset()
	for _, s := range j.subs.all {
		j.end(s, j.notFound())
	}
}

// refuseTask ends the stream of one incarnation of a task.
func (j *Job) refuseTask(m *slicerv1.RefuseTask) {
	t, ok := j.reports.holder(m.GetTask())
	if !ok || t.task.GetIncarnation() != m.GetIncarnation() {
		return
	}
	code := codes.Code(m.GetCode())
	if code == codes.OK || code > codes.Unauthenticated {
		code = codes.Unknown
	}
	if s := j.subs.get(t.by); s != nil {
		j.say(slog.LevelInfo, "task refused by the assigner", "task", m.GetTask(), "code", code, "reason", m.GetMessage())
		j.end(s, status.Error(code, m.GetMessage()))
	}
}

// noteReported remembers the newest generation that a slicelet has, for the assigner to
// go on from. What is of another store than the newest, or far ahead, is the past of
// another store, or made up.
func (j *Job) noteReported(now time.Time, m Version) {
	newest := versionOf(j.cache.newest())
	limit := max(newest.Gen, assignment.Generation(now.UnixMilli())) + assignment.Generation(assignment.MaxReportedAhead.Milliseconds())
	if m.Gen > limit {
		j.say(slog.LevelWarn, "generation that a slicelet claims is too far ahead, it counts for nothing", "generation", m.Gen, "store", m.Store)
		return
	}
	if m.Gen == 0 || newest.Gen != 0 && m.Store != newest.Store {
		return
	}
	if m.Gen > j.reported.Gen || newest.Gen != 0 && j.reported.Store != newest.Store {
		j.reported = m
	}
	j.schedule.reported(now, j.reported.Gen, newest.Gen)
}

// noteStore is for when the newest assignment is of another store than the one before:
// only what slicelets hold of that counts from then on.
func (j *Job) noteStore(now time.Time) {
	j.reported, j.schedule.asked = Version{}, 0
	for _, s := range j.subs.all {
		if s.in.Role == slicerv1.Role_ROLE_SLICELET {
			j.noteReported(now, s.progress.held)
		}
	}
}

// tell is what a peer is to be told of the job now.
func (j *Job) tell(now time.Time, to Session) {
	if j.reports.overflowing() {
		j.schedule.snapshotInstead(now)
	}
	var msgs []*slicerv1.AttachRequest
	newest := j.cache.newest()
	p := j.schedule.take(to, now, j.reported.Gen)
	if p.want {
		w := &slicerv1.Want{Job: j.cfg.Name, NewestReported: int64(j.reported.Gen), NewestReportedStoreId: j.reported.Store}
		if newest != nil && !p.whole {
			w.Generation, w.StoreId, w.Checksum = int64(newest.Generation()), newest.StoreID(), newest.Checksum()
		}
		msgs = append(msgs, WantRequest(w))
	}
	if j.target.Session == to {
		msgs = append(msgs, j.bases.requests(j.cfg.Name)...)
	}
	if p.reports {
		if j.cfg.Estimates != nil && newest != nil {
			if estimate := j.cfg.Estimates(now, newest); estimate != nil {
				j.reports.fillIn(estimate)
			}
		}
		for _, tr := range j.reports.take(now, j.cfg.Name, p.complete) {
			if tr.Complete || len(tr.Reports) > 0 || j.schedule.gap > 0 {
				msgs = append(msgs, ReportsRequest(tr))
			}
		}
	}
	if p.acks {
		v := j.conv.summary(versionOf(newest))
		v.slow, v.slowTotal = j.slow.worst, j.slow.total
		if p.complete || !v.equal(j.acksSent) {
			j.acksSent = v
			msgs = append(msgs, acksRequest(v.toProto(now, j.cfg.Name)))
		}
	}
	if p.clients {
		for _, c := range j.clients.take(now, j.cfg.Name, p.allClients) {
			if c.Complete || len(c.Clients) > 0 {
				msgs = append(msgs, clientsRequest(c))
			}
		}
	}
	j.due = true // other things may be due now, at other times
	j.do(Tell{msgs, j.target.Session == to})
}

// Vacant is what an assigner is told of a job that has no subscriber here.
func Vacant(job string) []*slicerv1.AttachRequest {
	return []*slicerv1.AttachRequest{
		ReportsRequest(&slicerv1.TaskReports{Job: job, Complete: true}),
		acksRequest(&slicerv1.Acks{Job: job, Empty: true}),
		clientsRequest(&slicerv1.Clients{Job: job, Complete: true}),
	}
}

// WantRequest is a Want as it is sent.
func WantRequest(w *slicerv1.Want) *slicerv1.AttachRequest {
	return &slicerv1.AttachRequest{Message: &slicerv1.AttachRequest_Want{Want: w}}
}

// acksRequest is an Acks as it is sent.
func acksRequest(a *slicerv1.Acks) *slicerv1.AttachRequest {
	return &slicerv1.AttachRequest{Message: &slicerv1.AttachRequest_Acks{Acks: a}}
}

// clientsRequest is a Clients as it is sent.
func clientsRequest(c *slicerv1.Clients) *slicerv1.AttachRequest {
	return &slicerv1.AttachRequest{Message: &slicerv1.AttachRequest_Clients{Clients: c}}
}

// ReportsRequest is a TaskReports as it is sent.
func ReportsRequest(r *slicerv1.TaskReports) *slicerv1.AttachRequest {
	var m struct { // one piece of memory
		of slicerv1.AttachRequest
		is slicerv1.AttachRequest_Reports
	}
	m.is.Reports, m.of.Message = r, &m.is
	return &m.of
}
