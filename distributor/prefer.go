package distributor

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/slicer-project/slicer/distributor/fanout"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// believe has the assigners told if somebody else is preferred now than before.
// d.mu is held.
func (d *Distributor) believe(now time.Time) {
	if d.beliefs == nil {
		d.beliefs = make(fanout.PreferenceView)
	}
	if !d.beliefs.Look(now, d.prefs.Jobs(), d.prefs.Preferred) {
		return
	}
	for _, a := range d.attachments {
		a.markBeliefs()
	}
}

// markBeliefs has the assigner told of all beliefs when its turn comes.
func (a *attachment) markBeliefs() {
	a.mu.Lock()
	a.beliefs = true
	a.mu.Unlock()
	a.poke()
}

// popBeliefs are the beliefs that the assigner is to be told now, nil if none.
func (a *attachment) popBeliefs(now time.Time) []*slicerv1.AttachRequest {
	a.mu.Lock()
	due := a.beliefs
	a.beliefs = false
	a.mu.Unlock()
	if !due {
		return nil
	}
	a.d.mu.Lock()
	defer a.d.mu.Unlock()
	return a.d.beliefs.Messages(now)
}

// assigners answers in the place of the assigners, none of which could be
// reached, with what is known here.
func (d *Distributor) assigners(now time.Time) *slicerv1.ListAssignersResponse {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := &slicerv1.ListAssignersResponse{DistributorId: d.cfg.ID}
	believed := make(map[string]uint32)
	for _, name := range slices.Sorted(maps.Keys(d.beliefs)) {
		b := d.beliefs[name]
		believed[b.ID]++
		out.Jobs = append(out.Jobs, &slicerv1.JobAssigners{Job: name, Beliefs: []*slicerv1.AssignerBelief{{
			AssignerId: b.ID, Distributors: 1, ForMs: now.Sub(b.Since).Milliseconds(),
		}}})
	}
	for _, c := range d.prefs.Candidates() {
		out.Assigners = append(out.Assigners, &slicerv1.AssignerStatus{Id: c.ID, Address: c.Address, Zone: c.Zone, Believed: believed[c.ID]})
	}
	slices.SortStableFunc(out.Assigners, func(a, b *slicerv1.AssignerStatus) int { return cmp.Compare(a.Id, b.Id) })
	return out
}
