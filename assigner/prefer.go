package assigner

import (
	"cmp"
	"slices"
	"time"

	"github.com/slicer-project/slicer/assigner/downstream"
	"github.com/slicer-project/slicer/assigner/generate"
	"github.com/slicer-project/slicer/assigner/preference"
	"github.com/slicer-project/slicer/assignment/backoff"
	"github.com/slicer-project/slicer/assignment/store"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// preferGap is the least time between two reckonings of which assigners are preferred.
const preferGap = 10 * time.Millisecond

// prefer works out whose each job is whenever jobs or assigners have changed,
// and tells the jobs and the Distributors.
func (a *Assigner) prefer() {
	for {
		select {
		case <-a.dirty:
		case <-a.ctx.Done():
			return
		}
		a.preferOnce()
		if !backoff.Sleep(a.ctx, preferGap) {
			return
		}
	}
}

func (a *Assigner) preferOnce() {
	runners := a.runners()
	slices.SortFunc(runners, func(x, y *runner) int { return cmp.Compare(x.name, y.name) })
	for i, s := range a.stores {
		candidates, revision, seen := s.view()
		if !seen {
			continue
		}
		p := downstream.NewPreference(s.backend.ID(), revision, candidates)
		for _, r := range runners {
			if home, zone, ok := r.whereabouts(); ok && home == s {
				id := a.choose(candidates, r.name, zone)
				r.tell(func(c *generate.Core, now generate.Now) { c.Preferred(now, id) })
				p.Jobs = append(p.Jobs, &slicerv1.JobPreference{Job: r.name, AssignerId: id})
			}
		}
		for _, d := range a.sessions() {
			d.tell(func(x *downstream.Stream) { x.Prefer(i, p) })
		}
	}
}

func (a *Assigner) choose(candidates []store.Candidate, job, zone string) string {
	if a.cfg.alwaysPreferred {
		return a.cfg.ID
	}
	c, _ := preference.Choose(candidates, job, zone)
	return c.ID
}
