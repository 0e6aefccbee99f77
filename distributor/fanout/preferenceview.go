package fanout

import (
	"maps"
	"slices"
	"time"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// maxNamedJobs is how many jobs one message names: with the longest names some
// 1.3 MB.
const maxNamedJobs = 4096

// PreferenceView is which assigner this Distributor takes for preferred, by job, and
// since when.
type PreferenceView map[string]preference

type preference struct {
	ID    string // "" for none
	Since time.Time
}

// Look takes in which assigners are preferred now, and reports whether anything has
// changed.
func (b PreferenceView) Look(now time.Time, jobs []string, preferred func(job string) string) (changed bool) {
	for _, name := range jobs {
		id := preferred(name)
		if was, known := b[name]; !known || was.ID != id {
			b[name] = preference{id, now}
			changed = true
		}
	}
	if len(b) > len(jobs) {
		named := make(map[string]struct{}, len(jobs))
		for _, name := range jobs {
			named[name] = struct{}{}
		}
		maps.DeleteFunc(b, func(name string, _ preference) bool { _, is := named[name]; return !is })
		changed = true
	}
	return changed
}

// Messages are all of them, for an assigner.
func (b PreferenceView) Messages(now time.Time) (out []*slicerv1.AttachRequest) {
	all := slices.Sorted(maps.Keys(b))
	for first := true; first || len(all) > 0; first = false {
		piece := &slicerv1.PreferenceView{First: first}
		for _, name := range all[:min(len(all), maxNamedJobs)] {
			piece.Jobs = append(piece.Jobs, &slicerv1.PreferredAssigner{Job: name, AssignerId: b[name].ID, ForMs: now.Sub(b[name].Since).Milliseconds()})
		}
		all = all[len(piece.Jobs):]
		out = append(out, &slicerv1.AttachRequest{Message: &slicerv1.AttachRequest_PreferenceView{PreferenceView: piece}})
	}
	return out
}
