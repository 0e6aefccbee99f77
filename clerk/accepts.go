package clerk

import (
	"errors"
	"time"

	"github.com/slicer-project/slicer/loadbalance/overload"
)

// payer is whose requests a task refuses: what is refused of one says nothing of other
// customers, and nothing of what is more critical.
type payer struct {
	customer string
	of       overload.Criticality
}

const (
	// maxPayers bounds those of one task.
	maxPayers = 64
	// watchFor is how long the answers of a task are counted after the last refusal.
	watchFor = 30 * time.Second
)

// Watch is for an answer by which the task refuses a request because its customer has used up
// its limit: from now on Answered counts, until all is accepted for some seconds, or nothing of
// the customer asked for.
func (t *Throttle) Watch() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refusedAt = time.Since(t.all.epoch)
	if !t.gone && !t.refuses.Load() {
		t.accepts = make(map[payer]*overload.Accepts)
		t.refuses.Store(true)
		t.all.some.Add(1)
	}
}

// Watched reports whether there is something for Answered to count.
func (t *Throttle) Watched() bool { return t.refuses.Load() }

// trustLocked ends what Watch has begun.
func (t *Throttle) trustLocked() {
	if t.refuses.Load() {
		t.accepts = nil
		t.refuses.Store(false)
		t.all.some.Add(-1)
	}
}

// Answered counts a request of a customer, empty for none, that the task has answered, and
// refused as for Watch. Of the first one that is refused the priority need not be known.
func (t *Throttle) Answered(p overload.Priority, customer string, refused bool) {
	if refused {
		t.Watch()
	}
	if !t.refuses.Load() || p >= overload.Priorities {
		return
	}
	who := payer{customer, p.Criticality()}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.accepts == nil {
		return
	}
	now := time.Since(t.all.epoch)
	if now-t.refusedAt > watchFor {
		t.trustLocked()
		return
	}
	a := t.accepts[who]
	if a == nil {
		if !refused || len(t.accepts) >= maxPayers {
			return
		}
		a = new(overload.Accepts)
		t.accepts[who] = a
	}
	if a.Count(now, !refused); a.Quiet(now) {
		delete(t.accepts, who)
		if len(t.accepts) == 0 {
			t.trustLocked()
		}
	}
}

// holdsLocked reports whether a request is held back since such are refused. Of those of one
// criticality the last cohorts go first, so that of one user's all or none are sent.
func (t *Throttle) holdsLocked(now time.Duration, p overload.Priority, customer string) bool {
	a := t.accepts[payer{customer, p.Criticality()}]
	if a == nil || (float64(p%overload.Cohorts)+.5)/overload.Cohorts >= a.Hold(now) {
		return false
	}
	a.Count(now, false)
	return true
}

// Refused reports whether an error says that the task has refused a request because its
// customer has used up its limit, as for Watch. Other owners of the key would, too, so there is
// no choice to be made among them.
func (t *Throttle) Refused(err error) bool {
	full, ok := errors.AsType[Overloaded](err)
	if !ok {
		full, ok = OverloadedFromStatus(err)
	}
	return ok && full.Customer != "" && t.said(full)
}

// said reports whether a refusal is of this task.
func (t *Throttle) said(o Overloaded) bool {
	return (o.Job == t.job || o.Job == "") && (o.Task == t.task || o.Task == "")
}
