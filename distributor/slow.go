package distributor

import (
	"slices"
	"time"
)

const (
	// slowAfter is how long an acknowledgement may take before its subscriber is
	// called slow.
	slowAfter = 5 * time.Second
	// slowLook is how often they are counted, slowLog how often they are named.
	slowLook = time.Second
	slowLog  = 30 * time.Second
)

// slowWatch says when to look for slow subscribers next.
type slowWatch struct {
	lookAt, namedAt time.Time
	counted         int
}

// watchSlow counts and names those who have not acknowledged for long. It looks
// only while somebody is late.
func (j *job) watchSlow(now time.Time) (next time.Time) {
	_, behind := j.conv.lag(markOf(j.shelf.newest()))
	if behind == 0 && j.slow.counted == 0 {
		return time.Time{}
	}
	if j.slow.lookAt.After(now) {
		return j.slow.lookAt
	}
	j.slow.lookAt = now.Add(slowLook)
	var names []string
	for _, s := range j.subs {
		if s.progress.flight.gen != 0 && now.Sub(s.flightAt) >= slowAfter {
			names = append(names, s.in.name)
		}
	}
	j.slow.counted = len(names)
	j.m.slow(len(names))
	if len(names) > 0 && now.Sub(j.slow.namedAt) >= slowLog {
		j.slow.namedAt = now
		slices.Sort(names)
		j.log.Warn("subscribers do not acknowledge", "count", len(names),
			"after", slowAfter, "some", names[:min(len(names), maxStragglers)])
	}
	return j.slow.lookAt
}

// measure notes how far the subscribers are, and how long the newest assignment
// took to reach the last of them.
func (j *job) measure(now time.Time) {
	newest := j.shelf.newest()
	if newest == nil {
		return
	}
	_, behind := j.conv.lag(markOf(newest))
	j.m.behind(behind)
	if behind == 0 && !j.arrived.IsZero() {
		j.m.converged(now.Sub(j.arrived))
		j.arrived = time.Time{}
	}
}
