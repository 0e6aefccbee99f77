package protocol

import (
	"errors"
	"log/slog"
	"slices"
	"time"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// A Distributor that the job's preferred assigner does not hear serves assignments as any
// other, but what a slicelet reports to it gets nowhere, and after a while the slicelet
// would count as dead. So the slicelet looks whether another Distributor is heard, as an
// observer, which is not counted, and only then leaves the one it has. While none is
// heard it stays, and looks again and again.

const (
	// lookWithin spreads the slicelets that begin to look for another Distributor, since
	// all of a Distributor learn at once that it is not heard.
	lookWithin = time.Second
	// answerWithin is how long a Distributor may take to say whether it is heard.
	answerWithin = 3 * time.Second
	// longestLook is the longest wait for a next look at all others. When no assigner is
	// left all slicelets look, for as long as that lasts; but when one comes back that
	// does not hear theirs they have no more than some 15 s.
	longestLook = 10 * time.Second
)

var errUnacknowledged = errors.New("the preferred assigner does not hear it either")

// look begins to look for another Distributor, or ends that.
func (c *Core) look(now time.Time) {
	d, s := &c.dist, &c.scan
	unheard := c.cfg.Role == Slicelet && d.phase == serving && d.unacknowledged
	home := d.phase == serving && d.far()
	if s.phase != off && (!unheard && !c.homing || c.homing && (unheard || !home)) {
		c.stopLooking()
	}
	switch {
	case s.phase != off:
	case unheard:
		// The others in order, or if there is none the same, and at once again: it may be
		// the name of several, and lead to the one that is known.
		addrs := slices.Concat(d.addrs[d.next+1:], d.addrs[:d.next])
		if len(addrs) == 0 {
			addrs = slices.Repeat(d.addrs, 2)
		}
		*s, c.homing = connector{source: Distributor, addrs: addrs, longest: longestLook}, false
		s.wait(now, time.Duration(c.rng.Int64N(int64(lookWithin))))
	case home:
		*s, c.homing = connector{source: Distributor, addrs: d.addrs[:d.near], longest: longestHome}, true
		s.wait(now, d.homePause(c.rng))
	}
}

func (c *Core) stopLooking() {
	if c.scan.link != 0 {
		c.do(Action{Do: Cut, Link: c.scan.link})
	}
	c.scan.stop()
}

// ask asks a Distributor, which is connected now, for the job's status.
func (c *Core) ask(now time.Time) {
	s := &c.scan
	s.phase, s.until = open, now.Add(answerWithin)
	h := c.hello()
	h.GetHello().Role, h.GetHello().Task, h.GetHello().Report = slicerv1.Role_ROLE_OBSERVER, nil, nil
	c.do(Action{Do: Send, Link: s.link, Message: h})
}

// answered takes a status of the Distributor that was asked, nil for another message.
// One that does not say whether it is heard is older, and believed to be.
func (c *Core) answered(m *slicerv1.Status, now time.Time) {
	s, d := &c.scan, &c.dist
	switch {
	case m == nil:
	case m.GetUnacknowledged() || !m.GetTakesReports():
		c.fail(s, errUnacknowledged, now)
	default:
		text := "going to a distributor that the preferred assigner hears: "
		if c.homing {
			text = "going back to a distributor of this zone: "
		}
		c.say(slog.LevelInfo, text+s.addr(), nil)
		c.do(Action{Do: Cut, Link: d.link})
		if d.stable(now) {
			d.fails = 0
		}
		d.next = slices.Index(d.addrs, s.addr())
		// On the same connection: its name may be that of others, too.
		c.dial(d, s.link, now)
		c.stopLooking()
		c.lost = now
		c.do(Action{Do: Publish})
	}
}
