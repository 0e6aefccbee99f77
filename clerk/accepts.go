package clerk

import (
	"errors"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

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
	// levelFor is how long a task that has said a level is taken for one that says it whenever
	// it has no room: its level counts then, and not what else it refuses.
	levelFor = 10 * time.Second
)

// Watch is for an answer by which the task refuses a request (Refused): from now on Answered
// counts, until all is accepted for some seconds, or nothing of the customer asked for.
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
// Refused or not. Of the first one that is refused the priority need not be known. What the
// task has not answered, as its connection broke or its client waited no longer, is not
// counted.
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
	if a.Answered(now, !refused); a.Quiet(now) {
		delete(t.accepts, who)
		if len(t.accepts) == 0 {
			t.trustLocked()
		}
	}
}

// Refused reports whether an error is one by which the task refuses a request and does not
// say which it would refuse as well (Level): it is RESOURCE_EXHAUSTED, and
//
//   - says that the customer has used up its limit. Other owners of the key would refuse it,
//     too.
//   - or says nothing that a slicelet says, and the task has said no level for 10 s: it is a
//     server without one, or a handler's own.
//
// It is to be the task's own answer. UNAVAILABLE is none: mostly it comes from what connects
// to a task, which has refused nothing then. Nor is a message that is too large.
func (t *Throttle) Refused(err error) bool {
	full, ok := errors.AsType[Overloaded](err)
	if !ok {
		full, ok = OverloadedFromStatus(err)
	}
	if ok {
		return full.Customer != "" && t.Of(full)
	}
	s, ok := status.FromError(err)
	return ok && s.Code() == codes.ResourceExhausted && !tooLarge(s.Message()) && !t.saysLevels()
}

// tooLarge reports whether RESOURCE_EXHAUSTED is for the size of a message, in the words of
// gRPC for Go, for C++ and what is built on it, and for Java.
func tooLarge(message string) bool {
	return strings.Contains(message, "larger than max") || strings.Contains(message, "exceeds maximum size")
}

// saysLevels reports whether the task has said a level lately.
func (t *Throttle) saysLevels() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.levelAt > 0 && time.Since(t.all.epoch)-t.levelAt < levelFor
}

// Of reports whether a refusal is of this task.
func (t *Throttle) Of(o Overloaded) bool {
	return (o.Job == t.job || o.Job == "") && (o.Task == t.task || o.Task == "")
}
