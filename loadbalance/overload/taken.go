package overload

import (
	"math"
	"time"
)

const (
	// takenOver is how long others must take CPU time, while requests wait all along, for that to
	// count as what the process cannot do.
	takenOver = time.Second
	// longestTick is for how long a Tick counts: a process that was stopped for a second looks as
	// one of which others took all for a second, and it is over.
	longestTick = 2 * Tick
	// allBusy is the share of a Tick from which on requests waited in all of it.
	allBusy = .9
	// leastShare is the least that a process is taken to have of the CPU.
	leastShare = .01
)

// computed is for how long the process ran while requests waited.
func (s *Seen) computed() time.Duration {
	if s.Computed <= 0 {
		return s.Busy
	}
	return min(s.Busy, s.Computed)
}

// waited reports whether requests waited in all of a Tick.
func (s *Seen) waited(over time.Duration) bool { return s.Busy.Seconds() >= allBusy*over.Seconds() }

// taken is what others take of the CPU. That requests wait while the process does not run says
// nothing of how much it can do: those that came meanwhile are started in no time when it goes
// on. Only while requests wait all the time it has no more than it is given.
type taken struct {
	lost float64 // mean share of the time while the process could have done more
}

// tick takes what has happened, and returns what share the process has of its processors.
func (t *taken) tick(s Seen, over time.Duration) float64 {
	k := math.Exp(-min(over, longestTick).Seconds() / takenOver.Seconds())
	t.lost *= k
	if s.Computed > 0 && s.waited(over) {
		t.lost += (1 - k) * (1 - min(s.Computed.Seconds()/over.Seconds(), 1))
	}
	return max(1-t.lost, leastShare)
}
