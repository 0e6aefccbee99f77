package distributor

import (
	"cmp"
	"slices"
	"time"

	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/distributor/fanout"
	"github.com/slicer-project/slicer/distributor/limiter"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

const (
	// slowAfter is how long an acknowledgement may take before its subscriber is
	// called slow.
	slowAfter = 5 * time.Second
	// slowLook is how often they are counted, slowLog how often they are named.
	slowLook = time.Second
	slowLog  = 30 * time.Second
)

// slowWatch says when to look for slow subscribers next, and who is slow.
type slowWatch struct {
	lookAt, namedAt time.Time
	worst           []fanout.Slow // at most wire.MaxStragglers, the slowest first
	total           int
}

// watchSlow counts and names those who have not acknowledged for long. It looks
// only while somebody is late.
func (j *job) watchSlow(now time.Time) (next time.Time) {
	newest := fanout.VersionOf(j.shelf.Newest())
	_, behind := j.conv.Lag(newest)
	if behind == 0 && j.slow.total == 0 {
		return time.Time{}
	}
	if j.slow.lookAt.After(now) {
		return j.slow.lookAt
	}
	j.slow.lookAt = now.Add(slowLook)
	var all []fanout.Slow
	for _, s := range j.subs {
		if p := &s.progress; (p.InFlight() || p.Stuck(newest)) && now.Sub(s.flightAt) >= slowAfter {
			all = append(all, fanout.Slow{Name: s.in.name, Gen: p.Held.Gen, Since: s.flightAt})
		}
	}
	slices.SortFunc(all, func(a, b fanout.Slow) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Name, b.Name)) })
	before := j.slow.worst
	j.slow.total, j.slow.worst = len(all), slices.Clip(all[:min(len(all), wire.MaxStragglers)])
	if !slices.Equal(before, j.slow.worst) {
		j.up.AcksChanged(now)
		j.poke()
	}
	j.m.slow(now, len(all), j.slow.worst)
	if len(all) > 0 && now.Sub(j.slow.namedAt) >= slowLog {
		j.slow.namedAt = now
		names := make([]string, len(j.slow.worst))
		for i, s := range j.slow.worst {
			names[i] = s.Name
		}
		j.log.Warn("subscribers do not acknowledge", "count", len(all), "after", slowAfter,
			"longest", now.Sub(all[0].Since).Round(time.Second), "some", names)
	}
	return j.slow.lookAt
}

// measure notes how far the subscribers are, and how long the newest assignment
// took to reach the last of them.
func (j *job) measure(now time.Time) {
	newest := j.shelf.Newest()
	if newest == nil {
		return
	}
	_, behind := j.conv.Lag(fanout.VersionOf(newest))
	j.m.behind(behind)
	if behind == 0 && !j.arrived.IsZero() {
		j.m.converged(now.Sub(j.arrived))
		j.arrived = time.Time{}
	}
}

// holds has a subscriber counted as holding something.
func (j *job) holds(now time.Time, id uint64, role slicerv1.Role, held fanout.Version) {
	changed, took, reached := j.conv.Hold(now, id, held)
	if reached {
		j.m.reached(role, took)
		j.pace(now, false)
	}
	if changed {
		idle := j.up.Acks.At.IsZero()
		j.up.AcksChanged(now)
		j.measure(now)
		if idle {
			j.poke() // or it is known already when they are due
		}
	}
}

// pace has hardly any connections set up, and none let go, while those that were
// connected when the newest assignment came wait for it, save the last hundredth, and for
// limiter.PauseFor at most.
func (j *job) pace(now time.Time, came bool) {
	waiting, all := j.conv.Awaited()
	switch wait := waiting*100 > all; {
	case wait && came:
		j.paced = now.Add(limiter.PauseFor)
		j.d.handshakes.Pause(now, j)
	case !wait && !j.paced.IsZero():
		j.paced = time.Time{}
		j.d.handshakes.Resume(now, j)
	}
}

// progressView is how far the job's subscribers have come, the slow ones named.
func (j *job) progressView() fanout.Summary {
	v := j.conv.View(fanout.VersionOf(j.shelf.Newest()))
	v.Slow, v.SlowTotal = j.slow.worst, j.slow.total
	return v
}
