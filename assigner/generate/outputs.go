package generate

import (
	"log/slog"
	"time"

	"github.com/slicer-project/slicer/assigner/membership"
)

const (
	levelDebug = slog.LevelDebug
	levelInfo  = slog.LevelInfo
	levelWarn  = slog.LevelWarn
	levelError = slog.LevelError
)

// Outputs are what a Core has to tell besides its actions: log lines, events and counts.
type Outputs struct {
	Logs []Log
	// Members are what happened to tasks.
	Members []membership.Event
	// Refusals are events of kind Refused, to be told to their Distributors.
	Refusals []membership.Event
	Rounds   []Round
	// Conflicts counts writes that came after one by another assigner.
	Conflicts int
	// In consistent mode: how often the job lease was held by another, how often
	// it was lost, and how long changes took that have been completed.
	Held, Deposed int
	Changes       []time.Duration
	// Ahead says whose generation, "stored", "reported" or "clock", is more than a day
	// ahead: once a refusal of a report, otherwise once an interval.
	Ahead []string
}

// Log is a line for the log.
type Log struct {
	Level   slog.Level
	Message string
	Attrs   []any
}

// Outputs returns what has come up since the last call.
func (c *Core) Outputs() Outputs {
	e := c.outputs
	c.outputs = Outputs{}
	return e
}

// listen takes in what has happened to the members.
func (c *Core) listen() {
	if c.members.table == nil {
		return
	}
	calm := false // something has happened that is to be acted on at once
	for _, e := range c.members.table.Events() {
		if !c.lead.isPreferred() {
			continue // it is the preferred one's to say and to decide
		}
		c.outputs.Members = append(c.outputs.Members, e)
		c.overrides.noteTaskChange(e)
		c.overrides.remember(e)
		switch e.Kind {
		case membership.Refused:
			c.outputs.Refusals = append(c.outputs.Refusals, e)
			if e.Holder != "" {
				c.say(levelWarn, "task refused", "audit", "refused", "task", e.Task, "incarnation", e.Incarnation, "identity", e.Identity, "first_identity", e.Holder, "reason", e.Reason)
				break
			}
			c.sayOf(levelWarn, "task refused", e)
		case membership.Frozen:
			c.say(levelError, "job frozen", "reason", e.Reason)
		case membership.Thawed:
			c.say(levelInfo, "job thawed", "reason", e.Reason)
			c.sched.holdUntil = 0
		case membership.Dead:
			c.sayOf(levelWarn, "task "+string(e.Kind), e)
		default:
			c.sayOf(levelInfo, "task "+string(e.Kind), e)
		}
		if c.sched.flaps.take(c.now.Mono, e) {
			calm = true
			c.sched.urgent = c.sched.urgent || e.Urgent()
		}
	}
	c.sched.noteChanged(c.now.Mono, c.members.table.Version(), calm)
}
