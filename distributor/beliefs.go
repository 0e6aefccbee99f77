package distributor

import (
	"cmp"
	"maps"
	"slices"
	"time"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// maxBeliefs is how many jobs one message names: with the longest names some
// 1.3 MB.
const maxBeliefs = 4096

// beliefs are whom this Distributor takes for preferred, and since when. Pure.
type beliefs map[string]belief

type belief struct {
	id    string // "" for nobody
	since time.Time
}

// look takes in what is believed now, and says whether that is news.
func (b beliefs) look(now time.Time, jobs []string, preferred func(job string) string) (news bool) {
	for _, name := range jobs {
		id := preferred(name)
		if was, known := b[name]; !known || was.id != id {
			b[name] = belief{id, now}
			news = true
		}
	}
	if len(b) > len(jobs) {
		named := make(map[string]struct{}, len(jobs))
		for _, name := range jobs {
			named[name] = struct{}{}
		}
		maps.DeleteFunc(b, func(name string, _ belief) bool { _, is := named[name]; return !is })
		news = true
	}
	return news
}

// messages are all of them, for an assigner.
func (b beliefs) messages(now time.Time) (out []*slicerv1.AttachRequest) {
	all := slices.Sorted(maps.Keys(b))
	for first := true; first || len(all) > 0; first = false {
		piece := &slicerv1.Beliefs{First: first}
		for _, name := range all[:min(len(all), maxBeliefs)] {
			piece.Jobs = append(piece.Jobs, &slicerv1.Belief{Job: name, AssignerId: b[name].id, ForMs: now.Sub(b[name].since).Milliseconds()})
		}
		all = all[len(piece.Jobs):]
		out = append(out, &slicerv1.AttachRequest{Message: &slicerv1.AttachRequest_Beliefs{Beliefs: piece}})
	}
	return out
}

// believe has the assigners told if somebody else is preferred now than before.
// d.mu is held.
func (d *Distributor) believe(now time.Time) {
	if d.beliefs == nil {
		d.beliefs = make(beliefs)
	}
	if !d.beliefs.look(now, d.prefs.jobs(), d.prefs.preferred) {
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
	return a.d.beliefs.messages(now)
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
		believed[b.id]++
		out.Jobs = append(out.Jobs, &slicerv1.JobAssigners{Job: name, Beliefs: []*slicerv1.AssignerBelief{{
			AssignerId: b.id, Distributors: 1, ForMs: now.Sub(b.since).Milliseconds(),
		}}})
	}
	for _, c := range d.prefs.candidates() {
		out.Assigners = append(out.Assigners, &slicerv1.AssignerStatus{Id: c.id, Address: c.address, Zone: c.zone, Believed: believed[c.id]})
	}
	slices.SortStableFunc(out.Assigners, func(a, b *slicerv1.AssignerStatus) int { return cmp.Compare(a.Id, b.Id) })
	return out
}
