package overload

import (
	"context"

	"github.com/slicer-project/slicer/assignment"
)

// Criticality is assignment.Criticality.
type Criticality = assignment.Criticality

// The criticalities, the lowest first.
const (
	Sheddable     = assignment.Sheddable
	SheddablePlus = assignment.SheddablePlus
	Critical      = assignment.Critical
	CriticalPlus  = assignment.CriticalPlus
)

// Cohorts is how many cohorts there are, from 0.
const Cohorts = 128

// Labels are what a request says about itself to each server that works on it, and, by
// the context of the handler, to all that these ask for it. The zero value says nothing.
type Labels struct {
	// Criticality is 0 if it is not said.
	Criticality Criticality
	// Customer is what the request is charged to (assignment.ValidCustomer), empty if it
	// is not said.
	Customer string

	cohort uint8 // one more than it is, 0 if it is not said
}

// Cohort is 0 to Cohorts-1 and drawn once for what a user asks for, so that of all the
// requests that it causes all are served or none is: within a criticality servers refuse
// by cohort, the last first. It is not ok if it is not said.
func (l Labels) Cohort() (cohort int, ok bool) { return int(l.cohort) - 1, l.cohort > 0 }

// SetCohort sets the cohort. One that does not exist is none.
func (l *Labels) SetCohort(cohort int) {
	l.cohort = 0
	if cohort >= 0 && cohort < Cohorts {
		l.cohort = uint8(cohort + 1)
	}
}

// Or returns the labels, with those of other for what they do not say.
func (l Labels) Or(other Labels) Labels {
	if l.Criticality == 0 {
		l.Criticality = other.Criticality
	}
	if l.Customer == "" {
		l.Customer = other.Customer
	}
	if l.cohort == 0 {
		l.cohort = other.cohort
	}
	return l
}

// LabelsKey is for contexts that are types of their own: the method Value answers it with
// a *Labels that does not change any more, if there are any.
type LabelsKey struct{}

// WithLabels returns a context whose requests have these labels, instead of those that ctx
// says.
func WithLabels(ctx context.Context, l Labels) context.Context {
	return context.WithValue(ctx, LabelsKey{}, &l)
}

// LabelsOf returns the labels of the context's requests.
func LabelsOf(ctx context.Context) Labels {
	if l, ok := ctx.Value(LabelsKey{}).(*Labels); ok && l != nil {
		return *l
	}
	return Labels{}
}

// WithCriticality returns a context whose requests have this criticality. One that does
// not exist is none.
func WithCriticality(ctx context.Context, c Criticality) context.Context {
	l := LabelsOf(ctx)
	if l.Criticality = 0; c.Valid() {
		l.Criticality = c
	}
	return WithLabels(ctx, l)
}

// CriticalityOf is the criticality of the context's requests, 0 if it is not said.
func CriticalityOf(ctx context.Context) Criticality { return LabelsOf(ctx).Criticality }

// WithCohort returns a context whose requests are of this cohort: what a server does for a
// user that is not itself a request to one of Slicer's adapters. See Labels.Cohort.
func WithCohort(ctx context.Context, cohort int) context.Context {
	l := LabelsOf(ctx)
	l.SetCohort(cohort)
	return WithLabels(ctx, l)
}

// CohortOf is the cohort of the context's requests; it is not ok if it is not said.
func CohortOf(ctx context.Context) (cohort int, ok bool) { return LabelsOf(ctx).Cohort() }

// WithCustomer returns a context whose requests are charged to a customer. A server
// believes it only if it is told to. A name that is not allowed (assignment.ValidCustomer)
// is none.
func WithCustomer(ctx context.Context, customer string) context.Context {
	l := LabelsOf(ctx)
	if l.Customer = ""; assignment.ValidCustomer(customer) {
		l.Customer = customer
	}
	return WithLabels(ctx, l)
}

// CustomerOf is what the context's requests are charged to, empty if it is not said.
func CustomerOf(ctx context.Context) string { return LabelsOf(ctx).Customer }
