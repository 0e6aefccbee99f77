package fanout

import (
	"cmp"
	"maps"
	"slices"

	"github.com/cespare/xxhash/v2"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// Preferences remembers which assigner each attached assigner says is preferred for each
// job. Where they differ, the view with the highest revision counts, of the views on one
// store that name the job.
type Preferences struct {
	views map[viewKey]*assignerView
	// last is what the newest views said when the last sender was forgotten, so that
	// assigners which are not configured can still be found again.
	last []candidate
}

// viewKey says whose view of which store it is.
type viewKey struct {
	from  string
	store uint64
}

// assignerView is what one assigner says about one store.
type assignerView struct {
	revision   int64
	candidates []candidate
	jobs       map[string]string // the preferred assigner's id, "" for none
}

type candidate struct {
	ID, Address, Zone string
}

// maxViews bounds how many stores one assigner may speak of.
const maxViews = 64

// Update takes in a view. It replaces what the sender said before of the store.
func (p *Preferences) Update(from string, m *slicerv1.Preference) {
	if p.views == nil {
		p.views = make(map[viewKey]*assignerView)
	}
	k := viewKey{from, m.GetStoreId()}
	if p.views[k] == nil && p.count(from) >= maxViews {
		return
	}
	v := &assignerView{revision: m.GetRevision(), jobs: make(map[string]string, len(m.GetJobs()))}
	for _, c := range m.GetCandidates() {
		v.candidates = append(v.candidates, candidate{c.GetAssignerId(), c.GetAddress(), c.GetZone()})
	}
	for _, j := range m.GetJobs() {
		v.jobs[j.GetJob()] = j.GetAssignerId()
	}
	p.views[k] = v
}

func (p *Preferences) count(from string) (n int) {
	for k := range p.views {
		if k.from == from {
			n++
		}
	}
	return n
}

// Forget drops the views of an assigner that is not attached any more: how old they have
// become is not known.
func (p *Preferences) Forget(from string) {
	p.last = p.Candidates()
	maps.DeleteFunc(p.views, func(k viewKey, _ *assignerView) bool { return k.from == from })
}

// Preferred is the id of the job's preferred assigner, or "" when none is, or none is
// known.
func (p *Preferences) Preferred(job string) string {
	id, _, _ := p.find(job)
	return id
}

// StoreOf is the store that keeps a job, if an assigner has named it.
func (p *Preferences) StoreOf(job string) (store uint64, named bool) {
	_, store, named = p.find(job)
	return store, named
}

func (p *Preferences) find(job string) (preferred string, store uint64, named bool) {
	var best *assignerView
	var bestKey viewKey
	for k, v := range p.views {
		if _, named := v.jobs[job]; named && (best == nil || k.before(v, bestKey, best)) {
			best, bestKey = v, k
		}
	}
	if best == nil {
		return "", 0, false
	}
	return best.jobs[job], bestKey.store, true
}

// before orders views by how much they count. Stores do not compare, so that
// the order among them is arbitrary but fixed.
func (k viewKey) before(v *assignerView, l viewKey, w *assignerView) bool {
	return cmp.Or(
		cmp.Compare(k.store, l.store),
		cmp.Compare(w.revision, v.revision),
		cmp.Compare(k.from, l.from)) < 0
}

// Jobs are all that an assigner has named, sorted.
func (p *Preferences) Jobs() []string {
	names := make(map[string]struct{})
	for _, v := range p.views {
		for j := range v.jobs {
			names[j] = struct{}{}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// Candidates are the assigners that the newest view of each store knows, in order of id;
// while none is attached, those that were known last.
func (p *Preferences) Candidates() []candidate {
	if len(p.views) == 0 {
		return p.last
	}
	var all []candidate
	for _, k := range p.best() {
		all = append(all, p.views[k].candidates...)
	}
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Address, b.Address), cmp.Compare(a.Zone, b.Zone))
	})
	return slices.Compact(all)
}

// best are the views that count most, by store.
func (p *Preferences) best() map[uint64]viewKey {
	best := make(map[uint64]viewKey)
	for k, v := range p.views {
		if l, ok := best[k.store]; !ok || k.before(v, l, p.views[l]) {
			best[k.store] = k
		}
	}
	return best
}

// StandIn picks the assigner that is asked about a job while its preferred one is not
// attached: the one with the highest rendezvous score, so that the jobs of a dead
// assigner spread over the others. It is "" if none is attached.
func StandIn(attached []string, job string) string {
	var best string
	var bestScore uint64
	for _, id := range attached {
		var d xxhash.Digest
		d.ResetWithSeed(uint64(len(id)))
		d.WriteString(id)
		d.WriteString(job)
		if s := d.Sum64(); best == "" || s > bestScore || s == bestScore && id < best {
			best, bestScore = id, s
		}
	}
	return best
}

// Newest are the views that count most, of each store one, in order of store: what a
// Distributor of the second tier is told.
func (p *Preferences) Newest() (out []*slicerv1.Preference) {
	best := p.best()
	for _, store := range slices.Sorted(maps.Keys(best)) {
		v := p.views[best[store]]
		m := &slicerv1.Preference{Revision: v.revision, StoreId: store}
		for _, c := range v.candidates {
			m.Candidates = append(m.Candidates, &slicerv1.Candidate{AssignerId: c.ID, Address: c.Address, Zone: c.Zone})
		}
		for _, name := range slices.Sorted(maps.Keys(v.jobs)) {
			m.Jobs = append(m.Jobs, &slicerv1.JobPreference{Job: name, AssignerId: v.jobs[name]})
		}
		out = append(out, m)
	}
	return out
}
