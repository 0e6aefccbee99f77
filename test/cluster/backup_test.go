package cluster

import (
	"math/rand/v2"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/backupdist/protocol"
	"github.com/slicer-project/slicer/distributor/fanout"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// backupHost is a Backup Distributor's process, of one job.
type backupHost struct {
	*host
	rng     *rand.Rand
	job     *protocol.Job // nil until something needs it
	reading bool
	idle    bool // nothing needed it when the reading began
	peers   []*backupPeer
	frame   *wire.Frame // of newest on base
	newest  *assignment.Assignment
	base    *assignment.Assignment
}

// backupPeer is a subscriber's stream.
type backupPeer struct {
	*protocol.Subscriber
	conn *conn
}

func newBackup(w *world, name string) *backupHost {
	b := &backupHost{host: w.newHost(name)}
	b.due = b.step
	b.boot = func() {
		*b = backupHost{host: b.host, rng: rand.New(rand.NewPCG(w.hash(uint64(b.id), b.life), 0))}
		// What a watch says first.
		w.store.tellOne(b.host, b.life, b.changed)
	}
	return b
}

func (b *backupHost) changed() {
	b.need().Changed()
	b.step()
}

func (b *backupHost) need() *protocol.Job {
	if b.job == nil {
		b.job = protocol.NewJob(job)
	}
	return b.job
}

// step does what is due.
func (b *backupHost) step() {
	now := b.now()
	var next time.Time
	for _, p := range slices.Clone(b.peers) {
		b.serve(p)
		next = fanout.Sooner(next, p.Wake())
	}
	if b.job != nil && !b.reading {
		b.idle = len(b.peers) == 0
		switch do, wait := b.job.Next(now, b.idle); {
		case do == protocol.ToRead:
			b.job.Begin()
			b.reading = true
			defer b.read()
		case do == protocol.ToDrop:
			b.job = nil
		case wait >= 0:
			next = fanout.Sooner(next, now.Add(wait))
		}
	}
	if !next.IsZero() {
		b.wake(sinceEpoch(next))
	}
}

// read asks the store.
func (b *backupHost) read() {
	s := b.w.store
	s.rpc(b.host, func() any { return read{s.job, s.overrides, s.stored} }, func(x any, ok bool) {
		r := protocol.Reading{Err: store.ErrUnavailable}
		if ok {
			x := x.(read)
			r = protocol.Reading{Exists: true, Config: x.job.Config, Assignment: x.stored}
		}
		b.reading = false
		_ = b.job.Read(b.now(), r, b.idle, b.rng.Float64())
		b.step()
	})
}

// serve sends a subscriber what it lacks.
func (b *backupHost) serve(p *backupPeer) {
	for {
		switch send := p.Next(b.now(), b.job.State()); {
		case send.Hopeless:
			b.left(p)
			p.conn.closeWith(1, status.Error(codes.Unavailable, "the store has not answered yet"))
			return
		case send.Status != nil:
			p.conn.send(1, &slicerv1.WatchResponse{Message: &slicerv1.WatchResponse_Status{Status: send.Status}})
		case send.Quotas != nil:
			p.conn.send(1, &slicerv1.WatchResponse{Message: &slicerv1.WatchResponse_Quotas{Quotas: send.Quotas}})
		case send.Newest != nil:
			for m := range b.encoded(send.Newest, send.Base).Responses() {
				p.conn.send(1, m)
			}
		default:
			return
		}
	}
}

func (b *backupHost) encoded(a, base *assignment.Assignment) *wire.Frame {
	if b.frame != nil && b.newest == a && b.base == base {
		return b.frame
	}
	encode := func() (*wire.Frame, error) { return wire.DeltaFrame(base, a) }
	if base == nil {
		encode = func() (*wire.Frame, error) { return wire.WholeFrame(a) }
	}
	f, err := encode()
	if err != nil {
		panic(err)
	}
	b.frame, b.newest, b.base = f, a, base
	return f
}

func (b *backupHost) left(p *backupPeer) {
	b.peers = slices.DeleteFunc(b.peers, func(q *backupPeer) bool { return p == q })
}

// accept takes a subscriber's connection.
func (b *backupHost) accept(c *conn) (recv func(any), ended func(error)) {
	var p *backupPeer
	recv = func(m any) {
		switch in := m.(*slicerv1.WatchRequest); {
		case p == nil:
			s, err := protocol.NewSubscriber(b.now(), in.GetHello())
			if err != nil {
				b.w.fail("%s refuses a hello: %v", b.name, err)
			}
			p = &backupPeer{s, c}
			b.peers = append(b.peers, p)
			b.need().Needed()
		case in.GetAck() != nil:
			p.Ack(in.GetAck())
		}
		b.step()
	}
	return recv, func(error) {
		if p != nil {
			b.left(p)
			b.step()
		}
	}
}
