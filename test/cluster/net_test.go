package cluster

import (
	"errors"
	"slices"
	"time"
)

var (
	errBroken  = errors.New("connection broken")
	errRefused = errors.New("connection refused")
)

const (
	// A message takes this long, and now and then up to slowest.
	fastest, usual, slowest = 200 * time.Microsecond, 5 * time.Millisecond, 400 * time.Millisecond
	// Who hears nothing, not even a keepalive, gives a connection up within these.
	patient, morePatient = 12 * time.Second, 20 * time.Second
)

// conn is a connection: what goes in at one end comes out at the other, in order,
// or it breaks.
type conn struct {
	w    *world
	id   uint64
	ends [2]*end
	dead bool // both ends know
}

// end is one side of a connection.
type end struct {
	host   *host
	recv   func(any)
	ended  func(error)
	closed bool
	sent   uint64
	last   time.Duration // when what was sent last arrives
	packet *packet       // what was sent last
	held   []any         // what is on the way while the two are cut off
	broken bool          // the break is on its way, too
	why    error         // of the break
}

type pair = [2]int

func pairOf(a, b *host) pair { return pair{min(a.id, b.id), max(a.id, b.id)} }

func (w *world) cutOff(a, b *host) bool { return len(w.cuts) > 0 && w.cuts[pairOf(a, b)] > 0 }

// cut has two hosts not reach each other; what is on the way is held up.
func (w *world) cut(a, b *host) {
	w.cuts[pairOf(a, b)]++
	w.check.look()
	for _, c := range w.conns {
		if !c.dead && pairOf(c.ends[0].host, c.ends[1].host) == pairOf(a, b) {
			c.watch()
		}
	}
}

// mend takes one cut back. Connections that have not been given up go on.
func (w *world) mend(a, b *host) {
	p := pairOf(a, b)
	if w.cuts[p]--; w.cuts[p] > 0 {
		return
	}
	delete(w.cuts, p)
	w.check.look()
	for _, c := range slices.Clone(w.conns) {
		if c.dead || pairOf(c.ends[0].host, c.ends[1].host) != p {
			continue
		}
		for side, e := range c.ends {
			held := e.held
			e.held = nil
			for _, m := range held {
				c.carry(side, m)
			}
			if e.broken {
				c.carryEnd(side)
			}
		}
	}
}

// watch has both ends give up if they stay cut off.
func (c *conn) watch() {
	w := c.w
	for side := range c.ends {
		wait := between(w.hash(c.id, uint64(side), uint64(w.at)), patient, morePatient)
		began := w.at
		w.schedule(w.at+wait, c.id, func() {
			if w.cutOff(c.ends[0].host, c.ends[1].host) && !c.ends[side].closed && w.at-began == wait {
				c.giveUp(side)
			}
		})
	}
}

// giveUp ends one side that hears nothing. The other hears of it as soon as the two
// reach each other again.
func (c *conn) giveUp(side int) {
	e := c.ends[side]
	e.host.do(func() {
		if !e.closed {
			c.closeWith(side, errBroken)
			e.ended(errBroken)
		}
	})
}

func (c *conn) shut(side int) {
	c.ends[side].closed = true
	c.w.check.look()
	if c.ends[1-side].closed && !c.dead {
		c.dead = true
		c.w.conns = slices.DeleteFunc(c.w.conns, func(o *conn) bool { return o == c })
	}
}

// send takes a message at one side.
func (c *conn) send(side int, m any) {
	e := c.ends[side]
	if e.closed {
		return
	}
	if c.w.cutOff(c.ends[0].host, c.ends[1].host) {
		e.held = append(e.held, m)
		return
	}
	c.carry(side, m)
}

// arrival is when what is sent now gets there.
func (c *conn) arrival(side int) time.Duration {
	e := c.ends[side]
	e.sent++
	h := c.w.hash(c.id, uint64(side), e.sent)
	d := between(h, fastest, usual)
	if h>>40%500 == 0 {
		d = between(h>>8, usual, slowest)
	}
	e.last = max(e.last, c.w.at+d)
	return e.last
}

