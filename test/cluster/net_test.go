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
	both [2]end // those
	lost bool   // what goes in does not come out any more
	dead bool   // both ends know
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
	held   []any         // what does not get through to the other side
	cut    *bool         // what it sends does not reach the other side's host
	broken bool          // the break is on its way, too
	why    error         // of the break
}

// pair is from where to where.
type pair = [2]int

// severed is how many cuts there are from one host to another, and since when.
type severed struct {
	cuts  int
	since time.Duration
}

// cutOff reports whether what one host sends does not reach another.
func (w *world) cutOff(from, to *host) bool { return from.severed[to.id] }

// apart reports whether two hosts do not reach each other, at least one way.
func (w *world) apart(a, b *host) bool { return w.cutOff(a, b) || w.cutOff(b, a) }

// cut has two hosts not reach each other; what is on the way is held up.
func (w *world) cut(a, b *host) {
	w.cutWay(a, b)
	w.cutWay(b, a)
}

// mend takes one cut back. Connections that have not been given up go on.
func (w *world) mend(a, b *host) {
	w.mendWay(a, b)
	w.mendWay(b, a)
}

// cutWay has what one host sends not reach another.
func (w *world) cutWay(from, to *host) {
	p := pair{from.id, to.id}
	s := w.cuts[p]
	if s.cuts++; s.cuts > 1 {
		w.cuts[p] = s
		return
	}
	s.since = w.at
	from.severed[to.id] = true
	w.cuts[p], w.touched[p] = s, w.at
	w.check.look()
	for _, c := range w.conns {
		if side, ok := c.side(p); ok {
			c.watch(1 - side)
		}
	}
}

func (w *world) mendWay(from, to *host) {
	p := pair{from.id, to.id}
	s := w.cuts[p]
	if s.cuts--; s.cuts > 0 {
		w.cuts[p] = s
		return
	}
	from.severed[to.id] = false
	delete(w.cuts, p)
	w.touched[p] = w.at
	w.check.look()
	for _, c := range slices.Clone(w.conns) {
		side, ok := c.side(p)
		if !ok {
			continue
		}
		e := c.ends[side]
		held := e.held
		e.held = nil
		if len(held) > 0 && e.closed {
			w.check.late(e.host)
		}
		for _, m := range held {
			c.carry(side, m)
		}
		if e.broken {
			c.carryEnd(side)
		}
	}
}

// side is the one that sends, of a connection that lives, from where to where.
func (c *conn) side(p pair) (side int, ok bool) {
	a, b := c.ends[0].host.id, c.ends[1].host.id
	switch {
	case c.dead || c.lost:
		return 0, false
	case a == p[0] && b == p[1]:
		return 0, true
	}
	return 1, a == p[1] && b == p[0]
}

// watch has a side give up if it goes on hearing nothing.
func (c *conn) watch(side int) {
	w, began := c.w, c.w.at
	wait := between(w.hash(c.id, uint64(side), uint64(w.at)), patient, morePatient)
	w.schedule(w.at+wait, c.id, func() {
		s := w.cuts[pair{c.ends[1-side].host.id, c.ends[side].host.id}]
		if !c.ends[side].closed && (c.lost || s.cuts > 0 && s.since <= began) {
			c.giveUp(side)
		}
	})
}

// lose has a connection carry nothing any more, as when something between the two
// hosts has forgotten it: new ones work.
func (c *conn) lose() {
	c.w.note("a connection between %s and %s is lost", c.ends[0].host.name, c.ends[1].host.name)
	c.lost = true
	c.w.touched[pair{c.ends[0].host.id, c.ends[1].host.id}] = c.w.at
	c.w.check.look()
	for side, e := range c.ends {
		e.held = nil
		c.watch(side)
	}
}

// giveUp ends one side that hears nothing. What the other has not taken by then is
// lost; it hears of the end as soon as that gets through.
func (c *conn) giveUp(side int) {
	e := c.ends[side]
	e.host.do(func() {
		if !e.closed {
			e.held = nil
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
	switch {
	case e.closed || c.lost:
	case *e.cut:
		e.held = append(e.held, m)
	default:
		c.carry(side, m)
	}
}

// delay is how long a message takes.
func delay(h uint64) time.Duration {
	if h>>40%500 == 0 {
		return between(h>>8, usual, slowest)
	}
	return between(h, fastest, usual)
}

// arrival is when what is sent now gets there.
func (c *conn) arrival(side int) time.Duration {
	e := c.ends[side]
	e.sent++
	e.last = max(e.last, c.w.at+delay(c.w.hash(c.id, uint64(side), e.sent)))
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
	case e.host.runs():
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
	switch {
	case c.lost:
	case *c.ends[side].cut:
		c.ends[side].broken = true
	default:
		c.carryEnd(side)
	}
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

// dialing is an attempt to connect two hosts.
type dialing struct {
	*conn
	life   uint64 // of the caller's process
	back   time.Duration
	accept func(c *conn) (recv func(any), ended func(error))
	done   func(c *conn, err error)
	err    error
}

// dial connects two hosts. accept takes the connection at the other side and says
// how it takes what comes; done hears at the caller's side whether that worked.
func (w *world) dial(from, to *host, recv func(any), ended func(error), accept func(c *conn) (recv func(any), ended func(error)), done func(c *conn, err error)) {
	w.seq++
	c := &conn{w: w, id: w.hash(w.seq, uint64(from.id), uint64(to.id)), both: [2]end{{host: from, recv: recv, ended: ended}, {host: to}}}
	c.ends = [2]*end{&c.both[0], &c.both[1]}
	c.both[0].cut, c.both[1].cut = &from.severed[to.id], &to.severed[from.id]
	d := &dialing{conn: c, life: from.life, back: delay(w.hash(c.id, 2)), accept: accept, done: done}
	w.enqueue(w.at+delay(w.hash(c.id, 1)), c.id, (*called)(d))
}

// gone reports whether the caller does not want to connect any more.
func (d *dialing) gone() bool {
	from := d.ends[0].host
	return !from.up || from.life != d.life || d.ends[0].closed
}

func (d *dialing) answer(err error) {
	d.err = err
	d.w.enqueue(d.w.at+d.back, d.id, (*connected)(d))
}

// called is when a caller's wish to connect reaches the other side.
type called dialing

func (x *called) happen() {
	d := (*dialing)(x)
	from, to := d.ends[0].host, d.ends[1].host
	switch {
	case d.gone():
	case d.w.apart(from, to):
		// Nothing answers: it is for the caller to lose patience.
		d.back = patient
		d.answer(errBroken)
	case !to.up:
		d.answer(errRefused)
	case to.runs():
		d.accepted()
	default:
		to.do(d.accepted)
	}
}

func (d *dialing) accepted() {
	c, w := d.conn, d.w
	from, to := c.ends[0].host, c.ends[1].host
	c.ends[1].recv, c.ends[1].ended = d.accept(c)
	w.conns = append(w.conns, c)
	if d.gone() {
		c.ends[0].closed, c.ends[0].why = true, errBroken
		c.carryEnd(0)
		return
	}
	if w.cutOff(to, from) {
		c.watch(0)
	}
	if w.cutOff(from, to) {
		c.watch(1)
	}
	d.answer(nil)
}

// connected is when the caller hears what became of it.
type connected dialing

func (x *connected) happen() {
	d := (*dialing)(x)
	switch from := d.ends[0].host; {
	case d.gone():
	case from.runs():
		d.done(d.conn, d.err)
	default:
		from.do(func() { d.done(d.conn, d.err) })
	}
}
