package assigner

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/slicer-project/slicer/assignment/store"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// ListAssigners implements AdminService. It is for every caller that has an identity; jobs
// that it may not read are left out.
func (v adminService) ListAssigners(ctx context.Context, _ *slicerv1.ListAssignersRequest) (*slicerv1.ListAssignersResponse, error) {
	ctx, done, err := v.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	c := v.caller(ctx)
	if err := v.a.cfg.Rights.CheckNamed(c, "ListAssigners"); err != nil {
		return nil, err
	}
	return v.a.assigners(func(name string) bool {
		var job store.Job
		if r := v.a.lookup(name); r != nil {
			job, _ = r.config()
		}
		return v.mayRead(c, name, job.Config.Access)
	}), nil
}

// assigners is which assigners there are and which are preferred, as known here, for one
// that may read some jobs: others are not counted either.
func (a *Assigner) assigners(reads func(job string) bool) *slicerv1.ListAssignersResponse {
	now := a.now().Mono
	out := &slicerv1.ListAssignersResponse{AssignerId: a.cfg.ID}
	known := make(map[store.Candidate]*slicerv1.AssignerStatus)
	views := make(map[*storeWatch][]store.Candidate)
	for _, s := range a.stores {
		candidates, _, _ := s.view()
		views[s] = candidates
		for _, c := range candidates {
			if known[c] == nil {
				known[c] = &slicerv1.AssignerStatus{Id: c.ID, Address: c.Address, Zone: c.Zone}
				out.Assigners = append(out.Assigners, known[c])
			}
			known[c].Stores = append(known[c].Stores, s.label())
		}
	}
	slices.SortFunc(out.Assigners, func(x, y *slicerv1.AssignerStatus) int {
		return cmp.Or(cmp.Compare(x.Id, y.Id), cmp.Compare(x.Address, y.Address))
	})
	count := func(id string, add func(*slicerv1.AssignerStatus)) {
		for _, s := range out.Assigners {
			if s.Id == id {
				add(s)
			}
		}
	}
	preferred := a.views(now)
	jobs := make(map[string]*slicerv1.JobAssigners)
	for name, bs := range preferred {
		if !reads(name) {
			continue
		}
		jobs[name] = &slicerv1.JobAssigners{Job: name, Views: bs}
		for _, b := range bs {
			count(b.AssignerId, func(s *slicerv1.AssignerStatus) { s.Preferred++ })
		}
	}
	for _, r := range a.runners() {
		home, zone, ok := r.whereabouts()
		if !ok || !reads(r.name) {
			continue
		}
		j := jobs[r.name]
		if j == nil {
			j = &slicerv1.JobAssigners{Job: r.name}
			jobs[r.name] = j
		}
		j.Store, j.Zone, j.Chosen = home.label(), zone, a.choose(views[home], r.name, zone)
		count(j.Chosen, func(s *slicerv1.AssignerStatus) { s.Jobs++ })
	}
	for _, name := range slices.Sorted(maps.Keys(jobs)) {
		out.Jobs = append(out.Jobs, jobs[name])
	}
	for _, s := range a.sessions() {
		out.Distributors = append(out.Distributors, &slicerv1.AttachedDistributor{Id: s.name, Zone: s.zone})
	}
	slices.SortFunc(out.Distributors, func(x, y *slicerv1.AttachedDistributor) int { return cmp.Compare(x.Id, y.Id) })
	return out
}

// views counts, for each job, how many Distributors take each assigner for preferred.
func (a *Assigner) views(now time.Duration) map[string][]*slicerv1.AssignerView {
	type key struct{ job, id string }
	merged := make(map[key]*slicerv1.AssignerView)
	for _, s := range a.sessions() {
		s.mu.Lock()
		for job, b := range s.stream.Preferred() {
			age := (now - b.Since).Milliseconds()
			m := merged[key{job, b.ID}]
			if m == nil {
				m = &slicerv1.AssignerView{AssignerId: b.ID, ForMs: age}
				merged[key{job, b.ID}] = m
			}
			m.Distributors++
			m.ForMs = min(m.ForMs, age)
		}
		s.mu.Unlock()
	}
	out := make(map[string][]*slicerv1.AssignerView)
	for k, m := range merged {
		out[k.job] = append(out[k.job], m)
	}
	for _, bs := range out {
		slices.SortFunc(bs, func(x, y *slicerv1.AssignerView) int {
			return cmp.Or(cmp.Compare(y.Distributors, x.Distributors), cmp.Compare(x.AssignerId, y.AssignerId))
		})
	}
	return out
}
