package generate

import (
	"fmt"
	"hash/fnv"
	"log/slog"
	"time"

	"github.com/slicer-project/slicer/assigner/membership"
	"github.com/slicer-project/slicer/assignment"
)

// Now is one moment on two clocks.
type Now struct {
	// Mono never jumps: all waiting is measured on it.
	Mono time.Duration
	// Wall numbers generations.
	Wall time.Time
}

// Since compares the two clocks: a wall clock that has gained more than
// assignment.MaxAhead on the monotonic one since start is not believed. Then jumped is
// by how much, and wall is what it would show had it not.
func (n Now) Since(start Now) (wall time.Time, jumped time.Duration) {
	passed := n.Mono - start.Mono
	gained := n.Wall.Sub(start.Wall)
	if gained <= assignment.MaxAhead+passed {
		return n.Wall, 0
	}
	return start.Wall.Add(passed), gained - passed
}

// env is what the parts of a Core share: whose they are, the time, and what is put out.
type env struct {
	cfg     Config
	name    string        // the job's
	now     Now           // its wall clock is one to be believed
	jumped  time.Duration // by how much the assigner's is ahead of that, 0 if it is believed
	alarm   string        // a clock or generation is too far ahead
	alarmAt time.Duration // when it is raised again
	outputs Outputs
}

func (e *env) tick(now Now) {
	e.now.Wall, e.jumped = now.Since(e.cfg.Start)
	e.now.Mono = max(e.now.Mono, now.Mono)
}

func (e *env) say(level slog.Level, message string, attrs ...any) {
	e.outputs.Logs = append(e.outputs.Logs, Log{level, message, attrs})
}

func (e *env) sayOf(level slog.Level, message string, m membership.Event) {
	e.say(level, message, "task", m.Task, "incarnation", m.Incarnation, "reason", m.Reason)
}

// backoff is how long to wait after n failures in a row: doubling from first to
// most, spread by up to a half so that assigners do not move in step.
func (e *env) backoff(n int, first, most time.Duration) time.Duration {
	d := min(first<<min(n, 20), most)
	h := fnv.New32a()
	fmt.Fprint(h, e.cfg.ID, e.name, n)
	return d/2 + time.Duration(h.Sum32()%1000)*d/2000
}

// watchClock sets off the alarm when the wall clock and the stored generation are
// more than a day apart, or that clock has jumped ahead: a clock is wrong, and people
// are to set it right. Rounds are held all the same, lest the job stand still: what is
// out of bounds numbers no generation, so the next one follows the stored one, and an
// assigner with a right clock can go on from there. The alarm is logged once and
// counted once an interval.
func (e *env) watchClock(stored assignment.Generation, interval time.Duration) {
	_, err := assignment.NextGeneration(stored, 0, e.now.Wall)
	cause, why := "", ""
	switch {
	case e.jumped > 0:
		cause, why = "clock", fmt.Sprintf("the clock has jumped ahead by %s since this assigner started: generations are numbered without that; if it is right, restart the assigner",
			e.jumped.Round(time.Second))
	case err != nil:
		cause, why = "stored", err.Error()
	default:
		e.alarm, e.alarmAt = "", 0
		return
	}
	if e.alarm == "" {
		e.say(levelError, "clock out of bounds", "reason", why)
	}
	e.alarm = why
	if e.now.Mono >= e.alarmAt {
		e.outputs.Ahead = append(e.outputs.Ahead, cause)
		e.alarmAt = e.now.Mono + interval
	}
}
