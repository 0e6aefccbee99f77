package membership

import (
	"time"

	"github.com/slicer-project/slicer/assignment"
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
	// Regroup is the least time that a task has to be heard of by way of another
	// Distributor, when the one that carried it is lost, or when those that have spoken
	// to a new table do not carry it: its own may have lost this assigner, and it needs
	// some seconds to notice, and to find one that has not. It has as long from when
	// there is such a one. Default 10 s.
	Regroup time.Duration
	// HoleAge is how long the index of a task that has left stays its own, and its name that
	// of its identity. Default 1 min.
	HoleAge time.Duration
	// MaxTasks is how many tasks of the job may live at once. Default 10,000.
	MaxTasks int
	// Freeze and Damping are the job's.
	Freeze  assignment.FreezeConfig
	Damping assignment.DampingConfig
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
	set(&c.Regroup, 10*time.Second)
	set(&c.HoleAge, time.Minute)
	job := assignment.JobConfig{HeartbeatTimeout: c.HeartbeatTimeout, MaxTasks: c.MaxTasks, Freeze: c.Freeze, Damping: c.Damping}.WithDefaults()
	c.MaxTasks, c.Freeze, c.Damping = job.MaxTasks, job.Freeze, job.Damping
	return c
}

// probation is how long an incarnation that was dead or superseded has to go on
// reporting before it counts again.
func (c *Config) probation() time.Duration { return c.HeartbeatTimeout / 5 }

// regroupsFor is how much longer than otherwise a task may be silent that has to find
// another Distributor.
func (c *Config) regroupsFor() time.Duration { return max(0, c.Regroup-c.HeartbeatTimeout) }

// scanEvery is how often silence is looked at.
func (c *Config) scanEvery() time.Duration {
	return min(max(c.HeartbeatTimeout/20, 20*time.Millisecond), 250*time.Millisecond)
}

// standstill is how long the table may go without hearing of the time before it
// takes itself to have been stopped, and how long a Distributor, which has
// something to say at least each half second, and each eighth of a heartbeat timeout
// below 4 s, may say nothing before the table takes that to have been.
func (c *Config) standstill() time.Duration { return c.HeartbeatTimeout / 2 }
