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
		j.up.setPeers(now, e)
	case Offered:
		j.do(Judged{j.offered(now, e)})
	case Undecodable:
		if e.From == j.up.target.Session {
			j.schedule.failed(now)
			j.due = true
		}
	case BaseOffered:
		j.down.baseOffered(e, j.up.target.Session)
	case Answered:
		j.up.answered(now, e)
	case Quoted:
		j.quoted(e)
	case TaskRefused:
		j.up.refuseTask(e.Refusal)
	case Indexed:
		if e.From != j.up.preferred.Session {
			return // it is not for it to say, not any more
		}
		for _, x := range e.Indexes.GetIndexes() {
			for _, id := range slices.Sorted(maps.Keys(j.up.clients.grant(x.GetClientId(), x.GetIndex()))) {
				j.down.wake(j.subs.get(id))
			}
		}
	}
}

// setPeers takes the peers that the job tells and asks from now on.
func (u *upward) setPeers(now time.Time, e Peers) {
	if u.down.home != e.Store {
		u.down.home = e.Store
		u.down.wakeAll() // what is held here may go to more of them now
	}
	if e.Target == u.target && e.Preferred == u.preferred {
		return
	}
	u.say(slog.LevelInfo, "assigner chosen", "preferred", e.Preferred.ID, "asked", e.Target.ID, "before", u.target.ID)
	if u.target != e.Target {
		if u.answer.by != 0 {
			u.answer.lostAt = now
		}
		if u.target != (Peer{}) {
			u.schedule.ended(u.target.Session)
			u.do(Notify{u.target.Session}) // to take its Want back
		}
	}
	u.noteAcknowledged(e.Acknowledged)
	u.target, u.preferred = e.Target, e.Preferred
	u.schedule.setPeers(now, e.Preferred.Session, e.Target.Session)
	u.due = true
}

// offered takes an assignment, and returns what became of it.
func (j *Job) offered(now time.Time, e Offered) Verdict {
	a, newest := e.Assignment, j.cache.newest()
	v := judge(newest, a, e.From.Session == j.up.preferred.Session || e.From.Session == j.up.target.Session && e.From.FirstTier)
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
		j.up.noteStore(now)
	}
	j.counts.arrived = now
	j.do(Known{})
	j.cfg.Observer.Generation(a)
	j.say(slog.LevelDebug, "assignment", "generation", a.Generation(), "from", e.From.ID, "subscribers", len(j.subs.all))
	j.conv.came(versionOf(a), written)
	j.counts.pace(now, true)
	j.schedule.acksChanged(now)
	j.counts.measure(now)
	j.do(Changed{})
	j.down.wakeAll()
	j.due = true
	return v
}

// answered takes what the assigner that is asked says about the job.
func (u *upward) answered(now time.Time, e Answered) {
	if e.From.Session != u.target.Session {
		return
	}
	m, before := e.Status, u.answer
	u.answer.by, u.answer.unknown, u.answer.at = e.From.Session, m.GetUnknown(), now
	if m.GetUnknown() {
		u.forget(e.From)
	} else {
		u.do(Known{})
		if g := before.status.GetConvergedGeneration(); g > 0 && m.GetConvergedGeneration() == 0 {
			m = proto.CloneOf(m)
			m.ConvergedGeneration = g
		}
		u.hearAccess(m)
		u.answer.status = m
		u.down.publisher.changed(now, m)
		u.down.tasks.hear(now, m.GetConditions())
		if !m.GetLimited() {
			u.down.limit(nil)
		}
		u.schedule.reportsEvery(now, reportInterval(m))
	}
	if before.by != e.From.Session || before.unknown != m.GetUnknown() || !proto.Equal(before.status.GetXds(), m.GetXds()) {
		u.do(Changed{})
	}
	u.due = true
}

// forget is for when the store says that there is no such job.
func (u *upward) forget(from Peer) {
	if len(u.subs.all) > 0 || u.cache.newest() != nil {
		u.say(slog.LevelInfo, "there is no such job", "assigner", from.ID, "subscribers", len(u.subs.all))
	}
	u.cache.clear()
	u.answer.status, u.answer.access = nil, nil
	u.down.publisher.reset()
	u.down.tasks.above = nil
	u.down.limit(nil)
	for _, s := range u.subs.all {
		u.end(s, u.notFound())
	}
}

