package distributor

import (
	"cmp"
	"maps"
	"slices"
	"time"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// assigners answers in the place of the assigners, none of which could be
// reached, with what is known here, for one that may read some jobs.
func (d *Distributor) assigners(now time.Time, reads func(job string) bool) *slicerv1.ListAssignersResponse {
	d.mu.Lock()
	views := maps.Clone(d.views)
	d.mu.Unlock()
	out := &slicerv1.ListAssignersResponse{DistributorId: d.cfg.ID}
	preferred := make(map[string]uint32)
	for _, name := range slices.Sorted(maps.Keys(views)) {
		if !reads(name) {
			continue // nor is it counted
		}
		b := views[name]
		preferred[b.ID]++
		out.Jobs = append(out.Jobs, &slicerv1.JobAssigners{Job: name, Views: []*slicerv1.AssignerView{{
			AssignerId: b.ID, Distributors: 1, ForMs: now.Sub(b.Since).Milliseconds(),
		}}})
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.prefs.Candidates() {
		out.Assigners = append(out.Assigners, &slicerv1.AssignerStatus{Id: c.ID, Address: c.Address, Zone: c.Zone, Preferred: preferred[c.ID]})
	}
	slices.SortStableFunc(out.Assigners, func(a, b *slicerv1.AssignerStatus) int { return cmp.Compare(a.Id, b.Id) })
	return out
}
