package protocol

import "time"

const (
	// warmEvery is how often a changing job without subscribers is read.
	warmEvery = 10 * time.Second
	// idleFor is how long a job is kept that the store does not know and that is not
	// needed.
	idleFor = 10 * time.Second
	// Waits between attempts to reach the store, half of it at random.
	retryMin = 100 * time.Millisecond
	RetryMax = 2 * time.Second
)

// pace says when a job is read.
type pace struct {
	last     time.Time // when it was, or that was tried
	failures int       // in a row
	until    time.Time // no attempt before this
}

// Todo is what to do with a job.
type Todo uint8

const (
	ToWait  Todo = iota // until something is heard, or so long
	ToPause             // so long, whatever is heard
	ToRead
	ToDrop // if it is still not needed, or else as ToWait
)

// next says what to do. A wait below 0 is for ever.
func (p *pace) next(now time.Time, stale, missing, idle bool) (do Todo, wait time.Duration) {
	switch {
	case now.Before(p.until):
		return ToPause, p.until.Sub(now)
	case stale && idle && !missing && !p.last.IsZero() && now.Sub(p.last) < warmEvery:
		return ToWait, warmEvery - now.Sub(p.last)
	case stale:
		p.last = now
		return ToRead, 0
	case missing && idle && now.Sub(p.last) >= idleFor:
		return ToDrop, -1
	case missing:
		return ToWait, idleFor
	}
	return ToWait, -1
}

// read says what became of the reading; share, below 1, is a random one of the wait.
func (p *pace) read(now time.Time, err error, idle bool, share float64) {
	if err == nil {
		p.failures = 0
		return
	}
	wait := RetryWait(p.failures, share)
	if idle {
		wait = warmEvery
	}
	p.failures++
	p.until = now.Add(wait)
}

// RetryWait is how long to wait after so many failures; share, below 1, is a random one.
func RetryWait(failures int, share float64) time.Duration {
	d := min(retryMin<<min(failures, 10), RetryMax)
	return d/2 + time.Duration(share*float64(d/2))
}
