package fanout

import (
	"log/slog"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/distributor/internal/prepared"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// wake asks a subscriber to take what it lacks, if anything, unless it is at it.
func (j *Job) wake(s *subscriber) {
	if s != nil && !s.sending && j.lacks(s) {
		s.sending = true
		j.do(Wake{s.id})
	}
}

func (j *Job) wakeAll() {
	for _, s := range j.subs.all {
		j.wake(s)
	}
}

func (j *Job) lacks(s *subscriber) bool {
	if j.lacksStatus(s) {
		return true
	}
	next := j.next(s)
	return next == stepDelta || next == stepWhole && !j.cfg.Limiter.Waits(s.id)
}

func (j *Job) lacksStatus(s *subscriber) bool {
	st, version := j.publisher.newest(s.in.Role)
	return st != nil && (s.repeat || s.statusSeen != version || s.owesIndex())
}

func (j *Job) next(s *subscriber) step {
	newest := j.cache.newest()
	if newest == nil {
		return s.progress.next(Version{}, 0, j.home)
	}
	return s.progress.next(versionOf(newest), newest.Checksum(), j.home)
}

// send answers what is to be sent to a subscriber next: nothing if it lacks nothing, or
// has to wait.
func (j *Job) send(now time.Time, id uint64) {
	s := j.subs.get(id)
	if s == nil {
		j.do(Served{id})
		return
	}
	if j.lacksStatus(s) {
		st, version := j.publisher.newest(s.in.Role)
		s.repeat, s.statusSeen = false, version
		j.do(Send{id, j.statusFor(s, st), ""})
		return
	}
	newest := j.cache.newest()
	switch j.next(s) {
	case stepDelta:
		if p := j.cache.delta(s.progress.held.Gen, s.progress.sum); p != nil {
			j.cfg.Limiter.Release(now, id)
			j.dispatch(now, s, p, KindDelta)
			return
		}
		if j.awaitBase(now, s) {
			j.rest(s) // it is woken when the base comes, or does not
			return
		}
		fallthrough
	case stepWhole:
		if !j.cfg.Limiter.Acquire(now, id, s.key, groupOf(s.in.Role), wholeBytes(newest)) {
			j.rest(s) // it is woken when it may be sent
			return
		}
		j.dispatch(now, s, j.cache.whole(newest.Generation()), KindWhole)
		return
	}
	if !s.progress.inFlight() && !j.cfg.Limiter.Waits(id) {
		j.cfg.Limiter.Release(now, id)
	}
	j.rest(s)
}

// wholeBytes is about what an assignment takes when it is sent whole.
func wholeBytes(a *assignment.Assignment) int { return 8*a.NumOwners() + 64*a.NumTasks() }

func (j *Job) rest(s *subscriber) {
	s.sending = false
	j.do(Served{s.id})
}

func (j *Job) dispatch(now time.Time, s *subscriber, p *prepared.Messages, kind string) {
	newest := j.cache.newest()
	s.progress.sent(versionOf(newest), newest.Checksum(), kind == KindWhole)
	s.flightAt = now
	j.do(Served{s.id}) // what reads slowly does not hold up those that are to be set up
	j.do(Send{s.id, p, kind})
}

// statusFor is the status for one subscriber: the one that all share, and only when it is
// to be told its index one of its own.
func (j *Job) statusFor(s *subscriber, shared *prepared.Messages) *prepared.Messages {
	if !s.owesIndex() {
		return shared
	}
	s.index = s.client.index
	shown, index := j.publisher.shown, uint32(s.index)
	return statusMessages(func() *slicerv1.Status {
		own := proto.CloneOf(shown)
		own.ClientIndex = &index
		return own
	})
}

// sendWholes wakes those that may be sent the whole now.
func (j *Job) sendWholes(now time.Time) (next time.Time) {
	ids := j.cfg.Limiter.Granted(now)
	slices.Sort(ids)
	for _, id := range ids {
		s := j.subs.get(id)
		if j.wake(s); s == nil || !s.sending {
			j.cfg.Limiter.Release(now, id) // it does not need it any more
		}
	}
	return j.cfg.Limiter.Next()
}

// publish shows subscribers the status that is due, and repeats it to some.
func (j *Job) publish(now time.Time) (next time.Time) {
	if j.publisher.show(now) {
		j.wakeAll()
	}
	slicelets := j.conv.connected(slicerv1.Role_ROLE_SLICELET)
	for which, n := range [numGroups]int{ofSlicelets: slicelets, ofOthers: len(j.subs.all) - slicelets} {
		rest, parts, due := j.publisher.batch(now, which, n)
		if !due || n == 0 {
			continue
		}
		for _, s := range j.subs.all {
			if s.id%parts == rest && groupOf(s.in.Role) == which {
				s.repeat = true
				j.wake(s)
			}
		}
	}
	return j.publisher.wake()
}

// awaitBase reports whether a subscriber had better wait for the base that it holds.
func (j *Job) awaitBase(now time.Time, s *subscriber) bool {
	p := &s.progress
	if j.target == (Peer{}) || j.cache.find(p.held.Gen) != nil {
		return false
	}
	n := j.conv.holding(p.held)
	wait, news := j.bases.wait(now, p.held, p.sum, n)
	if news {
		j.say(slog.LevelInfo, "subscribers hold an assignment that is not held here, asking for it", "generation", p.held.Gen, "subscribers", n)
		j.do(Notify{j.target.Session})
		j.due = true
	}
	return wait
}

// seekBase reports whether what fetches an older generation by its number had better wait
// for it to come: a slicelet in consistent mode needs that of the guard, which may be
// from before this Distributor's start.
func (j *Job) seekBase(now time.Time, g assignment.Generation) bool {
	newest := j.cache.newest()
	if j.target == (Peer{}) || newest == nil || g >= newest.Generation() {
		return false
	}
	wait, news := j.bases.wait(now, Version{newest.StoreID(), g}, anySum, BaseHolders)
	if news {
		j.say(slog.LevelInfo, "a generation that is not held is fetched, asking for it", "generation", g)
		j.do(Notify{j.target.Session})
		j.due = true
	}
	return wait
}

// expireBases sends the whole to those that have waited for a base in vain.
func (j *Job) expireBases(now time.Time) (next time.Time) {
	next, expired := j.bases.expire(now)
	if expired {
		j.wakeAll()
		j.do(Changed{})
	}
	return next
}

// baseOffered takes a base that was asked for; nil stands for one that the assigner does
// not have.
func (j *Job) baseOffered(e BaseOffered) {
	newest, a := j.cache.newest(), e.Assignment
	switch {
	case e.From != j.target.Session:
		return
	case a == nil:
		if !j.bases.settle(Version{}) {
			return
		}
	case newest == nil || a.Job() != j.cfg.Name || a.StoreID() != newest.StoreID() || a.Generation() >= newest.Generation() ||
		!j.bases.wanted(versionOf(a), a.Checksum()):
		return
	default:
		j.cache.insert(a)
		j.bases.settle(versionOf(a))
		j.cfg.Observer.Base()
	}
	j.wakeAll()
	j.do(Changed{})
}
