package overload

import (
	"context"
	"strings"
	"testing"
)

func TestLabels(t *testing.T) {
	ctx := t.Context()
	if l := LabelsOf(ctx); l != (Labels{}) {
		t.Errorf("a context without labels has %+v", l)
	}
	if _, ok := CohortOf(ctx); ok || CriticalityOf(ctx) != 0 || CustomerOf(ctx) != "" {
		t.Error("a context without labels has some")
	}
	ctx = WithCustomer(WithCohort(WithCriticality(ctx, SheddablePlus), 0), "mail")
	if cohort, ok := CohortOf(ctx); cohort != 0 || !ok || CriticalityOf(ctx) != SheddablePlus || CustomerOf(ctx) != "mail" {
		t.Errorf("%+v", LabelsOf(ctx))
	}
	// Each is changed alone.
	changed := WithCriticality(ctx, CriticalPlus)
	if cohort, ok := CohortOf(changed); cohort != 0 || !ok || CriticalityOf(changed) != CriticalPlus || CustomerOf(changed) != "mail" {
		t.Errorf("%+v", LabelsOf(changed))
	}
	for what, bad := range map[string]context.Context{
		"criticality 9":    WithCriticality(ctx, 9),
		"cohort -1":        WithCohort(ctx, -1),
		"cohort 128":       WithCohort(ctx, Cohorts),
		"a long customer":  WithCustomer(ctx, strings.Repeat("x", 129)),
		"a spaced one":     WithCustomer(ctx, "a b"),
		"a customer's NUL": WithCustomer(ctx, "a\x00"),
	} {
		l := LabelsOf(bad)
		_, cohort := l.Cohort()
		if n := count(l.Criticality != 0, cohort, l.Customer != ""); n != 2 {
			t.Errorf("%s: %+v", what, l)
		}
	}
	if cohort, ok := CohortOf(WithCohort(ctx, Cohorts-1)); cohort != 127 || !ok {
		t.Error(cohort, ok)
	}
}

func count(all ...bool) (n int) {
	for _, b := range all {
		if b {
			n++
		}
	}
	return n
}

func TestOr(t *testing.T) {
	var full, other Labels
	full.Criticality, full.Customer, other.Criticality, other.Customer = Sheddable, "a", Critical, "b"
	full.SetCohort(1)
	other.SetCohort(2)
	if full.Or(other) != full || (Labels{}).Or(other) != other || full.Or(Labels{}) != full {
		t.Errorf("%+v, %+v", full.Or(other), (Labels{}).Or(other))
	}
}

// own is a context that is a type of its own.
type own struct {
	context.Context
	labels *Labels
}

func (o own) Value(key any) any {
	if key == (LabelsKey{}) {
		return o.labels
	}
	return o.Context.Value(key)
}

func TestLabelsKey(t *testing.T) {
	var l Labels
	l.SetCohort(77)
	if got := LabelsOf(own{t.Context(), &l}); got != l {
		t.Errorf("%+v", got)
	}
	if got := LabelsOf(own{t.Context(), nil}); got != (Labels{}) {
		t.Errorf("%+v", got)
	}
}
