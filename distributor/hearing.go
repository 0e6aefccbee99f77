package distributor

import (
	"context"
	"log/slog"
	"time"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// What slicelets report is of use only if the job's preferred assigner hears it. A
// Distributor that is cut off from that one may know nothing of it for as long as the
// connection's keepalive takes, and after that has nobody to report to; its subscribers
// hear nothing of either. So each assigner says every second that it hears this
// Distributor, and if the preferred one has not for a while, wherever it is, the
// status says so, and slicelets look for a Distributor that is heard.

// unheardAfter is how long the preferred assigner may not have heard this Distributor:
// another takes the place of a dead one sooner than that if --registration-ttl is 3 s or
// less, and what stands still for less is not worth a move. It is well below the time
// that the assigner gives the tasks of a Distributor which it has lost.
const unheardAfter = 4 * time.Second

// freshFor is how old the last word of an assigner may be, which comes every second, for
// it to be believed that it heard this Distributor until its stream ended.
const freshFor = 2 * time.Second

// heard notes that the assigner hears this Distributor. Jobs that have told their
// subscribers otherwise are to look again.
func (a *attachment) heard(now time.Time) {
	a.mu.Lock()
	again := now.Sub(a.heardAt) >= unheardAfter
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
// does not say so it is believed for as long as the stream lasts.
func (a *attachment) lastHeard(now time.Time) time.Time {
	if !a.saysSo {
		return now
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.heardAt
}

// noteHeard takes over when the preferred assigner, if it is attached, has last heard
// this Distributor.
func (j *job) noteHeard(now time.Time) {
	if j.preferred == nil {
		return
	}
	if at := j.preferred.lastHeard(now); at.After(j.heardAt) {
		j.heardAt = at
	}
}

// watchHearing has the status say whether the preferred assigner hears this
// Distributor, and returns when it has to be looked at again.
func (j *job) watchHearing(now time.Time) (next time.Time) {
	j.noteHeard(now)
	unheard := now.Sub(j.heardAt) >= unheardAfter
	if unheard != j.board.Unacknowledged {
		j.board.Acknowledge(now, unheard)
		j.m.hearing(unheard)
		switch {
		case !unheard:
			j.log.Info("the preferred assigner hears this distributor", "preferred", j.preferred.name())
		case j.heardAt.IsZero():
			j.log.Debug("the preferred assigner is not known to hear this distributor yet", "preferred", j.preferred.name())
		default:
			level := slog.LevelDebug
			if j.conv.Connected(slicerv1.Role_ROLE_SLICELET) > 0 {
				level = slog.LevelWarn
			}
			j.log.Log(context.Background(), level, "the preferred assigner does not hear this distributor: slicelets are to look for another",
				"preferred", j.preferred.name(), "for", now.Sub(j.heardAt).Round(time.Millisecond))
		}
	}
	if unheard {
		return time.Time{} // whoever hears it says so
	}
	return j.heardAt.Add(unheardAfter)
}
