package fair

import "time"

// Rate allows so many a second for each key, and some more at once after a rest.
type Rate struct {
	every time.Duration
	burst time.Duration
	// next is, by key, when all that was allowed will have been earned.
	next  map[string]time.Time
	purge int // at so many keys those are dropped that have had their rest
}

// NewRate makes one that allows one each interval, and burst at once.
func NewRate(interval time.Duration, burst int) *Rate {
	return &Rate{every: interval, burst: time.Duration(burst) * interval, next: make(map[string]time.Time), purge: leastPurge}
}

const leastPurge = 1024

// Allow reports whether a key may once more, and takes that into account.
func (r *Rate) Allow(now time.Time, key string) bool {
	at := r.next[key]
	if at.Before(now) {
		at = now
	}
	if at = at.Add(r.every); at.Sub(now) > r.burst {
		return false
	}
	r.next[key] = at
	if len(r.next) >= r.purge {
		for k, at := range r.next {
			if !at.After(now) {
				delete(r.next, k)
			}
		}
		r.purge = max(leastPurge, 2*len(r.next))
	}
	return true
}

// GiveBack takes one Allow back.
func (r *Rate) GiveBack(key string) {
	if at, ok := r.next[key]; ok {
		r.next[key] = at.Add(-r.every)
	}
}

// Used is how many of the burst a key has used up and not earned again.
func (r *Rate) Used(now time.Time, key string) int {
	return int((max(r.next[key].Sub(now), 0) + r.every - 1) / r.every)
}

// Lines limit lines in a log about what others send, which may be without end, and count those
// that are left out. Not safe for concurrent use.
type Lines struct {
	rate *Rate
	left int
}

// NewLines allows a line of each key each interval, and burst at once.
func NewLines(interval time.Duration, burst int) *Lines {
	return &Lines{rate: NewRate(interval, burst)}
}

// Allow reports whether there is to be a line of a key, and how many, of all keys, were left out
// since the last.
func (l *Lines) Allow(now time.Time, key string) (left int, ok bool) {
	if !l.rate.Allow(now, key) {
		l.left++
		return 0, false
	}
	left, l.left = l.left, 0
	return left, true
}
