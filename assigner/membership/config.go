package membership

import (
	"fmt"
	"time"
)

// Config is how a Table decides. Zero values take the defaults.
type Config struct {
	// HeartbeatTimeout is the job's: how long reports may stop. Required.
	HeartbeatTimeout time.Duration
	// Settle is how long after the first Distributor attached the others are
	// waited for. Default 2 s.
	Settle time.Duration
	// SnapshotWait bounds the wait for a Distributor's complete snapshot, so that
	// one which never sends it does not keep the dead alive for ever. Default 30 s
	// or twice the heartbeat timeout, whichever is longer.
	SnapshotWait time.Duration
	// Vouch is the age up to which a stream that is still there proves that its
	// Distributor was alive, though nothing was heard: the transport's keepalive
	// would have ended it. Default 20 s.
	Vouch time.Duration
	// HoleAge is how long the index of a task that has left stays its own.
	// Default 1 min.
	HoleAge time.Duration
	Freeze  Freeze
	Damping Damping
}

// Freeze says when so many tasks vanish that the assigner suspects itself.
type Freeze struct {
	// Share of the job's tasks that must vanish, above 0; 1 or more never
	// freezes. Default .5.
	Share float64
	// MinTasks is the smallest job that freezes. Default 4.
	MinTasks int
	// Window is the time within which they vanish. Default twice the heartbeat timeout.
	Window time.Duration
	// For is how long a freeze lasts unless the tasks return. Default 30 s.
	For time.Duration
}

func (c Config) withDefaults() Config {
	set := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	set(&c.Settle, 2*time.Second)
	set(&c.SnapshotWait, max(30*time.Second, 2*c.HeartbeatTimeout))
	set(&c.Vouch, 20*time.Second)
	set(&c.HoleAge, time.Minute)
	set(&c.Freeze.Window, 2*c.HeartbeatTimeout)
	set(&c.Freeze.For, 30*time.Second)
	if c.Freeze.Share == 0 {
		c.Freeze.Share = .5
	}
	if c.Freeze.MinTasks == 0 {
		c.Freeze.MinTasks = 4
	}
	c.Damping = c.Damping.withDefaults()
	return c
}

// Validate names the first field that is not allowed.
func (f Freeze) Validate() error {
	switch {
	case !(f.Share >= 0):
		return fmt.Errorf("freeze share %v is not allowed: want a share of the tasks, 0 for the default", f.Share)
	case f.MinTasks < 0:
		return fmt.Errorf("freeze min tasks %d is not allowed: want 0 for the default, or more", f.MinTasks)
	case f.Window < 0 || f.For < 0:
		return fmt.Errorf("freeze window %s and duration %s: want 0 for the default, or more", f.Window, f.For)
	}
	return nil
}

// probation is how long an incarnation that was dead or superseded has to go on
// reporting before it counts again.
func (c *Config) probation() time.Duration { return c.HeartbeatTimeout / 5 }

// scanEvery is how often silence is looked at.
func (c *Config) scanEvery() time.Duration {
	return min(max(c.HeartbeatTimeout/20, 20*time.Millisecond), 250*time.Millisecond)
}

// standstill is how long the table may go without hearing of the time before it
// takes itself to have been stopped, and how long a Distributor, which has
// something to say at least each half second, may say nothing before the
// table takes that to have been.
func (c *Config) standstill() time.Duration { return max(c.HeartbeatTimeout/2, time.Second) }
