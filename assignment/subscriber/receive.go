package subscriber

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/slicer-project/slicer/assignment"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// received: a server has sent a message.
func (c *core) received(id linkID, m *slicerv1.WatchResponse, now time.Time) {
	l := c.lane(id)
	if l == nil || l.phase != open && l.phase != serving {
		return
	}
	if l == &c.scout {
		c.answered(m.GetStatus(), now)
		return
	}
	_, piece := m.GetMessage().(*slicerv1.WatchResponse_Chunk)
	l.listen(now, piece)
	switch m := m.GetMessage().(type) {
	case *slicerv1.WatchResponse_Chunk:
		if err := l.asm.Add(m.Chunk); err != nil {
			c.count.Refused++
			c.fail(l, err, now)
		}
	case *slicerv1.WatchResponse_Trailer:
		c.trailer(l, m.Trailer, now)
	case *slicerv1.WatchResponse_Status:
		c.newStatus(l, m.Status, now)
	}
	c.settle(now)
}

func (c *core) trailer(l *lane, t *slicerv1.Trailer, now time.Time) {
	a, err := l.asm.Finish(t, l.base)
	if err == nil && a.Job() != c.cfg.Job {
		err = fmt.Errorf("assignment of job %q", a.Job())
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
	case c.wants(l, a, t.GetBase() == 0):
		c.held, c.source = a, l.source
		c.count.Updates[l.source]++
		c.do(action{do: publish})
	case c.held.StoreID() == a.StoreID():
		// At least as new: the server is told, and sends what is based on that.
		l.base = c.held
	}
	if began {
		c.do(action{do: publish})
	}
	c.ack(l, l.base, "")
}

// wants says whether a takes the place of what is held.
func (c *core) wants(l *lane, a *assignment.Assignment, whole bool) bool {
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
func (c *core) refuse(l *lane, err error, now time.Time) {
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

func (c *core) ack(l *lane, a *assignment.Assignment, refusal string) {
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
	c.do(action{do: send, link: l.link, msg: &m.of})
}

func (c *core) newStatus(l *lane, m *slicerv1.Status, now time.Time) {
	l.repeat = time.Duration(min(max(m.GetRepeatMs(), 0), time.Hour.Milliseconds())) * time.Millisecond
	l.mute, l.unheard = !m.GetTakesReports(), m.GetUnheard()
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
	mode := c.status.Mode
	c.status = statusFromProto(m)
	if c.status.Mode == 0 {
		c.status.Mode = mode
	}
	if l == &c.back {
		c.status.Converged, c.status.Stragglers = 0, nil
	}
	c.do(action{do: publish})
}

// given takes the index that a Distributor gives a clerk, if it does. Backup
// Distributors give none.
func (c *core) given(m *slicerv1.Status) {
	if m == nil || m.ClientIndex == nil || c.cfg.Role != Clerk || c.cfg.ClientIndex != nil || *m.ClientIndex > MaxClientIndex {
		return
	}
	if index := int(*m.ClientIndex); index != c.index {
		c.say(slog.LevelInfo, fmt.Sprintf("client index %d, before it %d", index, c.index), nil)
		c.index = index
	}
}
