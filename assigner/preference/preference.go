// Package preference says which assigner should take a job's decisions. It is pure: all
// that see the same candidates come to the same answer without asking one another.
//
// An assigner in the job's zone comes before all others; among equals the one
// with the highest rendezvous score counts. So jobs spread evenly, and when an
// assigner comes or goes only the jobs that it wins or held change hands.
//
// Preference is a hint that keeps assigners from working against one another (Slicer
// paper, section 4.1). Nothing depends on all agreeing on it: safety is the store's
// compare-and-swap.
package preference

import (
	"github.com/cespare/xxhash/v2"

	"github.com/slicer-project/slicer/assignment/store"
)

// Choose returns the candidate that is preferred for a job that runs in zone,
// which may be empty. ok is false when there is no candidate. The order of the
// candidates does not matter.
func Choose(candidates []store.Candidate, job, zone string) (best store.Candidate, ok bool) {
	var bestNear bool
	var bestScore uint64
	for _, c := range candidates {
		near, s := zone != "" && c.Zone == zone, score(c.ID, job)
		if ok && !better(near, s, c.ID, bestNear, bestScore, best.ID) {
			continue
		}
		best, bestNear, bestScore, ok = c, near, s, true
	}
	return best, ok
}

func better(near bool, score uint64, id string, nearB bool, scoreB uint64, idB string) bool {
	switch {
	case near != nearB:
		return near
	case score != scoreB:
		return score > scoreB
	}
	return id < idB
}

// score is the rendezvous weight of an assigner for a job. The length of the
// id keeps (ab, c) and (a, bc) apart.
func score(id, job string) uint64 {
	var d xxhash.Digest
	d.ResetWithSeed(uint64(len(id)))
	d.WriteString(id)
	d.WriteString(job)
	return d.Sum64()
}
