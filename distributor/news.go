package distributor

import (
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/slicer-project/slicer/assignment"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// accept takes an assignment that from is the source of, stored so long ago, and
// reports what became of it.
func (j *job) accept(now time.Time, from *attachment, a *assignment.Assignment, age time.Duration) verdict {
	j.mu.Lock()
	defer j.mu.Unlock()
	v := judge(j.shelf.newest(), a, from == j.preferred || from == j.target && from.isUpper())
	if v == verdictMalformed || a.Job() != j.name {
		return verdictMalformed
	}
	j.up.succeeded()
	if v == verdictStale || v == verdictForeign {
		return v
	}
	if old := j.shelf.newest(); old != nil && old.StoreID() != a.StoreID() {
		j.log.Warn("the store has changed", "from", old.StoreID(), "to", a.StoreID(),
			"from_generation", old.Generation(), "to_generation", a.Generation())
	}
	written := now.Add(-age)
	changed := markOf(j.shelf.newest()).store != a.StoreID()
	j.shelf.put(a, written)
	if changed {
		j.noteStore(now)
	}
	j.arrived = now
	j.isKnownLocked()
	j.m.generation(a)
	j.log.Debug("assignment", "generation", a.Generation(), "from", from.name(), "subscribers", len(j.subs))
	j.conv.came(markOf(a), written)
	j.pace(now, true)
	j.up.acksChanged(now)
	j.measure(now)
	j.notifyLocked()
	for _, s := range j.subs {
		j.kick(s)
	}
	j.poke()
	return v
}

// verdict is what becomes of an assignment that an assigner has sent.
type verdict string

const (
	verdictAccepted  verdict = "accepted"
	verdictStale     verdict = "stale"     // not newer than what is held
	verdictForeign   verdict = "foreign"   // of another store, from an assigner that is not preferred
	verdictMalformed verdict = "malformed" // does not decode, or is not what it says it is
)

// judge says whether next takes the place of held: never backwards within a
// store, and from one store to another only on the word of the preferred assigner, or
// in the second tier of who is asked.
func judge(held, next *assignment.Assignment, preferred bool) verdict {
	switch {
	case held == nil:
		return verdictAccepted
	case held.StoreID() != next.StoreID() && preferred:
		return verdictAccepted
	case held.StoreID() != next.StoreID():
		return verdictForeign
	case next.Generation() > held.Generation():
		return verdictAccepted
	case next.Generation() == held.Generation() && next.Checksum() != held.Checksum():
		return verdictMalformed
	}
	return verdictStale
}

// failed notes that what came from an assigner did not decode.
func (j *job) failed(now time.Time, from *attachment) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if from == j.target {
		j.up.failed(now)
		j.poke()
	}
}

// base is the assignment that a delta of that generation stands on, or nil.
func (j *job) base(g assignment.Generation) *assignment.Assignment {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.shelf.find(g)
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
		j.board.changed(now, m)
		j.up.reportsEvery(now, reportInterval(m))
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
	if len(j.subs) > 0 || j.shelf.newest() != nil {
		j.log.Info("there is no such job", "assigner", j.answer.by.name(), "subscribers", len(j.subs))
	}
	j.shelf.clear()
	j.answer.status, j.board = nil, board{unheard: j.board.unheard}
	for _, s := range j.subs {
		s.end(j.notFound())
	}
}

// refuse ends the stream of one incarnation of a task.
func (j *job) refuse(m *slicerv1.RefuseTask) {
	j.mu.Lock()
	defer j.mu.Unlock()
	t, ok := j.tasks.holder(m.GetTask())
	if !ok || t.task.GetIncarnation() != m.GetIncarnation() {
		return
	}
	code := codes.Code(m.GetCode())
	if code == codes.OK || code > codes.Unauthenticated {
		code = codes.Unknown
	}
	if s := j.subs[t.by]; s != nil {
		j.log.Info("task refused by the assigner", "task", m.GetTask(), "code", code, "reason", m.GetMessage())
		s.end(status.Error(code, m.GetMessage()))
	}
}
