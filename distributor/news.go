package distributor

import (
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/distributor/fanout"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// accept takes an assignment that from is the source of, stored so long ago, and
// reports what became of it.
func (j *job) accept(now time.Time, from *attachment, a *assignment.Assignment, age time.Duration) fanout.Verdict {
	j.mu.Lock()
	defer j.mu.Unlock()
	v := fanout.Judge(j.shelf.Newest(), a, from == j.preferred || from == j.target && from.isUpper())
	if v == fanout.VerdictMalformed || a.Job() != j.name {
		return fanout.VerdictMalformed
	}
	j.up.Succeeded()
	if v == fanout.VerdictStale || v == fanout.VerdictForeign {
		return v
	}
	if old := j.shelf.Newest(); old != nil && old.StoreID() != a.StoreID() {
		j.log.Warn("the store has changed", "from", old.StoreID(), "to", a.StoreID(),
			"from_generation", old.Generation(), "to_generation", a.Generation())
	}
	written := now.Add(-age)
	changed := fanout.VersionOf(j.shelf.Newest()).Store != a.StoreID()
	j.shelf.Put(a, written)
	if changed {
		j.noteStore(now)
	}
	j.arrived = now
	j.isKnownLocked()
	j.m.generation(a)
	j.log.Debug("assignment", "generation", a.Generation(), "from", from.name(), "subscribers", len(j.subs))
	j.conv.Came(fanout.VersionOf(a), written)
	j.pace(now, true)
	j.up.AcksChanged(now)
	j.measure(now)
	j.notifyLocked()
	for _, s := range j.subs {
		j.kick(s)
	}
	j.poke()
	return v
}

// failed notes that what came from an assigner did not decode.
func (j *job) failed(now time.Time, from *attachment) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if from == j.target {
		j.up.Failed(now)
		j.poke()
	}
}

// base is the assignment that a delta of that generation stands on, or nil.
func (j *job) base(g assignment.Generation) *assignment.Assignment {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.shelf.Find(g)
}

// told takes what the assigner that is asked says about the job.
func (j *job) told(now time.Time, from *attachment, m *slicerv1.JobStatus) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if from != j.target {
		return
	}
	before := j.answer
	j.answer.by, j.answer.unknown, j.answer.at = from, m.GetUnknown(), now
	if m.GetUnknown() {
		j.forgetLocked()
	} else {
		j.isKnownLocked()
		if g := before.status.GetConvergedGeneration(); g > 0 && m.GetConvergedGeneration() == 0 {
			m = proto.CloneOf(m)
			m.ConvergedGeneration = g
		}
		j.answer.status = m
		j.board.Changed(now, m)
		j.up.ReportsEvery(now, fanout.ReportInterval(m))
	}
	if before.by != from || before.unknown != m.GetUnknown() {
		j.notifyLocked()
	}
	j.poke()
}

// isKnownLocked is for when a store turns out to have the job.
func (j *job) isKnownLocked() {
	j.m.show()
	if j.askedBy != "" {
		j.d.unknowns.GiveBack(j.askedBy)
		j.askedBy = ""
	}
}

// forgetLocked is for when the store says that there is no such job.
func (j *job) forgetLocked() {
	if len(j.subs) > 0 || j.shelf.Newest() != nil {
		j.log.Info("there is no such job", "assigner", j.answer.by.name(), "subscribers", len(j.subs))
	}
	j.shelf.Clear()
	j.answer.status = nil
	j.board.Reset()
	for _, s := range j.subs {
		s.end(j.notFound())
	}
}

// refuse ends the stream of one incarnation of a task.
func (j *job) refuse(m *slicerv1.RefuseTask) {
	j.mu.Lock()
	defer j.mu.Unlock()
	t, ok := j.tasks.Holder(m.GetTask())
	if !ok || t.Task.GetIncarnation() != m.GetIncarnation() {
		return
	}
	code := codes.Code(m.GetCode())
	if code == codes.OK || code > codes.Unauthenticated {
		code = codes.Unknown
	}
	if s := j.subs[t.By]; s != nil {
		j.log.Info("task refused by the assigner", "task", m.GetTask(), "code", code, "reason", m.GetMessage())
		s.end(status.Error(code, m.GetMessage()))
	}
}
