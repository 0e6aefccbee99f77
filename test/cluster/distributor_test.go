package cluster

import (
	"time"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"github.com/slicer-project/slicer/test/kit/distsim"
)

// Waits of a Distributor between attempts to attach.
const attachAgain, attachAgainMost = 100 * time.Millisecond, 5 * time.Second

// distributorHost is a Distributor's process.
type distributorHost struct {
	*host
	dist  *distsim.Distributor
	links map[*assignerHost]*attachment
}

// attachment is what a Distributor has to do with one assigner.
type attachment struct {
	conn     *conn
	peer     *distsim.Assigner
	failures int
}

func newDistributor(w *world, name string) *distributorHost {
	d := &distributorHost{host: w.newHost(name)}
	d.due = d.step
	d.boot = func() {
		d.dist = distsim.New(name, d.now(), w.decoder.frame)
		d.links = map[*assignerHost]*attachment{}
		for _, a := range w.assigners {
			d.links[a] = &attachment{}
			d.attach(a)
		}
		d.step()
	}
	return d
}

func (d *distributorHost) step() {
	next := d.dist.Step(d.now())
	d.wake(sinceEpoch(next))
}

// attach connects to an assigner.
func (d *distributorHost) attach(a *assignerHost) {
	l := d.links[a]
	life := d.life
	d.w.dial(d.host, a.host, func(m any) {
		out := m.(*slicerv1.AttachResponse)
		if h := out.GetHello(); h != nil {
			c := l.conn
			l.failures = 0
			l.peer = d.dist.Attached(d.now(), h,
				func(m *slicerv1.AttachRequest) { c.send(0, m) },
				func() { d.soon(c.id, func() { d.lost(a, c) }) })
		} else if l.peer != nil {
			d.dist.FromAssigner(d.now(), l.peer, out)
			if !d.dist.Due() {
				return
			}
		}
		d.step()
	}, func(error) { d.lost(a, l.conn) }, a.accept, func(c *conn, err error) {
		if d.life != life {
			return
		}
		if err != nil {
			l.failures++
			d.again(a)
			return
		}
		l.conn = c
		c.send(0, &slicerv1.DistributorHello{DistributorId: d.name})
	})
}

// lost ends a connection, if it is the one that counts, and tries anew.
func (d *distributorHost) lost(a *assignerHost, c *conn) {
	l := d.links[a]
	if l.conn == nil || l.conn != c {
		return
	}
	c.close(0)
	l.conn = nil
	if p := l.peer; p != nil {
		l.peer = nil
		d.dist.Detached(d.now(), p)
	}
	l.failures++
	d.again(a)
	d.step()
}

func (d *distributorHost) again(a *assignerHost) {
	most := min(attachAgain<<min(d.links[a].failures, 10), attachAgainMost)
	d.after(between(d.w.hash(uint64(d.id), uint64(a.id), uint64(d.w.at)), most/2, most), func() { d.attach(a) })
}

// accept takes a subscriber's connection.
func (d *distributorHost) accept(c *conn) (recv func(any), ended func(error)) {
	var p *distsim.Subscriber
	life := d.life
	left := func() {
		if p != nil && d.life == life {
			d.dist.Left(d.now(), p)
			p = nil
			d.step()
		}
	}
	recv = func(m any) {
		in := m.(*slicerv1.WatchRequest)
		if p != nil {
			d.dist.FromSubscriber(d.now(), p, in)
			if d.dist.Due() {
				d.step()
			}
			return
		}
		var err error
		p, err = d.dist.Join(d.now(), in, func(out *slicerv1.WatchResponse) { c.send(1, out) }, func(err error) {
			d.soon(c.id, func() { c.closeWith(1, err); left() })
		})
		if err != nil {
			c.closeWith(1, err)
		}
		d.step()
	}
	return recv, func(error) { left() }
}
