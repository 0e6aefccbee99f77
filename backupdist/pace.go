package backupdist

import "time"

const (
	// warmEvery is how often a changing job without subscribers is read.
	warmEvery = 10 * time.Second
	// idleFor is how long a job is kept that the store does not know and nobody needs.
	idleFor = 10 * time.Second
	// Waits between attempts to reach the store, half of it at random.
	retryMin = 100 * time.Millisecond
	retryMax = 2 * time.Second
)

// pace says when a job is read. Pure.
type pace struct {
	last     time.Time // when it was, or that was tried
	failures int       // in a row
	until    time.Time // no attempt before this
}

type todo uint8

const (
	toWait  todo = iota // until something is heard, or so long
	toPause             // so long, whatever is heard
	toRead
	toDrop // if still nobody needs it, or else as toWait
)

// next says what to do. A wait below 0 is for ever.
func (p *pace) next(now time.Time, stale, missing, idle bool) (do todo, wait time.Duration) {
	switch {
	case now.Before(p.until):
		return toPause, p.until.Sub(now)
	case stale && idle && !missing && !p.last.IsZero() && now.Sub(p.last) < warmEvery:
		return toWait, warmEvery - now.Sub(p.last)
	case stale:
		p.last = now
		return toRead, 0
	case missing && idle && now.Sub(p.last) >= idleFor:
		return toDrop, -1
	case missing:
		return toWait, idleFor
	}
	return toWait, -1
}

// read says what became of the reading; share, below 1, is a random one of the wait.
func (p *pace) read(now time.Time, err error, idle bool, share float64) {
	if err == nil {
		p.failures = 0
		return
	}
	wait := retryWait(p.failures, share)
	if idle {
		wait = warmEvery
	}
	p.failures++
	p.until = now.Add(wait)
}

func retryWait(failures int, share float64) time.Duration {
	d := min(retryMin<<min(failures, 10), retryMax)
	return d/2 + time.Duration(share*float64(d/2))
}
