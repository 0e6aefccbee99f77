package cluster

import (
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/backupdist"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// backupHost is a Backup Distributor's process.
type backupHost struct {
	*host
	driven *backupdist.Driven
}

func newBackup(w *world, name string) *backupHost {
	b := &backupHost{host: w.newHost(name)}
	b.due = b.step
	b.boot = func() {
		var err error
		if b.driven, err = backupdist.NewDriven(w.hash(uint64(b.id), b.life)); err != nil {
			panic(err)
		}
		// What a watch says first.
		w.store.tellOne(b.host, b.life, b.changed)
	}
	return b
}

func (b *backupHost) changed() {
	b.driven.StoreChanged(job)
	b.step()
}

// step has the Backup Distributor do what is due.
func (b *backupHost) step() {
	ask, next := b.driven.Step(b.now())
	if !next.IsZero() {
		b.wake(sinceEpoch(next))
	}
	s := b.w.store
	for _, name := range ask {
		s.rpc(b.host, func() any { return read{s.job, s.controls, s.stored} }, func(x any, ok bool) {
			l := backupdist.Loaded{Err: store.ErrUnavailable}
			if ok {
				r := x.(read)
				l = backupdist.Loaded{Exists: true, Job: r.job, Assignment: r.stored}
			}
			b.driven.Loaded(b.now(), name, l)
			b.step()
		})
	}
}

// accept takes a subscriber's connection.
func (b *backupHost) accept(c *conn) (recv func(any), ended func(error)) {
	var p *backupdist.SubscriberPeer
	recv = func(m any) {
		in := m.(*slicerv1.WatchRequest)
		if p != nil {
			b.driven.FromSubscriber(p, in)
		} else {
			var err error
			p, err = b.driven.Join(b.now(), in, func(out *slicerv1.WatchResponse) { c.send(1, out) }, func(err error) { c.closeWith(1, err) })
			if err != nil {
				c.closeWith(1, err)
			}
		}
		b.step()
	}
	return recv, func(error) {
		if p != nil {
			b.driven.Left(p)
			b.step()
		}
	}
}
