package clerkgrpc

import (
	"context"
	"strconv"

	"github.com/slicer-project/slicer/loadbalance/overload"
)

// labels are those of the RPCs of a context.
func (s *source) labels(ctx context.Context) overload.Labels {
	if s.cfg.Shared != nil {
		return s.cfg.Shared.Labels(ctx)
	}
	return overload.LabelsOf(ctx).Or(overload.Labels{Criticality: s.cfg.Clerk.Criticality})
}

// appendLabels appends names and values of metadata, of each label that there is.
func appendLabels(add []string, l overload.Labels) []string {
	if l.Criticality != 0 {
		add = append(add, CriticalityHeader, l.Criticality.String())
	}
	if cohort, ok := l.Cohort(); ok {
		add = append(add, CohortHeader, strconv.Itoa(cohort))
	}
	if l.Customer != "" {
		add = append(add, CustomerHeader, l.Customer)
	}
	return add
}
