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
func (d *downward) wake(s *subscriber) {
	if s != nil && !s.sending && d.lacks(s) {
		s.sending = true
		d.do(Wake{s.id})
	}
}

func (d *downward) wakeAll() {
	for _, s := range d.subs.all {
		d.wake(s)
	}
}

func (d *downward) lacks(s *subscriber) bool {
	if d.lacksStatus(s) || d.lacksQuotas(s) {
		return true
	}
	next := d.next(s)
	return next == stepDelta || next == stepWhole && !d.cfg.Limiter.Waits(s.id)
}

func (d *downward) lacksStatus(s *subscriber) bool {
	st, version := d.publisher.newest(s.in.Role)
	return st != nil && (s.repeat || s.statusSeen != version || s.owesIndex())
}

func (d *downward) next(s *subscriber) step {
	newest := d.cache.newest()
	if newest == nil {
		return s.progress.next(Version{}, 0, d.home)
	}
	return s.progress.next(versionOf(newest), d.sumFor(s), d.home)
}

// send answers what is to be sent to a subscriber next: nothing if it lacks nothing, or
// has to wait.
func (d *downward) send(now time.Time, id uint64, target Session) {
	s := d.subs.get(id)
	if s == nil {
		d.do(Served{id})
		return
	}
	if d.lacksStatus(s) {
		st, version := d.publisher.newest(s.in.Role)
		s.repeat, s.statusSeen = false, version
		d.do(Send{id, d.statusFor(s, st), ""})
		return
	}
	if d.lacksQuotas(s) {
		d.do(Send{id, d.quotasFor(s), ""})
		return
	}
	newest, next := d.cache.newest(), d.next(s)
	if (next == stepDelta || next == stepWhole) && d.takesPart(s) {
		d.cutPart(now, s, next, target)
		return
	}
	switch next {
	case stepDelta:
		if p := d.cache.delta(s.progress.held.Gen, s.progress.sum); p != nil {
			d.cfg.Limiter.Release(now, id)
			d.dispatch(now, s, p, KindDelta)
			return
		}
		if d.awaitBase(now, s, s.progress.sum, target) {
			d.rest(s) // it is woken when the base comes, or does not
			return
		}
		fallthrough
	case stepWhole:
		if !d.cfg.Limiter.Acquire(now, id, s.key, groupOf(s.in.Role), wholeBytes(newest, s.in.Compressed)) {
			d.rest(s) // it is woken when it may be sent
			return
		}
		kind := KindWhole
		if s.in.Compressed {
			kind = KindCompressed
		}
		d.dispatch(now, s, d.cache.whole(newest.Generation(), s.in.Compressed), kind)
		return
	}
	if !s.progress.inFlight() && !d.cfg.Limiter.Waits(id) {
		d.cfg.Limiter.Release(now, id)
	}
	d.rest(s)
}

// wholeBytes is about what an assignment takes when it is sent whole; a balancer's takes a
// quarter at most when it is compressed.
func wholeBytes(a *assignment.Assignment, compressed bool) int {
	n := 8*a.NumOwners() + 64*a.NumTasks()
	if compressed {
		n /= 4
	}
	return n
}

func (d *downward) rest(s *subscriber) {
	s.sending = false
	d.do(Served{s.id})
}

func (d *downward) dispatch(now time.Time, s *subscriber, p *prepared.Messages, kind string) {
	newest := d.cache.newest()
	s.part = sentPart{}
	s.progress.sent(versionOf(newest), newest.Checksum(), kind != KindDelta)
	d.depart(now, s, p, kind)
}

// depart sends an assignment that the progress counts as sent.
func (d *downward) depart(now time.Time, s *subscriber, p *prepared.Messages, kind string) {
	s.flightAt = now
	d.do(Served{s.id}) // what reads slowly does not hold up those that are to be set up
	d.do(Send{s.id, p, kind})
}