// refuseTask ends the stream of one incarnation of a task.
func (u *upward) refuseTask(m *slicerv1.RefuseTask) {
	t, ok := u.reports.holder(m.GetTask())
	if !ok || t.task.GetIncarnation() != m.GetIncarnation() {
		return
	}
	code := codes.Code(m.GetCode())
	if code == codes.OK || code > codes.Unauthenticated {
		code = codes.Unknown
	}
	if s := u.subs.get(t.by); s != nil {
		u.say(slog.LevelInfo, "task refused by the assigner", "task", m.GetTask(), "code", code, "reason", m.GetMessage())
		u.end(s, status.Error(code, m.GetMessage()))
	}
}

// noteReported remembers the newest generation that a slicelet has, for the assigner to
// go on from. What is of another store than the newest, or far ahead, is the past of
// another store, or made up.
func (u *upward) noteReported(now time.Time, m Version) {
	newest := versionOf(u.cache.newest())
	limit := max(newest.Gen, assignment.Generation(now.UnixMilli())) + assignment.Generation(assignment.MaxReportedAhead.Milliseconds())
	if m.Gen > limit {
		u.complain(now, "", "generation that a slicelet claims is too far ahead, it counts for nothing", "generation", m.Gen, "store", m.Store)
		return
	}
	if m.Gen == 0 || newest.Gen != 0 && m.Store != newest.Store {
		return
	}
	if m.Gen > u.reported.Gen || newest.Gen != 0 && u.reported.Store != newest.Store {
		u.reported = m
	}
	u.schedule.reported(now, u.reported.Gen, newest.Gen)
}

// noteStore is for when the newest assignment is of another store than the one before:
// only what slicelets hold of that counts from then on.
func (u *upward) noteStore(now time.Time) {
	u.reported, u.schedule.asked = Version{}, 0
	for _, s := range u.subs.all {
		if s.in.Role == slicerv1.Role_ROLE_SLICELET {
			u.noteReported(now, s.progress.held)
		}
	}
}

// tell is what a peer is to be told of the job now.
func (u *upward) tell(now time.Time, to Session) {
	if u.reports.overflowing() {
		u.schedule.snapshotInstead(now)
	}
	var msgs []*slicerv1.AttachRequest
	newest := u.cache.newest()
	p := u.schedule.take(to, now, u.reported.Gen)
	if p.want {
		w := &slicerv1.Want{Job: u.cfg.Name, NewestReported: int64(u.reported.Gen), NewestReportedStoreId: u.reported.Store, Compressed: !p.whole}
		if newest != nil && !p.whole {
			w.Generation, w.StoreId, w.Checksum = int64(newest.Generation()), newest.StoreID(), newest.Checksum()
		}
		msgs = append(msgs, WantRequest(w))
	}
	if u.target.Session == to {
		msgs = append(msgs, u.down.bases.requests(u.cfg.Name)...)
	}
	if p.reports {
		if u.cfg.Estimates != nil && newest != nil {
			if estimate := u.cfg.Estimates(now, newest); estimate != nil {
				u.reports.fillIn(estimate)
			}
		}
		for _, tr := range u.reports.take(now, u.cfg.Name, p.complete) {
			if tr.Complete || len(tr.Reports) > 0 || u.schedule.gap > 0 {
				msgs = append(msgs, ReportsRequest(tr))
			}
		}
	}
	if p.acks {
		v := u.conv.summary(versionOf(newest))
		v.slow, v.slowTotal = u.slow.worst, u.slow.total
		if p.complete || !v.equal(u.acksSent) {
			u.acksSent = v
			msgs = append(msgs, acksRequest(v.toProto(now, u.cfg.Name)))
		}
	}
	if p.clients {
		for _, c := range u.clients.take(now, u.cfg.Name, p.allClients) {
			if c.Complete || len(c.Clients) > 0 {
				msgs = append(msgs, clientsRequest(c))
			}
		}
	}
	if p.uses {
		if m := u.uses(now); m != nil {
			msgs = append(msgs, m)
		}
	}
	u.due = true // other things may be due now, at other times
	u.do(Tell{msgs, u.target.Session == to})
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
