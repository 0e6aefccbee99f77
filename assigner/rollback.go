package assigner

import (
	"context"
	"fmt"
	"slices"

	"github.com/slicer-project/slicer/assignment"
)

// elsewhere says how far a generation is from the placement that a rollback asked for,
// empty if it has it.
func (v adminService) elsewhere(ctx context.Context, job string, home *storeWatch, target, got assignment.Generation) string {
	want, err := home.backend.ReadGeneration(ctx, job, target)
	if err != nil {
		return ""
	}
	have, err := home.backend.ReadGeneration(ctx, job, got)
	if err != nil {
		return ""
	}
	n, keys := differing(want, have)
	switch {
	case n == 0:
		return ""
	case n == 1:
		return fmt.Sprintf("except 1 slice, %.3g%% of the keys, that a pin, an exclusion or a task that does not run keeps elsewhere", 100*keys)
	}
	return fmt.Sprintf("except %d slices, %.3g%% of the keys, that pins, exclusions or tasks that do not run keep elsewhere", n, 100*keys)
}

// differing counts the slices of have whose keys had others for owners in want, and
// the share of such keys. Owners are the same if they have the same names.
func differing(want, have *assignment.Assignment) (n int, keys float64) {
	for i := range have.NumSlices() {
		s, owners := have.Slice(i), names(have.Replicas(i))
		share := 0.
		for j := want.Find(s.Start); j < want.NumSlices() && want.Slice(j).Start < s.End; j++ {
			if both, _ := s.Intersect(want.Slice(j)); !slices.Equal(owners, names(want.Replicas(j))) {
				share += both.Fraction()
			}
		}
		if share > 0 {
			n++
			keys += share
		}
	}
	return n, keys
}

func names(r assignment.Replicas) (all []string) {
	for t := range r.All() {
		all = append(all, t.Name)
	}
	slices.Sort(all)
	return all
}
