package distributor

import (
	"fmt"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/distributor/fanout"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// awaitBase says whether a subscriber had better wait for the base that it holds.
func (j *job) awaitBase(now time.Time, s *subscription) bool {
	p := &s.progress
	if j.target == nil || j.shelf.Find(p.Held.Gen) != nil {
		return false
	}
	n := j.conv.Holding(p.Held)
	wait, news := j.bases.Wait(now, p.Held, p.Sum, n)
	if news {
		j.log.Info("subscribers hold an assignment that is not held here, asking for it", "generation", p.Held.Gen, "subscribers", n)
		j.target.mark(j.name)
		j.poke()
	}
	return wait
}

// seekBase says whether who fetches an older generation by its number had better wait
// for it to come: a slicelet in consistent mode needs that of the guard, which may be
// from before this Distributor's start.
func (j *job) seekBase(now time.Time, g assignment.Generation) bool {
	newest := j.shelf.Newest()
	if j.target == nil || newest == nil || g >= newest.Generation() {
		return false
	}
	wait, news := j.bases.Wait(now, fanout.Version{Store: newest.StoreID(), Gen: g}, fanout.AnySum, fanout.BaseHolders)
	if news {
		j.log.Info("a generation that is not held is fetched, asking for it", "generation", g)
		j.target.mark(j.name)
		j.poke()
	}
	return wait
}

// keepBases has those sent the whole who have waited for a base in vain.
func (j *job) keepBases(now time.Time) (next time.Time) {
	next, expired := j.bases.Expire(now)
	if expired {
		j.kickAll()
		j.notifyLocked()
	}
	return next
}

func (j *job) kickAll() {
	for _, s := range j.subs {
		j.kick(s)
	}
}

// baseCame takes a base that was asked for; nil stands for one that the assigner
// does not have.
func (j *job) baseCame(from *attachment, a *assignment.Assignment) {
	j.mu.Lock()
	defer j.mu.Unlock()
	newest := j.shelf.Newest()
	switch {
	case from != j.target:
		return
	case a == nil:
		if !j.bases.Settle(fanout.Version{}) {
			return
		}
	case newest == nil || a.Job() != j.name || a.StoreID() != newest.StoreID() || a.Generation() >= newest.Generation() ||
		!j.bases.Wanted(fanout.VersionOf(a), a.Checksum()):
		return
	default:
		j.shelf.Insert(a)
		j.bases.Settle(fanout.VersionOf(a))
		j.m.base()
	}
	j.kickAll()
	j.notifyLocked()
}

// base takes a piece of a base from the assigner. One that does not decode counts
// as none.
func (a *attachment) base(j *job, m *slicerv1.JobAssignment) {
	s := a.bases[j.name]
	if s == nil {
		s = new(wire.Assembler)
		a.bases[j.name] = s
	}
	var err error
	if c := m.GetChunk(); c != nil {
		if err = s.Add(c); err == nil {
			return
		}
	}
	delete(a.bases, j.name)
	var got *assignment.Assignment
	switch t := m.GetTrailer(); {
	case err != nil:
	case t == nil: // it has none
	case t.GetBase() != 0:
		err = fmt.Errorf("a delta, where a whole was asked for")
	default:
		got, err = s.Finish(t, nil)
	}
	if err != nil {
		j.log.Error("base does not decode", "assigner", a.id, "error", err)
	}
	j.baseCame(a, got)
}