// packet is what one side has said at one moment: it arrives at one.
type packet struct {
	from, to *end
	sent     time.Duration
	first    any
	more     []any
}

// happen is its arrival.
func (p *packet) happen() {
	if p.from.packet == p {
		p.from.packet = nil
	}
	p.to.take(p.first)
	for _, m := range p.more {
		p.to.take(m)
	}
	clear(p.more)
	w := p.to.host.w
	*p = packet{more: p.more[:0]}
	w.packets.put(p)
}

func (c *conn) carry(side int, m any) {
	e, to := c.ends[side], c.ends[1-side]
	if p := e.packet; p != nil && p.sent == c.w.at {
		p.more = append(p.more, m)
		return
	}
	p := c.w.packets.get()
	p.from, p.to, p.sent, p.first = e, to, c.w.at, m
	e.packet = p
	c.w.enqueue(c.arrival(side), c.id<<1|uint64(side), e.packet)
}

// take has a host take what comes in, if it still listens.
func (e *end) take(m any) {
	switch {
	case e.closed:
	case e.host.up && !e.host.paused:
		e.recv(m)
	default:
		e.host.do(func() {
			if !e.closed {
				e.recv(m)
			}
		})
	}
}

// close ends a side; the other hears of it.
func (c *conn) close(side int) { c.closeWith(side, errBroken) }

// closeWith is close with a reason that the other side hears.
func (c *conn) closeWith(side int, why error) {
	if c.ends[side].closed {
		return
	}
	c.ends[side].why = why
	c.shut(side)
	if c.w.cutOff(c.ends[0].host, c.ends[1].host) {
		c.ends[side].broken = true
		return
	}
	c.carryEnd(side)
}

func (c *conn) carryEnd(side int) {
	to := c.ends[1-side]
	c.ends[side].packet = nil
	c.w.schedule(c.arrival(side), c.id<<1|uint64(side), func() {
		if !to.host.up || to.closed {
			c.shut(1 - side)
			return
		}
		to.host.do(func() {
			if !to.closed {
				c.shut(1 - side)
				to.ended(c.ends[side].why)
			}
		})
	})
}

// vanish ends a side without a word; the other notices in its own time. What is
// on the way arrives all the same.
func (c *conn) vanish(side int) {
	c.shut(side)
	wait := between(c.w.hash(c.id, uint64(side), uint64(c.w.at)), patient, morePatient)
	c.w.schedule(c.w.at+wait, c.id, func() {
		if to := c.ends[1-side]; !to.closed {
			if !to.host.up {
				c.shut(1 - side)
				return
			}
			c.giveUp(1 - side)
		}
	})
}

// dial connects two hosts. accept takes the connection at the other side and says
// how it takes what comes; done hears at the caller's side whether that worked.
func (w *world) dial(from, to *host, recv func(any), ended func(error), accept func(c *conn) (recv func(any), ended func(error)), done func(c *conn, err error)) {
	w.seq++
	id := w.seq
	c := &conn{w: w, id: w.hash(id, uint64(from.id), uint64(to.id)), ends: [2]*end{{host: from, recv: recv, ended: ended}, {host: to}}}
	there := between(w.hash(c.id, 1), fastest, usual)
	back := there + between(w.hash(c.id, 2), fastest, usual)
	caller := from.life
	gone := func() bool { return !from.up || from.life != caller || c.ends[0].closed }
	w.schedule(w.at+there, c.id, func() {
		answer := func(err error) {
			w.schedule(w.at+back-there, c.id, func() {
				if !gone() {
					from.do(func() { done(c, err) })
				}
			})
		}
		switch {
		case gone():
		case w.cutOff(from, to):
			// Nothing answers: it is for the caller to lose patience.
			back = there + patient
			answer(errBroken)
		case !to.up:
			answer(errRefused)
		default:
			to.do(func() {
				c.ends[1].recv, c.ends[1].ended = accept(c)
				w.conns = append(w.conns, c)
				if gone() {
					c.ends[0].closed, c.ends[0].why = true, errBroken
					c.carryEnd(0)
					return
				}
				if w.cutOff(from, to) {
					c.watch()
				}
				answer(nil)
			})
		}
	})
}
