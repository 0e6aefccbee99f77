package fanout

import (
	"maps"
	"slices"
	"time"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// freshFor is how old the last word of an assigner may be, which comes every second, for
// it to be believed that it heard this Distributor until its stream ended.
const freshFor = 2 * time.Second

// Upstream is one stream upwards, from its hello to its end: what is to be said on it, and
// whether this Distributor is heard. What is to be said is kept as the names of jobs,
// never as messages: those are made of what is newest when their turn comes. It is not
// safe for concurrent use.
type Upstream struct {
	queue  []string            // marked jobs, oldest first
	marked map[string]struct{} // the same, as a set
	// vacant are marked jobs that have no subscriber here: the assigner is to know that, too.
	vacant map[string]struct{}
	// preferred are the jobs that this assigner is preferred for and has been, or is being,
	// told of completely; wanted are those that it is asked for.
	preferred, wanted map[string]struct{}
	views             bool // the assigner is to be told which are taken for preferred
	acknowledges      bool // it says every second that it hears this Distributor
	acknowledgedAt    time.Time
}

// NewUpstream begins with the other end's hello. firstTier: the other end is a Distributor
// of the first tier, not an assigner.
func NewUpstream(now time.Time, firstTier bool, h *slicerv1.AssignerHello) Upstream {
	return Upstream{
		acknowledges: h.GetAcknowledges(), acknowledgedAt: now, views: !firstTier,
		marked: make(map[string]struct{}), vacant: make(map[string]struct{}), preferred: make(map[string]struct{}), wanted: make(map[string]struct{}),
	}
}

// Mark notes that there is something to say of a job.
func (u *Upstream) Mark(job string) {
	if _, marked := u.marked[job]; !marked {
		u.marked[job] = struct{}{}
		u.queue = append(u.queue, job)
	}
}

// MarkVacant notes that a job has no subscriber here.
func (u *Upstream) MarkVacant(job string) {
	u.Mark(job)
	u.vacant[job] = struct{}{}
}

// MarkViews notes that another assigner is taken for preferred for some job.
func (u *Upstream) MarkViews() { u.views = true }

// PopViews reports whether the assigner is to be told which are taken for preferred.
func (u *Upstream) PopViews() (due bool) {
	due, u.views = u.views, false
	return due
}

// Pop returns the job whose turn it is.
func (u *Upstream) Pop() (job string, vacant, ok bool) {
	switch len(u.queue) {
	case 0:
		return "", false, false
	case 1:
		job, u.queue = u.queue[0], u.queue[:0] // its room is for the next one
	default:
		job, u.queue = u.queue[0], u.queue[1:]
	}
	_, vacant = u.vacant[job]
	delete(u.marked, job)
	delete(u.vacant, job)
	return job, vacant, true
}

// Say is what to say of a job whose turn it is: tell is the job's answer, the zero Tell if
// there is no such job here.
func (u *Upstream) Say(job string, tell Tell) []*slicerv1.AttachRequest {
	_, was := u.wanted[job]
	switch {
	case tell.Target:
		u.wanted[job] = struct{}{}
	case was:
		delete(u.wanted, job)
		return append(tell.Messages, WantRequest(&slicerv1.Want{Job: job, Stop: true}))
	}
	return tell.Messages
}

// SetPreferred takes the jobs that the assigner is preferred for now. Those that are new
// and not served here are vacant.
func (u *Upstream) SetPreferred(jobs []string, served func(job string) bool) {
	now := make(map[string]struct{}, len(jobs))
	for _, name := range jobs {
		now[name] = struct{}{}
		if _, was := u.preferred[name]; !was && !served(name) {
			u.MarkVacant(name)
		}
	}
	u.preferred = now
}

// Acknowledged notes that the assigner hears this Distributor. It reports whether it had not said
// so for a while: jobs that have told their subscribers otherwise are to look again.
func (u *Upstream) Acknowledged(now time.Time) (again bool) {
	again = now.Sub(u.acknowledgedAt) >= UnacknowledgedAfter
	u.acknowledgedAt = now
	return again
}

// Ended notes that the stream has ended. If the assigner has just said that it hears this
// Distributor it is believed to have done so until now: the time that another has to take
// its place counts from its death.
func (u *Upstream) Ended(now time.Time) {
	if now.Sub(u.acknowledgedAt) < freshFor {
		u.acknowledgedAt = now
	}
}

// LastAcknowledged is when the assigner is known to have heard this Distributor. Of one that
// does not say so it is believed for as long as the stream lasts.
func (u *Upstream) LastAcknowledged(now time.Time) time.Time {
	if !u.acknowledges {
		return now
	}
	return u.acknowledgedAt
}

// Source is which view of the preferences it brings. No id contains a slash.
func (p Peer) Source() string {
	if p.FirstTier {
		return p.ID + "/"
	}
	return p.ID
}

// Named are the jobs that each assigner is preferred for, in order, by its id.
func (p *Preferences) Named() map[string][]string {
	named := make(map[string][]string)
	for _, job := range p.Jobs() {
		id := p.Preferred(job)
		named[id] = append(named[id], job)
	}
	return named
}

// Choose returns which of the assigners a job is to tell, the zero T if its preferred one
// is not attached, and which peer it is to ask. In the first tier that is the preferred
// assigner, too, if it is attached, or else another; in the second one of the upstreams,
// the Distributors of the first. All are by id.
func Choose[T any](p *Preferences, job string, assigners, upstreams map[string]T, second bool) (preferred, target T) {
	preferred, attached := assigners[p.Preferred(job)]
	switch {
	case second:
		target = upstreams[StandIn(slices.Collect(maps.Keys(upstreams)), job)]
	case attached:
		target = preferred
	default:
		target = assigners[StandIn(slices.Collect(maps.Keys(assigners)), job)]
	}
	return preferred, target
}
