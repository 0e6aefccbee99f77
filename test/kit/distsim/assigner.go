package distsim

import (
	"slices"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/distributor/fanout"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// Assigner is a stream to an assigner.
type Assigner struct {
	fanout.Peer
	d     *Distributor
	up    fanout.Upstream
	send  func(*slicerv1.AttachRequest)
	end   func()
	woken bool
	quiet time.Time // until when nothing has to be said
	// pieces and bases are what has come of assignments that are not complete, by job.
	pieces, bases map[string][]byte
}

// Attached says that a stream to an assigner stands and both have said hello.
// send carries a message to it; end is called when the stream is to end.
func (d *Distributor) Attached(now time.Time, h *slicerv1.AssignerHello, send func(*slicerv1.AttachRequest), end func()) *Assigner {
	d.at(now)
	d.sessions++
	p := &Assigner{
		Peer: fanout.Peer{Session: d.sessions, ID: h.GetAssignerId()}, d: d, up: fanout.NewUpstream(d.now, false, h), send: send, end: end,
		quiet: now.Add(heartbeat), pieces: make(map[string][]byte), bases: make(map[string][]byte),
	}
	d.peers = append(d.peers, p)
	if old := d.attached[p.ID]; old != nil {
		old.end()
	}
	d.attached[p.ID] = p
	d.wire()
	d.flush()
	return p
}

// Detached says that it has ended.
func (d *Distributor) Detached(now time.Time, p *Assigner) {
	d.at(now)
	d.peers = slices.DeleteFunc(d.peers, func(q *Assigner) bool { return p == q })
	if d.attached[p.ID] == p {
		delete(d.attached, p.ID)
		p.up.Ended(d.now)
		d.prefs.Forget(p.Source())
		d.wire()
	}
	d.flush()
}

// FromAssigner says what an assigner has sent.
func (d *Distributor) FromAssigner(now time.Time, p *Assigner, m *slicerv1.AttachResponse) {
	d.at(now)
	p.received(m)
	d.flush()
}

func (p *Assigner) received(m *slicerv1.AttachResponse) {
	d := p.d
	step := func(job string, e fanout.Event) {
		if j := d.byName[job]; j != nil {
			j.step(e)
		}
	}
	switch m := m.GetMessage().(type) {
	case *slicerv1.AttachResponse_Preference:
		if d.attached[p.ID] == p {
			d.prefs.Update(p.Source(), m.Preference)
			d.wire()
		}
	case *slicerv1.AttachResponse_Assignment:
		p.assignment(m.Assignment)
	case *slicerv1.AttachResponse_Base:
		p.base(m.Base)
	case *slicerv1.AttachResponse_Status:
		step(m.Status.GetJob(), fanout.Answered{From: p.Peer, Status: m.Status})
	case *slicerv1.AttachResponse_RefuseTask:
		step(m.RefuseTask.GetJob(), fanout.TaskRefused{Refusal: m.RefuseTask})
	case *slicerv1.AttachResponse_ClientIndexes:
		step(m.ClientIndexes.GetJob(), fanout.Indexed{From: p.Session, Indexes: m.ClientIndexes})
	case *slicerv1.AttachResponse_Quotas:
		step(m.Quotas.GetJob(), fanout.Quoted{From: p.Session, Quotas: m.Quotas.GetQuotas()})
	case *slicerv1.AttachResponse_Acknowledged:
		if p.up.Acknowledged(d.now) {
			for _, j := range d.jobs {
				j.due = true
			}
		}
	}
}

// assignment takes a piece of an assignment.
func (p *Assigner) assignment(m *slicerv1.JobAssignment) {
	j := p.d.byName[m.GetJob()]
	if j == nil {
		delete(p.pieces, m.GetJob())
		return
	}
	t := m.GetTrailer()
	if t == nil {
		p.pieces[j.name] = append(p.pieces[j.name], m.GetChunk().GetData()...)
		return
	}
	a, err := p.d.decode(t, p.pieces[j.name], j.core.Held(assignment.Generation(t.GetBase())))
	delete(p.pieces, j.name)
	if err != nil {
		j.step(fanout.Undecodable{From: p.Session})
		return
	}
	j.step(fanout.Offered{From: p.Peer, Assignment: a, Age: time.Duration(m.GetAgeUs()) * time.Microsecond})
}

// base takes a piece of a base. One that does not decode counts as none.
func (p *Assigner) base(m *slicerv1.JobAssignment) {
	j := p.d.byName[m.GetJob()]
	if j == nil {
		delete(p.bases, m.GetJob())
		return
	}
	if c := m.GetChunk(); c != nil {
		p.bases[j.name] = append(p.bases[j.name], c.GetData()...)
		return
	}
	var a *assignment.Assignment
	if t := m.GetTrailer(); t != nil && t.GetBase() == 0 {
		var err error
		if a, err = p.d.decode(t, p.bases[j.name], nil); err != nil {
			a = nil
		}
	}
	delete(p.bases, j.name)
	j.step(fanout.BaseOffered{From: p.Session, Assignment: a})
}

func (p *Assigner) peer() fanout.Peer {
	if p == nil {
		return fanout.Peer{}
	}
	return p.Peer
}

func (p *Assigner) lastAcknowledged(now time.Time) time.Time {
	if p == nil {
		return time.Time{}
	}
	return p.up.LastAcknowledged(now)
}

func (p *Assigner) mark(what func(*fanout.Upstream)) {
	what(&p.up)
	p.woken = true
}

// sayAll says what there is to say.
func (p *Assigner) sayAll() {
	if !p.woken {
		return
	}
	p.woken = false
	if p.up.PopViews() {
		for _, m := range p.d.views.Messages(p.d.now) {
			p.say(p.d.now, m)
		}
	}
	for name, vacant, ok := p.up.Pop(); ok; name, vacant, ok = p.up.Pop() {
		var tell fanout.Tell
		if j := p.d.byName[name]; j != nil {
			tell = j.step(fanout.PeerReady{Session: p.Session}).(fanout.Tell)
		} else if vacant {
			tell.Messages = fanout.Vacant(name)
		}
		for _, m := range p.up.Say(name, tell) {
			p.say(p.d.now, m)
		}
	}
}

func (p *Assigner) say(now time.Time, m *slicerv1.AttachRequest) {
	p.quiet = now.Add(heartbeat)
	p.send(m)
}
