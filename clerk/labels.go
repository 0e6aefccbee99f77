package clerk

import (
	"context"

	"github.com/slicer-project/slicer/loadbalance/overload"
)

// Labels are those of the requests of a context (overload.LabelsOf), with
// Config.Criticality where it says none, and a cohort by chance where that decides whether a
// request is held back (Throttling). Do and the adapters go by them; adapters send them
// along.
func (c *Clerk) Labels(ctx context.Context) overload.Labels {
	return c.DrawCohort(overload.LabelsOf(ctx).Or(overload.Labels{Criticality: c.criticality}))
}
