package protocol

import (
	"log/slog"
	"time"
)

// desertedAt is when Backup Distributors are to be used unless something
// happens before; zero if not for now.
func (c *Core) desertedAt() time.Time {
	d := &c.dist
	after := func(t time.Duration) time.Time { return c.lost.Add(time.Duration(float64(t) * c.patience)) }
	switch {
	case len(d.addrs) == 0:
		return c.lost
	case d.phase == serving || d.verdict != nil:
		// A verdict comes from a control plane that is well.
		return time.Time{}
	case d.movedAway && c.held != nil:
		// So does the word that there are too many just now: what is held will do.
		return time.Time{}
	case !c.ever && d.fails >= len(d.addrs):
		return c.lost
	case !c.ever:
		return after(startPatience)
	case d.fails >= 2*len(d.addrs):
		return after(lostPatience)
	}
	return after(lostLimit)
}

// settle decides whether Backup Distributors are wanted, and another Distributor.
func (c *Core) settle(now time.Time) {
	c.look(now)
	d := &c.dist
	if !c.disconnected {
		if t := c.desertedAt(); !t.IsZero() && !now.Before(t) {
			c.disconnected = true
			if len(c.back.addrs) > 0 {
				c.back.wait(now, 0)
				c.Tick(now)
			}
			c.do(Action{Do: Publish})
			if len(d.addrs) > 0 {
				c.say(slog.LevelWarn, "no distributor serves", d.reason())
			}
		}
		return
	}
	if d.phase == serving && (d.sent || now.Sub(d.since) >= settleTime) {
		c.disconnected = false
		if c.back.link != 0 {
			c.do(Action{Do: Cut, Link: c.back.link})
		}
		c.back.stop()
		c.do(Action{Do: Publish})
		c.say(slog.LevelInfo, "a distributor serves again", nil)
	}
}
