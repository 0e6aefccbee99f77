package assigner

import (
	"time"

	"github.com/slicer-project/slicer/assignment/access"
)

// creations bounds how fast identities create jobs, whatever they delete meanwhile: a deleted
// job leaves its last numbers and orders in the store. An identity that may have n jobs creates
// 2n at once, and n an hour from then on. It is not safe for concurrent use.
type creations struct {
	by map[access.Identity]spent
}

// spent is how many creations count against an identity at a time.
type spent struct {
	n  float64
	at time.Duration
}

const (
	creationBurst = 2 // times as many as it may have
	// maxCreators is for how many identities creations are counted before those are looked
	// for against which none counts any more.
	maxCreators = 1000
)

func (s spent) now(now time.Duration, most int) float64 {
	return max(0, s.n-(now-s.at).Hours()*float64(most))
}

// wait is until when an identity that may have most jobs can create none, 0 if it can.
func (c *creations) wait(now time.Duration, id access.Identity, most int) time.Duration {
	over := c.by[id].now(now, most) + 1 - float64(creationBurst*most)
	if over <= 0 {
		return 0
	}
	return time.Duration(over / float64(most) * float64(time.Hour))
}

// count counts one.
func (c *creations) count(now time.Duration, id access.Identity, most int) {
	if c.by == nil {
		c.by = make(map[access.Identity]spent)
	}
	if len(c.by) >= maxCreators {
		for other, s := range c.by {
			if s.now(now, 1) == 0 { // by the slowest rate that there can be
				delete(c.by, other)
			}
		}
	}
	c.by[id] = spent{c.by[id].now(now, most) + 1, now}
}
