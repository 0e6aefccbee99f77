package overload

import (
	"math"
	"strconv"
	"strings"
	"time"
)

const (
	// LeastPause and MostPause bound Level.Pause.
	LeastPause = 20 * time.Millisecond
	MostPause  = 30 * time.Second
	// A client believes a level for the time of two trial requests, but so long at least
	// and at most. (At ten times what a task can do 2,000 clients that no control plane tells
	// are refused .64 requests for each that is served, as with twenty seconds, .62; half the
	// longest pause would be 1.04.)
	leastBelief = time.Second
	mostBelief  = alonePause
	// alonePause is the longest pause of a client that no control plane tells when there is
	// room again.
	alonePause = 10 * time.Second
	// What the control plane tells is believed for toldBelief: it repeats it each five seconds. What it
	// knows is at most toldAfter old.
	toldBelief = 10 * time.Second
	toldAfter  = 3 * time.Second
	// MostStandsFor is the most requests that a trial request may stand for.
	MostStandsFor = 10_000
)

// Level is what a task tells its clients in its answers while it has no room for all that
// is asked of it. The zero value says that it has. (Levels that clients hear are DAGOR's,
// section 4.2.4; that they send trial requests, which say how many others they stand for,
// keeps what the task knows of the demand true.)
type Level struct {
	// Below is the priority below which the task refuses; 0 is none.
	Below Priority
	// Pause is the time between two trial requests of a client: LeastPause to MostPause, in
	// whole milliseconds.
	Pause time.Duration
}

// String is the priority and the milliseconds with a semicolon between, as a level travels
// in headers.
func (l Level) String() string {
	return strconv.Itoa(int(l.Below)) + ";" + strconv.FormatInt(l.Pause.Milliseconds(), 10)
}

// ParseLevel reads what String prints. What is out of range becomes the next that is not;
// anything else is no level.
func ParseLevel(s string) Level {
	below, pause, ok := strings.Cut(s, ";")
	b, err := strconv.ParseUint(below, 10, 16)
	ms, errPause := strconv.ParseUint(pause, 10, 32)
	if !ok || err != nil || errPause != nil {
		return Level{}
	}
	return NewLevel(b, ms)
}

// NewLevel is that of two numbers from the network: what is out of range becomes
// the next that is not.
func NewLevel(below, pauseMS uint64) Level {
	return Level{Priority(min(below, Priorities-1)), time.Duration(min(pauseMS, uint64(MostPause.Milliseconds()))) * time.Millisecond}.bounded()
}

// coarse is by how much a level may be above the one that the control plane tells.
const coarse = 8

// Coarse is a level for the control plane to tell, which sends each change to all clients,
// where before is the one that it tells: not above l, and the same as before if it is near.
func (l Level) Coarse(before Level) Level {
	l = l.bounded()
	if before.Below > l.Below || before.Below+coarse <= l.Below {
		before.Below = l.Below - min(l.Below, coarse/2)
	}
	if before.Below == 0 {
		return Level{}
	}
	if before.Pause < l.Pause || before.Pause > 4*l.Pause {
		before.Pause = 2 * l.Pause
	}
	return before.bounded()
}

// bounded is a level in range.
func (l Level) bounded() Level {
	if l.Below == 0 {
		return Level{}
	}
	return Level{min(l.Below, Priorities-1), min(max(l.Pause, LeastPause), MostPause)}
}

// ParseStandsFor reads what a trial request says of itself in a header, 0 for other requests
// and for what is no number. It may be above MostStandsFor.
func ParseStandsFor(s string) int {
	if s == "" { // of nearly all requests; an error of strconv's would allocate
		return 0
	}
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil {
		return 0
	}
	return int(n)
}

// TaskLevel is what a client knows of the level of a task. It holds back what the task
// would refuse, but for trial requests, which show that there is room again, and of which
// each says for how many it stands. Times are since any moment, on a clock that does not go
// backwards. It is not safe for concurrent use. The zero value knows of none.
type TaskLevel struct {
	heard believed      // in the task's answers, which are newer than what is told
	fresh time.Duration // until when what was heard last counts more than what is told
	told  believed      // by the control plane
	next  time.Duration // when a trial request is due
	held  [CriticalPlus + 1]held
}

// believed is a level and until when it is believed.
type believed struct {
	Level
	until time.Duration
}

// now is the level that is believed, the zero value if none is.
func (t *TaskLevel) now(now time.Duration) Level {
	switch {
	case now < t.heard.until:
		return t.heard.Level
	case now < t.told.until:
		return t.told.Level
	}
	return Level{}
}

// Below is the priority below which requests may be held back until something else is heard
// or told, 0 if none may.
func (t *TaskLevel) Below() Priority { return max(t.heard.Below, t.told.Below) }

