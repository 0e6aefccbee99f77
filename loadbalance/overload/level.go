package overload

import (
	"strconv"
	"strings"
	"time"
)

const (
	// LeastPause and MostPause bound Level.Pause.
	LeastPause = 20 * time.Millisecond
	MostPause  = 10 * time.Second
	// A client believes a level for the time of two trial requests, but so long at least
	// and at most.
	leastBelief = time.Second
	mostBelief  = 2 * MostPause
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
	level Level
	until time.Duration // it is believed
	next  time.Duration // when a trial request is due
	held  [CriticalPlus + 1]int
}

// Hear takes what an answer says. An answer that says nothing is of a task with room.
func (t *TaskLevel) Hear(now time.Duration, l Level) {
	l = l.bounded()
	if l.Below == 0 {
		*t = TaskLevel{}
		return
	}
	if next := now + spread(now, l.Pause); t.level.Below == 0 || next < t.next {
		t.next = next
	}
	t.level = l
	t.until = now + min(max(2*l.Pause, leastBelief), mostBelief)
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
	return p < t.level.Below && now < t.until
}

// Send decides whether a request is sent to the task. If it is a trial request, it stands
// for at least one, itself and those that were not sent since the last; otherwise for none.
func (t *TaskLevel) Send(now time.Duration, p Priority) (standsFor int, ok bool) {
	if !t.Holds(now, p) {
		return 0, true
	}
	held := &t.held[p.Criticality()]
	*held = min(*held+1, MostStandsFor)
	if now < t.next {
		return 0, false
	}
	t.next = now + spread(now, t.level.Pause)
	standsFor, *held = *held, 0
	return standsFor, true
}
