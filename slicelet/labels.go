package slicelet

import (
	"context"
	"math/rand/v2"
	"strconv"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/loadbalance/overload"
)

// Labels are those of a request that has arrived, save for its customer: what its headers
// say, as far as that is allowed, and otherwise the job's default criticality, and a cohort
// by chance. The handlers of packages sliceletgrpc and slicelethttp put them into the
// request's context.
func (s *Slicelet) Labels(criticality, cohort string) (l overload.Labels) {
	if criticality != "" {
		l.Criticality, _ = assignment.ParseCriticality(criticality)
	}
	if l.Criticality == 0 {
		l.Criticality = s.sub.State().Status.Overload.OrDefaults().DefaultCriticality
	}
	if cohort != "" && len(cohort) <= len("127") {
		if n, err := strconv.Atoi(cohort); err == nil {
			l.SetCohort(n)
		}
	}
	if _, ok := l.Cohort(); !ok {
		l.SetCohort(rand.IntN(overload.Cohorts))
	}
	return l
}

// CustomerOf is what a request is charged to that claims a customer (Config.Customer), empty
// for none.
func (s *Slicelet) CustomerOf(ctx context.Context, claimed string) string {
	if s.arrivals.customer == nil {
		return ""
	}
	if !assignment.ValidCustomer(claimed) {
		claimed = ""
	}
	customer := s.arrivals.customer(ctx, claimed)
	if !assignment.ValidCustomer(customer) {
		return ""
	}
	return customer
}

// BelieveCustomer is a Config.Customer that believes each client: for networks where no
// client gains by another's name.
func BelieveCustomer(_ context.Context, claimed string) string { return claimed }
