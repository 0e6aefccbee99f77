package distributor

import (
	"fmt"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// A Distributor that has just started holds the newest assignment alone, and its
// subscribers come back with the one before. Rather than send each of them the
// whole it asks the assigner for that older one, once, and sends deltas.
const (
	// baseHolders is how many subscribers a base has to have: for fewer it is not
	// worth asking.
	baseHolders = 4
	// baseWithin is how long they wait for it before they are sent the whole.
	baseWithin = time.Second
	// maxBases is how many bases are asked for at once, and remembered as asked for.
	maxBases = 4
	// askBaseAgain is how long one that the assigner did not have is not asked for.
	askBaseAgain = 30 * time.Second
	// anySum is of a base that is asked for by its number alone.
	anySum = 0
)

// bases are the older assignments of a job that are asked for. Pure.
type bases []wantedBase

type wantedBase struct {
	held    mark
	sum     uint64
	at      time.Time // when it was asked for
	asked   bool      // the assigner has been told
	settled bool      // it came, or will not
}

// wait says whether those who hold an assignment had better wait for it to come:
// n is how many they are. news says that it is to be asked for.
func (b *bases) wait(now time.Time, held mark, sum uint64, n int) (wait, news bool) {
	for i := range *b {
		if w := &(*b)[i]; w.held == held && w.sum == sum && now.Sub(w.at) < askBaseAgain {
			return !w.settled && now.Sub(w.at) < baseWithin, false
		}
	}
	if n < baseHolders {
		return false, false
	}
	if len(*b) >= maxBases {
		i := 0
		for i < len(*b) && !(*b)[i].settled {
			i++
		}
		if i == len(*b) {
			return false, false
		}
		*b = append((*b)[:i], (*b)[i+1:]...)
	}
	*b = append(*b, wantedBase{held: held, sum: sum, at: now})
	return true, true
}

// settle notes that a base has come, or will not: all of them for the zero mark.
// It says whether somebody may have waited.
func (b bases) settle(held mark) (waited bool) {
	for i := range b {
		if (held == mark{} || b[i].held == held) && !b[i].settled {
			b[i].settled, waited = true, true
		}
	}
	return waited
}

// wanted finds what was asked for and has not come.
func (b bases) wanted(held mark, sum uint64) bool {
	for i := range b {
		if b[i].held == held && (b[i].sum == sum || b[i].sum == anySum) && !b[i].settled {
			return true
		}
	}
	return false
}

// expire settles what has not come in time, and says when that is to be looked at
// next, zero if never.
func (b bases) expire(now time.Time) (next time.Time, expired bool) {
	for i := range b {
		if b[i].settled {
			continue
		}
		if at := b[i].at.Add(baseWithin); at.After(now) {
			next = sooner(next, at)
		} else {
			b[i].settled, expired = true, true
		}
	}
	return next, expired
}

// requests are what the assigner has not been told yet.
func (b bases) requests(job string) (out []*slicerv1.AttachRequest) {
	for i := range b {
		if w := &b[i]; !w.asked && !w.settled {
			w.asked = true
			out = append(out, &slicerv1.AttachRequest{Message: &slicerv1.AttachRequest_WantBase{WantBase: &slicerv1.WantBase{
				Job: job, Generation: int64(w.held.gen), StoreId: w.held.store, Checksum: w.sum,
			}}})
		}
	}
	return out
}

// awaitBase says whether a subscriber had better wait for the base that it holds.
func (j *job) awaitBase(now time.Time, s *subscription) bool {
	p := &s.progress
	if j.target == nil || j.shelf.find(p.held.gen) != nil {
		return false
	}
	n := j.conv.holding(p.held)
	wait, news := j.bases.wait(now, p.held, p.sum, n)
	if news {
		j.log.Info("subscribers hold an assignment that is not held here, asking for it", "generation", p.held.gen, "subscribers", n)
		j.target.mark(j.name)
		j.poke()
	}
	return wait
}

// seekBase says whether who fetches an older generation by its number had better wait
// for it to come: a slicelet in consistent mode needs that of the guard, which may be
// from before this Distributor's start.
func (j *job) seekBase(now time.Time, g assignment.Generation) bool {
	newest := j.shelf.newest()
	if j.target == nil || newest == nil || g >= newest.Generation() {
		return false
	}
	wait, news := j.bases.wait(now, mark{newest.StoreID(), g}, anySum, baseHolders)
	if news {
		j.log.Info("a generation that is not held is fetched, asking for it", "generation", g)
		j.target.mark(j.name)
		j.poke()
	}
	return wait
}

// keepBases has those sent the whole who have waited for a base in vain.
func (j *job) keepBases(now time.Time) (next time.Time) {
	next, expired := j.bases.expire(now)
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
	newest := j.shelf.newest()
	switch {
	case from != j.target:
		return
	case a == nil:
		if !j.bases.settle(mark{}) {
			return
		}
	case newest == nil || a.Job() != j.name || a.StoreID() != newest.StoreID() || a.Generation() >= newest.Generation() ||
		!j.bases.wanted(markOf(a), a.Checksum()):
		return
	default:
		j.shelf.insert(a)
		j.bases.settle(markOf(a))
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
