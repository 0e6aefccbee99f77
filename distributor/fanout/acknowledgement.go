package fanout

import (
	"log/slog"
	"time"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// What slicelets report is of use only if the job's preferred assigner hears it. A
// Distributor that is cut off from that one may know nothing of it for as long as the
// connection's keepalive takes, and after that has nothing to report to; its subscribers
// notice neither. So each assigner says every second that it hears this Distributor, and
// if the preferred one has not for a while, wherever it is, the status says so, and
// slicelets look for a Distributor that is acknowledged.

// UnacknowledgedAfter is how long the preferred assigner may not have said that it hears
// this Distributor: another takes the place of a dead one sooner than that if
// --registration-ttl is 3 s or less, and what stands still for less is not worth a move.
// It is well below the time that the assigner gives the tasks of a Distributor which it
// has lost.
const UnacknowledgedAfter = 4 * time.Second

// noteAcknowledged takes when the preferred assigner last said that it hears this
// Distributor, zero for never.
func (u *upward) noteAcknowledged(at time.Time) {
	if at.After(u.acknowledgedAt) {
		u.acknowledgedAt = at
	}
}

// watchAcknowledgement brings into the status whether the preferred assigner acknowledges
// this Distributor, and returns when to look again.
func (u *upward) watchAcknowledgement(now time.Time) (next time.Time) {
	at := u.acknowledgedAt
	unacknowledged := now.Sub(at) >= UnacknowledgedAfter
	if unacknowledged != u.down.publisher.unacknowledged {
		u.down.publisher.acknowledge(now, unacknowledged)
		if unacknowledged {
			u.down.tasks.unacknowledged(now)
		}
		u.cfg.Observer.Unacknowledged(unacknowledged)
		switch {
		case !unacknowledged:
			u.say(slog.LevelInfo, "the preferred assigner hears this distributor", "preferred", u.preferred.ID)
		case at.IsZero():
			u.say(slog.LevelDebug, "the preferred assigner is not known to hear this distributor yet", "preferred", u.preferred.ID)
		default:
			level := slog.LevelDebug
			if u.conv.connected(slicerv1.Role_ROLE_SLICELET) > 0 {
				level = slog.LevelWarn
			}
			u.say(level, "the preferred assigner does not hear this distributor: slicelets are to look for another",
				"preferred", u.preferred.ID, "for", now.Sub(at).Round(time.Millisecond))
		}
	}
	if unacknowledged {
		return time.Time{} // there is a Tick when it is heard again
	}
	return at.Add(UnacknowledgedAfter)
}
