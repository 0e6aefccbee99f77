package autosharding

import (
	"time"

	"github.com/slicer-project/slicer/assignment"
)

// answerWithin is how long a client may take to read a message, and then to
// acknowledge what it has read.
//
// It is patient: a client may be slow because many are sent much at once, and one
// that is let go comes back and is sent all of it again.
const answerWithin = 2 * time.Minute

// progress is one client's place in its job's generations. At most one assignment
// is on its way at a time. Pure.
type progress struct {
	held    assignment.Generation // the newest that the client says that it uses
	sent    assignment.Generation // the newest that was ever begun on the stream
	flight  assignment.Generation // begun and not acknowledged yet, 0 if none
	sending bool                  // not all of it has been sent
	moved   time.Time             // when the client last did its part
}

// wants reports whether an assignment of that generation is to be sent now.
func (p *progress) wants(newest assignment.Generation) bool {
	return p.flight == 0 && !p.sending && newest > p.held && newest > p.sent
}

func (p *progress) begin(now time.Time, g assignment.Generation) {
	p.sent, p.flight, p.sending, p.moved = g, g, true, now
}

// took notes that the client's connection has taken a message.
func (p *progress) took(now time.Time) { p.moved = now }

func (p *progress) finished(now time.Time) { p.sending, p.moved = false, now }

// answered takes an acknowledgement or a refusal, and reports whether it is one of what
// was sent. It may come before the sender has noticed that it has finished.
func (p *progress) answered(g assignment.Generation, accepted bool) bool {
	if g == 0 || g != p.flight {
		return false
	}
	p.flight = 0
	if accepted {
		p.held = g
	}
	return true
}

// deadline is when the client is given up, zero if nothing is expected of it.
func (p *progress) deadline() time.Time {
	if p.flight == 0 && !p.sending {
		return time.Time{}
	}
	return p.moved.Add(answerWithin)
}
