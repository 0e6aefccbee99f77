package protocol

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// Base is what a delta on a link is based on, nil for nothing.
func (c *Core) Base(id Link) *assignment.Assignment {
	if l := c.connector(id); l != nil {
		return l.base
	}
	return nil
}

// Received takes what a server has sent. With the last message of an assignment comes the
// assignment, with any of them why it cannot be put together. See wire.Assembler.
func (c *Core) Received(now time.Time, id Link, m *slicerv1.WatchResponse, a *assignment.Assignment, err error) {
	l := c.connector(id)
	if l == nil || l.phase != open && l.phase != serving {
		return
	}
	if l == &c.scan {
		c.answered(m.GetStatus(), now)
		return
	}
	_, piece := m.GetMessage().(*slicerv1.WatchResponse_Chunk)
	l.listen(now, piece)
	switch m := m.GetMessage().(type) {
	case *slicerv1.WatchResponse_Chunk:
		if err != nil {
			c.count.Refused++
			c.fail(l, err, now)
		}
	case *slicerv1.WatchResponse_Trailer:
		c.offered(l, a, m.Trailer.GetBase() == 0, err, now)
	case *slicerv1.WatchResponse_Status:
		c.newStatus(l, m.Status, now)
	case *slicerv1.WatchResponse_Quotas:
		c.newQuotas(l, m.Quotas)
	}
	c.settle(now)
}

// offered takes an assignment, or why there is none.
func (c *Core) offered(l *connector, a *assignment.Assignment, whole bool, err error, now time.Time) {
	if err == nil && a.Job() != c.cfg.Job {
		err = fmt.Errorf("assignment of job %q", a.Job())
	}
	if err == nil && a.Part() != "" && (!c.cfg.Parts || a.Part() != c.cfg.Task.Name) {
		err = fmt.Errorf("part for task %q", a.Part())
	}
	if err != nil {
		c.refuse(l, err, now)
		return
	}
	l.refusals, l.refusing, l.sent = 0, false, true
	began := l.phase != serving
	l.serve(now)
	c.ever = c.ever || l == &c.dist
	l.base = a
	switch {
	case c.wants(l, a, whole):
		c.held, c.source = a, l.source
		c.count.Updates[l.source]++
		c.do(Action{Do: Publish})
	case c.held.StoreID() == a.StoreID():
		// At least as new: the server is told, and sends what is based on that.
		l.base = c.held
	}
	if began {
		c.do(Action{Do: Publish})
	}
	c.ack(l, l.base, "")
}

// wants reports whether a takes the place of what is held.
func (c *Core) wants(l *connector, a *assignment.Assignment, whole bool) bool {
	h := c.held
	switch {
	case h == nil:
		return true
	case l == &c.back && c.dist.phase == serving:
		// Where they contradict each other, the Distributor is right.
		return h.StoreID() == a.StoreID() && a.Newer(h)
	case whole && h.StoreID() == a.StoreID() && h.Generation() == a.Generation():
		// Sent although we said that we hold it: ours is not what it should be.
		return h.Checksum() != a.Checksum()
	}
	return a.Newer(h)
}

// refuse asks for the whole, or gives the server up if that does not help.
func (c *Core) refuse(l *connector, err error, now time.Time) {
	c.count.Refused++
	if l.refusals++; l.refusals >= maxRefusals {
		c.fail(l, fmt.Errorf("%w: %d assignments in a row had to be refused, the last: %w", ErrUnavailable, l.refusals, err), now)
		return
	}
	level := slog.LevelWarn
	if l.refusing {
		level = slog.LevelDebug
	}
	l.refusing = true
	c.say(level, "assignment refused", err)
	c.ack(l, l.base, err.Error())
}

func (c *Core) ack(l *connector, a *assignment.Assignment, refusal string) {
	var m struct { // one piece of memory
		of  slicerv1.WatchRequest
		is  slicerv1.WatchRequest_Ack
		ack slicerv1.Ack
	}
	m.of.Message, m.is.Ack = &m.is, &m.ack
	m.ack.Refusal = assignment.Clip(refusal, maxRefusal)
	if a != nil {
		m.ack.Generation = int64(a.Generation())
	}
	c.do(Action{Do: Send, Link: l.link, Message: &m.of})
}

func (c *Core) newStatus(l *connector, m *slicerv1.Status, now time.Time) {
	l.repeat = time.Duration(min(max(m.GetRepeatMs(), 0), time.Hour.Milliseconds())) * time.Millisecond
	l.noReports, l.unacknowledged = !m.GetTakesReports(), m.GetUnacknowledged()
	l.listen(now, false)
	if c.held != nil {
		l.serve(now)
		c.ever = c.ever || l == &c.dist
	}
	if l == &c.back && c.dist.phase == serving {
		return
	}
	if l == &c.dist {
		c.given(m)
	}
	if !m.GetLimited() {
		c.quotas = nil
	}
	mode := c.status.Mode
	c.status = statusFromProto(m)
	if c.status.Mode == 0 {
		c.status.Mode = mode
	}
	if l == &c.back {
		c.status.Converged, c.status.Stragglers, c.status.Conditions = 0, nil, nil
	}
	c.do(Action{Do: Publish})
}

// newQuotas takes how much a task may use of the job's limits. A Backup Distributor knows the
// limits alone, and is believed while no Distributor serves; the task keeps its shares.
func (c *Core) newQuotas(l *connector, m *slicerv1.Quotas) {
	switch {
	case c.cfg.Role != Slicelet, l != &c.dist && (l != &c.back || c.dist.phase == serving):
		return
	case l == &c.back:
		m = &slicerv1.Quotas{Limits: m.GetLimits()}
	}
	q, err := wire.QuotasFromProto(m, c.quotas)
	if err != nil {
		c.say(slog.LevelWarn, "quotas refused", err)
		return
	}
	c.quotas = q
	c.do(Action{Do: Publish})
}

// given takes the index that a Distributor gives a clerk, if it does. Backup
// Distributors give none.
func (c *Core) given(m *slicerv1.Status) {
	if m == nil || m.ClientIndex == nil || c.cfg.Role != Clerk || c.cfg.ClientIndex != nil || *m.ClientIndex > MaxClientIndex {
		return
	}
	if index := int(*m.ClientIndex); index != c.index {
		c.say(slog.LevelInfo, fmt.Sprintf("client index %d, before it %d", index, c.index), nil)
		c.index = index
	}
}