// Hear takes what an answer says. An answer that says nothing is of a task with room.
func (t *TaskLevel) Hear(now time.Duration, l Level) {
	l = l.bounded()
	if l.Below == 0 {
		*t = TaskLevel{fresh: now + toldAfter}
		return
	}
	known := t.now(now).Below > 0
	t.heard, t.fresh = believed{l, now + min(max(2*l.Pause, leastBelief), mostBelief)}, now+toldAfter
	t.plan(now, l, known)
}

// Tell takes what the control plane says of the task, which counts where no answer has said
// anything for some time: for a client that asks rarely or has just started. It is to be
// repeated within 10 s. The zero value says that the task has room, but for what was heard
// just now.
func (t *TaskLevel) Tell(now time.Duration, l Level) {
	l = l.bounded()
	if l.Below == 0 {
		t.told = believed{}
		if now >= t.fresh {
			t.heard = believed{}
		}
		return
	}
	if t.heard.Below == 0 && now < t.fresh { // it has said since that it has room
		return
	}
	known := t.now(now).Below > 0
	t.told = believed{l, now + toldBelief}
	t.plan(now, l, known)
}

// plan sets when a trial request is due by a new level, unless that is known and not too late.
func (t *TaskLevel) plan(now time.Duration, l Level, known bool) {
	if pause := t.pause(now, l); !known || t.next > now+pause*3/2 {
		t.next = now + spread(now, pause)
	}
}

// pause is the time between two trial requests at a level.
func (t *TaskLevel) pause(now time.Duration, l Level) time.Duration {
	if now < t.told.until {
		return l.Pause
	}
	return min(l.Pause, alonePause)
}

// spread is half of d to one and a half of it, or else clients that hear a level in the same
// second would send their trial requests together. The digits of the time do for chance.
func spread(now, d time.Duration) time.Duration {
	const golden = 0x9e3779b97f4a7c15
	x := uint64(now) * golden
	return d/2 + time.Duration(float64(x>>11)/(1<<53)*float64(d))
}

// Holds reports whether the task would refuse a request, as far as is known.
func (t *TaskLevel) Holds(now time.Duration, p Priority) bool {
	return p < t.now(now).Below
}

// Send decides whether a request is sent to the task. If it is a trial request, it stands
// for at least one, itself and those that were not sent since the last; otherwise for none.
func (t *TaskLevel) Send(now time.Duration, p Priority) (standsFor int, ok bool) {
	if !t.Holds(now, p) {
		return 0, true
	}
	held := &t.held[p.Criticality()]
	held.add(now)
	pause := t.pause(now, t.now(now))
	due := now >= t.next
	if !due && (pause <= heldOver || !held.fell()) {
		return 0, false
	}
	if due {
		t.next = now + spread(now, pause)
	}
	return held.take(now, due), true
}

// held is how many requests of a criticality were not sent.
type held struct {
	n      int           // since the last trial request
	since  time.Duration // when the first of them was
	recent float64       // decayed over heldOver
	at     time.Duration // when recent was that
	before float64       // what recent was by the last trial request, 0 is not known
}

const (
	// heldFor is for how long what was held back counts as it is. A trial request that tells
	// of what was asked for half a minute ago, as if it were now, keeps the level up: of more
	// than heldFor as much counts as was asked for over the last heldOver. So it does if a trial
	// request is sent because less is held back.
	heldFor  = 3 * time.Second
	heldOver = time.Second
	// fellBy is by what share less must be held back, and not by chance, for a trial request before
	// one is due, if the pause is longer than heldOver: a flood may be over, and a client to which a
	// task has told a long pause would hear of that seconds after the task knows. It costs the task one
	// request for each time that what a client asks for is halved.
	fellBy = .5
)

func (h *held) add(now time.Duration) {
	if h.n == 0 {
		h.since = now
	}
	h.recent = h.recent*math.Exp(-(now-h.at).Seconds()/heldOver.Seconds()) + 1
	h.at, h.n = now, min(h.n+1, MostStandsFor)
}

// fell reports whether far less was held back lately, before the newest, than before the last
// trial request.
func (h *held) fell() bool {
	chance := burstSigma * math.Sqrt(h.before/2) // of such a mean
	return h.recent-1 < h.before-max(fellBy*h.before, chance)
}

// take returns for how many a trial request stands, itself included. due: it is not sent because
// less is held back.
func (h *held) take(now time.Duration, due bool) int {
	n, d := h.n, now-h.since
	if d > heldFor || !due {
		n = min(n, int(h.recent*d.Seconds()/heldOver.Seconds()+.5))
	}
	switch {
	case !due:
		h.before = min(h.before, h.recent)
	case d >= heldOver:
		h.before = float64(h.n) * heldOver.Seconds() / d.Seconds()
	default:
		h.before = 0
	}
	h.n = 0
	return max(n, 1)
}
