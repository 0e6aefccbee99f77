// Package fair decides which may go on when not all can at once: so many at a time, for a
// while each, and of those that wait one of each key in turn, so that a key with many
// does not hold up those of others. A key is opaque, such as the address of a peer.
//
// It is pure: the time is given to it. Nothing in it is safe for concurrent use.
package fair

import "time"

// Config says what a Limiter allows.
type Config struct {
	// Least is how many hold a place at once whatever they cost, and Cost is what all
	// together may cost if they are more.
	Least, Cost int
	// Hold is how long a place is held at most: then it counts as released.
	Hold time.Duration
	// Classes is how many classes there are, at least 1. Those of class 0 go first.
	Classes int
	// Kept, if it is not 0, is the part of Least and of Cost, one in so many, that is kept
	// for keys that hold no place. Those go first then, whatever their class: one key with
	// many of class 0 does not hold up those of class 1 of other keys.
	Kept int
	// TakeOver lets one of a key that holds no place have a place of the key that holds
	// the most, if those are two or more. The one that loses a place so is not told.
	TakeOver bool
}

// Limiter gives out places.
type Limiter struct {
	cfg      Config
	held     map[uint64]place
	ending   []ending // when places are released at the latest, soonest first
	cost     int      // of all places that are held
	multiple int      // keys that hold two places or more
	without  int      // keys that wait and hold none
	flows    map[string]*flow
	waiting  map[uint64]*waiter
	rings    [][]*flow // by class: those in which something waits, in turn
	granted  []uint64
}

type place struct {
	flow  *flow
	cost  int
	until time.Time
}

type ending struct {
	id    uint64
	until time.Time
}

// flow is what holds a place or waits under one key.
type flow struct {
	key    string
	held   int
	alive  int         // that wait and have not been released
	queues [][]*waiter // by class; those released may still be in it
	inRing []bool      // by class
}

type waiter struct {
	id    uint64
	flow  *flow
	class int
	cost  int
	gone  bool
}

// New makes a Limiter in which nothing is held.
func New(cfg Config) *Limiter {
	return &Limiter{
		cfg: cfg, held: make(map[uint64]place), flows: make(map[string]*flow),
		waiting: make(map[uint64]*waiter), rings: make([][]*flow, cfg.Classes),
	}
}

// Acquire reports whether id has a place now. If not it waits for one, and Granted names
// it when it has one. It may be called again and again.
func (l *Limiter) Acquire(now time.Time, id uint64, key string, class, cost int) bool {
	l.Expire(now)
	if _, has := l.held[id]; has {
		return true
	}
	if l.waiting[id] != nil {
		return false
	}
	f := l.flow(key)
	if len(l.waiting) == 0 && (l.room(f, cost) || l.takeOver(f)) {
		l.grant(now, id, f, cost)
		return true
	}
	w := &waiter{id: id, flow: f, class: class, cost: cost}
	l.waiting[id] = w
	l.count(f, 0, 1)
	f.queues[class] = append(f.queues[class], w)
	if !f.inRing[class] {
		f.inRing[class] = true
		l.rings[class] = append(l.rings[class], f)
	}
	before := len(l.granted)
	l.next(now)
	for i := before; i < len(l.granted); i++ {
		if l.granted[i] == id {
			l.granted = append(l.granted[:i], l.granted[i+1:]...)
			return true
		}
	}
	return false
}

// Release gives back the place of id, or ends its waiting for one. It may have neither.
func (l *Limiter) Release(now time.Time, id uint64) {
	if p, has := l.held[id]; has {
		l.free(id, p)
		l.next(now)
	}
	if w := l.waiting[id]; w != nil {
		w.gone = true
		delete(l.waiting, id)
		l.count(w.flow, 0, -1)
		l.drop(w.flow)
	}
}

// Limit changes how many may hold a place at once, whatever they cost.
func (l *Limiter) Limit(now time.Time, least int) {
	l.cfg.Least = least
	l.Expire(now)
}

// Expire releases places that have been held for long enough.
func (l *Limiter) Expire(now time.Time) {
	for len(l.ending) > 0 {
		e := l.ending[0]
		p, has := l.held[e.id]
		if has && p.until.Equal(e.until) {
			if p.until.After(now) {
				break
			}
			l.free(e.id, p)
		}
		l.ending = l.ending[1:]
	}
	if len(l.ending) == 0 {
		l.ending = nil
	}
	l.next(now)
}

// Granted are those that have come by a place since the last call, in order, apart from
// those that Acquire has told so.
func (l *Limiter) Granted() []uint64 {
	ids := l.granted
	l.granted = nil
	return ids
}

// Holding is how many places are held, and Waiting how many wait for one.
func (l *Limiter) Holding() int { return len(l.held) }

// Waiting is how many wait.
func (l *Limiter) Waiting() int { return len(l.waiting) }

// Waits reports whether id waits for a place.
func (l *Limiter) Waits(id uint64) bool { return l.waiting[id] != nil }