// statusFor is the status for one subscriber: the one that all share, and only when it is
// to be told its index one of its own.
func (d *downward) statusFor(s *subscriber, shared *prepared.Messages) *prepared.Messages {
	if !s.owesIndex() {
		return shared
	}
	s.index = s.client.index
	shown, index := d.publisher.shown, uint32(s.index)
	return statusMessages(func() *slicerv1.Status {
		own := proto.CloneOf(shown)
		own.ClientIndex = &index
		return own
	})
}

// sendWholes wakes those that may be sent the whole now.
func (d *downward) sendWholes(now time.Time) (next time.Time) {
	ids := d.cfg.Limiter.Granted(now)
	slices.Sort(ids)
	for _, id := range ids {
		s := d.subs.get(id)
		if d.wake(s); s == nil || !s.sending {
			d.cfg.Limiter.Release(now, id) // it does not need it any more
		}
	}
	return d.cfg.Limiter.Next()
}

// publish shows subscribers the status that is due, and repeats it to some.
func (d *downward) publish(now time.Time) (next time.Time) {
	if d.tasks.due.ready(now) {
		d.tasks.due.sent(now)
		d.publisher.tell(now, d.tasks.all())
	}
	if d.publisher.show(now) {
		d.wakeAll()
	}
	slicelets := d.conv.connected(slicerv1.Role_ROLE_SLICELET)
	for which, n := range [numGroups]int{ofSlicelets: slicelets, ofOthers: len(d.subs.all) - slicelets} {
		rest, parts, due := d.publisher.batch(now, which, n)
		if !due || n == 0 {
			continue
		}
		for _, s := range d.subs.all {
			if s.id%parts == rest && groupOf(s.in.Role) == which {
				s.repeat = true
				d.wake(s)
			}
		}
	}
	return Sooner(d.publisher.wake(), d.tasks.due.at)
}

// awaitBase reports whether a subscriber had better wait for the base that it holds.
func (d *downward) awaitBase(now time.Time, s *subscriber, sum uint64, target Session) bool {
	p := &s.progress
	if target == 0 || d.cache.find(p.held.Gen) != nil {
		return false
	}
	n := d.conv.holding(p.held)
	wait, news := d.bases.wait(now, p.held, sum, n)
	if news {
		d.say(slog.LevelInfo, "subscribers hold an assignment that is not held here, asking for it", "generation", p.held.Gen, "subscribers", n)
		d.do(Notify{target})
		d.due = true
	}
	return wait
}

// seekBase reports whether what fetches an older generation by its number had better wait
// for it to come: a slicelet in consistent mode needs that of the guard, which may be
// from before this Distributor's start.
func (d *downward) seekBase(now time.Time, g assignment.Generation, target Session) bool {
	newest := d.cache.newest()
	if target == 0 || newest == nil || g >= newest.Generation() {
		return false
	}
	wait, news := d.bases.wait(now, Version{newest.StoreID(), g}, anySum, BaseHolders)
	if news {
		d.say(slog.LevelInfo, "a generation that is not held is fetched, asking for it", "generation", g)
		d.do(Notify{target})
		d.due = true
	}
	return wait
}

// expireBases sends the whole to those that have waited for a base in vain.
func (d *downward) expireBases(now time.Time) (next time.Time) {
	next, expired := d.bases.expire(now)
	if expired {
		d.wakeAll()
		d.do(Changed{})
	}
	return next
}

// baseOffered takes a base that was asked for; nil stands for one that the assigner does
// not have.
func (d *downward) baseOffered(e BaseOffered, target Session) {
	newest, a := d.cache.newest(), e.Assignment
	switch {
	case e.From != target:
		return
	case a == nil:
		if !d.bases.settle(Version{}) {
			return
		}
	case newest == nil || a.Job() != d.cfg.Name || a.StoreID() != newest.StoreID() || a.Generation() >= newest.Generation() ||
		!d.bases.wanted(versionOf(a), a.Checksum()):
		return
	default:
		d.cache.insert(a)
		d.bases.settle(versionOf(a))
		d.cfg.Observer.Base()
	}
	d.wakeAll()
	d.do(Changed{})
}
