package protocol

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
)

// Waiting times between attempts.
const (
	firstBackoff = 250 * time.Millisecond
	maxBackoff   = 5 * time.Second
	// nextWithin spreads the subscribers that go on to a server not tried yet.
	nextWithin = 50 * time.Millisecond
	// scatterWithin spreads the subscribers that lost a server that had served well,
	// since they all lost it at the same moment.
	scatterWithin = 300 * time.Millisecond
	// stableAfter is how long a server has to have served for its failures
	// before to be forgotten.
	stableAfter = 5 * time.Second
)

type phase uint8

const (
	off     phase = iota
	waiting       // for the next attempt
	dialing       // the connection is being made
	open          // hello is sent
	serving       // the server has shown that it knows the job
)

// connector is one way to an assignment: the Distributors, or the Backup
// Distributors, one of them at a time.
type connector struct {
	source Source
	addrs  []string
	next   int // position in addrs
	near   int // how many of addrs, the first, are in the subscriber's zone
	// longest is the longest wait for a next round, maxBackoff if it is 0.
	longest time.Duration

	phase phase
	link  Link
	// until ends the phase, or the patience with a silent server; zero is never.
	until time.Time
	since time.Time // when it began to serve
	fails int       // in a row
	err   error     // why the last attempt failed; nil while serving
	// verdict: the last one did not fail, it refused us, by this of verdicts.
	verdict error
	// told is the last verdict that was logged since one served well.
	told error
	// movedAway: the last one is well, and moved this subscriber to another one.
	movedAway bool
	// cameMoved: it came to the server that serves since another one had moved it away.
	cameMoved bool

	// Of the link:
	base           *assignment.Assignment // what the server knows that we hold
	refusals       int                    // in a row
	heard          time.Time
	repeat         time.Duration // how often the server promises to be heard; 0 if it does not
	sent           bool          // it has sent an assignment
	noReports      bool          // it takes no reports
	unacknowledged bool          // the job's preferred assigner does not hear it

	refusing bool // an assignment was refused since the last that was not
}

var (
	errNoAssignment = fmt.Errorf("%w: it knows the job, but has no assignment yet", ErrUnavailable)
	errNoAnswer     = fmt.Errorf("%w: no answer yet", ErrUnavailable)
)

func (l *connector) addr() string { return l.addrs[l.next] }

// reason is why the connector does not serve.
func (l *connector) reason() error {
	switch {
	case l.phase == serving:
		return nil
	case l.phase == open && !l.heard.IsZero():
		return &serverError{l.source, l.addr(), errNoAssignment}
	case l.err != nil:
		return l.err
	}
	return &serverError{l.source, l.addr(), errNoAnswer}
}

func (l *connector) wait(now time.Time, d time.Duration) {
	l.phase, l.link, l.until = waiting, 0, now.Add(d)
}

func (l *connector) stop() {
	l.phase, l.link, l.until, l.fails = off, 0, time.Time{}, 0
	l.base, l.told = nil, nil
}

func (l *connector) dial(id Link, now time.Time) {
	l.phase, l.link, l.until = dialing, id, now.Add(l.dialTimeout())
	l.refusals, l.heard, l.repeat, l.sent, l.noReports, l.unacknowledged = 0, time.Time{}, 0, false, false, false
}

// dialTimeout is longer when every server has failed, again and again: they may be at
// work on the handshakes of very many, and one that is given up begins anew.
func (l *connector) dialTimeout() time.Duration {
	return dialTimeout << min(l.fails/(2*len(l.addrs)), 2)
}

// listen puts off the end of our patience: something was heard, and more must
// follow at once if it was a piece of something.
func (l *connector) listen(now time.Time, piece bool) {
	l.heard, l.until = now, time.Time{}
	switch {
	case l.repeat > 0:
		l.until = now.Add(silentFor * l.repeat)
	case piece:
		l.until = now.Add(firstWordTimeout)
	}
}

func (l *connector) serve(now time.Time) {
	if l.phase == open {
		l.cameMoved = l.movedAway
		l.phase, l.since, l.err, l.verdict, l.movedAway = serving, now, nil, nil, false
	}
}

// stable reports whether the server has served well.
func (l *connector) stable(now time.Time) bool {
	return l.phase == serving && now.Sub(l.since) >= stableAfter
}

// fail sets up the next attempt and reports whether the server had served well.
func (l *connector) fail(err error, now time.Time, rng *rand.Rand) (stable bool) {
	stable = l.stable(now)
	if stable {
		l.told = nil
	}
	l.err = err
	l.verdict = nil
	for _, v := range verdicts {
		if errors.Is(err, v) {
			l.verdict = v
		}
	}
	l.fails++
	var back *movedAwayError
	l.movedAway = errors.As(err, &back)
	delay := time.Duration(0)
	switch {
	case l.movedAway && l.fails%len(l.addrs) == 0:
		delay = back.wait(rng)
	case stable:
		l.fails = 0
		delay = time.Duration(rng.Int64N(int64(scatterWithin)))
	case l.verdict == nil && l.fails%len(l.addrs) != 0:
		delay = time.Duration(rng.Int64N(int64(nextWithin)))
	default:
		rounds := (l.fails + len(l.addrs) - 1) / len(l.addrs)
		if l.verdict != nil {
			rounds = l.fails
		}
		most := min(firstBackoff<<min(rounds-1, 10), cmp.Or(l.longest, maxBackoff))
		delay = most/2 + time.Duration(rng.Int64N(int64(most/2)))
	}
	l.base = nil
	switch {
	case stable && l.far():
		l.next = 0 // those of the zone may be there again
	case stable && l.near > 1:
		l.next = (l.next + 1) % l.near
	default:
		l.next = (l.next + 1) % len(l.addrs)
	}
	l.wait(now, delay)
	return stable
}

// serverError is what is wrong with a server.
type serverError struct {
	source Source
	addr   string
	err    error
}

func (e *serverError) Error() string { return fmt.Sprintf("%s %s: %v", e.source, e.addr, e.err) }
func (e *serverError) Unwrap() error { return e.err }

// errRejected is matched when the server finds fault with what we say.
var errRejected = errors.New("rejected")

// verdicts are why a server that is well does not serve us.
var verdicts = []error{ErrUnknownJob, ErrTaskNameTaken, ErrNotAllowed, errRejected}

// Explain turns the end of a stream into an error that matches one of those above.
func Explain(err error) error {
	s := status.Convert(err)
	if err := movedAway(s); err != nil {
		return err
	}
	kind := ErrUnavailable
	switch s.Code() {
	case codes.NotFound:
		kind = ErrUnknownJob
	case codes.AlreadyExists:
		kind = ErrTaskNameTaken
	case codes.PermissionDenied:
		kind = ErrNotAllowed
	case codes.InvalidArgument, codes.FailedPrecondition:
		kind = errRejected
	case codes.OK:
		return fmt.Errorf("%w: it ended the stream", kind)
	}
	text := assignment.Clip(s.Message(), maxRefusal)
	switch {
	case strings.Contains(text, "error reading server preface: EOF"):
		text += " (does it want TLS?)"
	case strings.Contains(text, "first record does not look like a TLS handshake"):
		text += " (it does not speak TLS)"
	case strings.Contains(text, "looked like an HTTP/1.1 header"):
		text += " (it speaks HTTP/1.1, as the port of --http does)"
	}
	return fmt.Errorf("%w: %s", kind, text)
}
