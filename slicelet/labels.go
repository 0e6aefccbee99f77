package slicelet

import (
	"context"
	"math/rand/v2"
	"strconv"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/loadbalance/overload"
)

// Claims are what the headers of a request say, each empty if it is not there: claims of
// the client's.
type Claims struct {
	Criticality, Cohort, Customer string
}

// Labels are those of a request that has arrived: what it claims, as far as that is
// allowed and, of its customer, believed (Config.Customer); otherwise the job's default
// criticality, and a cohort by chance. The handlers of packages sliceletgrpc and
// slicelethttp put them into the request's context.
func (s *Slicelet) Labels(ctx context.Context, c Claims) (l overload.Labels) {
	if c.Criticality != "" {
		l.Criticality, _ = assignment.ParseCriticality(c.Criticality)
	}
	if l.Criticality == 0 {
		l.Criticality = s.defaultCriticality()
	}
	if n, err := strconv.Atoi(c.Cohort); err == nil && len(c.Cohort) <= len("127") {
		l.SetCohort(n)
	}
	if _, ok := l.Cohort(); !ok {
		l.SetCohort(rand.IntN(overload.Cohorts))
	}
	if s.arrivals.customer != nil {
		if !assignment.ValidCustomer(c.Customer) {
			c.Customer = ""
		}
		if l.Customer = s.arrivals.customer(ctx, c.Customer); !assignment.ValidCustomer(l.Customer) {
			l.Customer = ""
		}
	}
	return l
}

func (s *Slicelet) defaultCriticality() overload.Criticality {
	if c := s.sub.State().Status.Overload.DefaultCriticality; c.Valid() {
		return c
	}
	return overload.Critical
}

// BelieveCustomer is a Config.Customer that believes each client: for networks where no
// client gains by another's name.
func BelieveCustomer(_ context.Context, claimed string) string { return claimed }