// Next is when a place is released at the latest, zero if none is held.
func (l *Limiter) Next() time.Time {
	for len(l.ending) > 0 {
		e := l.ending[0]
		if p, has := l.held[e.id]; has && p.until.Equal(e.until) {
			return e.until
		}
		l.ending = l.ending[1:]
	}
	return time.Time{}
}

// Longest is the key of which the most wait, and how many, and Last the one of them that
// came last. ok is false if nothing waits.
func (l *Limiter) Longest() (last uint64, ok bool) {
	var most *flow
	for _, ring := range l.rings {
		for _, f := range ring {
			if f.alive > 0 && (most == nil || f.alive > most.alive) {
				most = f
			}
		}
	}
	if most == nil {
		return 0, false
	}
	for class := len(most.queues) - 1; class >= 0; class-- {
		q := most.queues[class]
		for i := len(q) - 1; i >= 0; i-- {
			if !q[i].gone {
				return q[i].id, true
			}
		}
	}
	return 0, false
}

// room reports whether one more of a flow may have a place.
func (l *Limiter) room(f *flow, cost int) bool {
	least, most := l.cfg.Least, l.cfg.Cost
	if f.held > 0 && l.cfg.Kept > 0 {
		least, most = least-least/l.cfg.Kept, most-most/l.cfg.Kept
	}
	return len(l.held) < least || l.cost+cost <= most
}

// count takes note of more places that a flow holds, and of more of it that wait.
func (l *Limiter) count(f *flow, held, alive int) {
	was, multiple := f.held == 0 && f.alive > 0, f.held > 1
	f.held += held
	f.alive += alive
	l.without += number(f.held == 0 && f.alive > 0) - number(was)
	l.multiple += number(f.held > 1) - number(multiple)
}

func number(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

func (l *Limiter) flow(key string) *flow {
	f := l.flows[key]
	if f == nil {
		f = &flow{key: key, queues: make([][]*waiter, l.cfg.Classes), inRing: make([]bool, l.cfg.Classes)}
		l.flows[key] = f
	}
	return f
}

// drop forgets a flow in which there is nothing.
func (l *Limiter) drop(f *flow) {
	if f.held > 0 || f.alive > 0 {
		return
	}
	for _, in := range f.inRing {
		if in {
			return // until next comes by
		}
	}
	delete(l.flows, f.key)
}

func (l *Limiter) grant(now time.Time, id uint64, f *flow, cost int) {
	until := now.Add(l.cfg.Hold)
	l.held[id] = place{f, cost, until}
	l.ending = append(l.ending, ending{id, until})
	l.cost += cost
	l.count(f, 1, 0)
}

func (l *Limiter) free(id uint64, p place) {
	delete(l.held, id)
	l.cost -= p.cost
	l.count(p.flow, -1, 0)
	l.drop(p.flow)
}

// takeOver makes room for one of a flow at the cost of the flow that holds the most.
func (l *Limiter) takeOver(f *flow) bool {
	if !l.cfg.TakeOver || f.held > 0 || l.multiple == 0 {
		return false
	}
	var victim uint64
	most := 1
	for _, e := range l.ending { // the oldest of the largest
		if p, has := l.held[e.id]; has && p.until.Equal(e.until) && p.flow.held > most {
			victim, most = e.id, p.flow.held
		}
	}
	if most == 1 {
		return false
	}
	l.free(victim, l.held[victim])
	return true
}

// next gives places to those that wait, as far as there is room.
func (l *Limiter) next(now time.Time) {
	if l.cfg.Kept > 0 {
		for class := range l.rings {
			for l.without > 0 && l.nextOf(now, class, true) {
			}
		}
	}
	for class := range l.rings {
		for l.nextOf(now, class, false) {
		}
		if len(l.rings[class]) > 0 {
			return
		}
		l.rings[class] = nil
	}
}

// nextOf gives a place to the next of a class, or to the next of a key without one, and
// reports whether it is to be called once more.
func (l *Limiter) nextOf(now time.Time, class int, without bool) bool {
	for i := 0; i < len(l.rings[class]); i++ {
		f := l.rings[class][i]
		if without && f.held > 0 {
			continue
		}
		q := f.queues[class]
		for len(q) > 0 && q[0].gone {
			q = q[1:]
		}
		f.queues[class] = q
		if len(q) == 0 {
			l.leaveRing(class, i)
			f.queues[class], f.inRing[class] = nil, false
			l.drop(f)
			return true
		}
		w := q[0]
		if !l.room(f, w.cost) && !l.takeOver(f) {
			if l.multiple == 0 || !l.cfg.TakeOver {
				return false
			}
			continue // one of another key may take a place over
		}
		l.leaveRing(class, i)
		f.queues[class] = q[1:]
		l.rings[class] = append(l.rings[class], f) // out again when it is empty
		delete(l.waiting, w.id)
		l.count(f, 0, -1)
		l.grant(now, w.id, f, w.cost)
		l.granted = append(l.granted, w.id)
		return true
	}
	return false
}

func (l *Limiter) leaveRing(class, i int) {
	ring := l.rings[class]
	if i == 0 {
		l.rings[class] = ring[1:]
		return
	}
	l.rings[class] = append(ring[:i], ring[i+1:]...)
}
