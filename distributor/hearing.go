package distributor

import (
	"time"

	"github.com/slicer-project/slicer/distributor/fanout"
)

// freshFor is how old the last word of an assigner may be, which comes every second, for
// it to be believed that it heard this Distributor until its stream ended.
const freshFor = 2 * time.Second

// heard notes that the assigner hears this Distributor. Jobs that have told their
// subscribers otherwise are to look again.
func (a *attachment) heard(now time.Time) {
	a.mu.Lock()
	again := now.Sub(a.heardAt) >= fanout.UnacknowledgedAfter
	a.heardAt = now
	a.mu.Unlock()
	if !again {
		return
	}
	a.d.mu.Lock()
	defer a.d.mu.Unlock()
	for _, j := range a.d.jobs {
		j.poke()
	}
}

// ended notes that the stream has ended. If the assigner has just said that it hears this
// Distributor it is believed to have done so until now: the time that another has to take
// its place counts from its death.
func (a *attachment) ended(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now.Sub(a.heardAt) < freshFor {
		a.heardAt = now
	}
}

// lastHeard is when the assigner is known to have heard this Distributor. Of one that
// does not say so it is believed for as long as the stream lasts. It is zero for nil.
func (a *attachment) lastHeard(now time.Time) time.Time {
	switch {
	case a == nil:
		return time.Time{}
	case !a.saysSo:
		return now
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.heardAt
}
