package assignment_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"

	"github.com/slicer-project/slicer/assignment"
)

func TestLimits(t *testing.T) {
	t.Parallel()
	named := map[string]assignment.Limit{"mail": {Rate: 40}, "batch": {Rate: .25, MaxCriticality: assignment.SheddablePlus}, "free": {}}
	l, err := assignment.LimitsOf(assignment.Limit{Rate: 5}, named)
	if err != nil {
		t.Fatal(err)
	}
	if got := maps.Collect(l.All()); !maps.Equal(got, named) {
		t.Errorf("All = %v, want %v", got, named)
	}
	for name, want := range map[string]assignment.Limit{"mail": {Rate: 40}, "batch": named["batch"], "free": {}, "other": {Rate: 5}, "": {}, "mai": {Rate: 5}} {
		if got := l.Of(name); got != want {
			t.Errorf("Of(%q) = %v, want %v", name, got, want)
		}
	}
	again, _ := assignment.LimitsOf(assignment.Limit{Rate: 5}, maps.Clone(named))
	if l != again || l == (assignment.Limits{}) {
		t.Error("limits that say the same are not equal")
	}
	if none, err := assignment.LimitsOf(assignment.Limit{}, nil); err != nil || none != (assignment.Limits{}) || none.Of("mail") != (assignment.Limit{}) {
		t.Errorf("no limits: %v, %v", none, err)
	}
}

func TestLimitsBounds(t *testing.T) {
	t.Parallel()
	many := make(map[string]assignment.Limit)
	for i := range assignment.MaxLimits + 1 {
		many[fmt.Sprint(i)] = assignment.Limit{Rate: 1}
	}
	for field, c := range map[string]struct {
		others assignment.Limit
		named  map[string]assignment.Limit
	}{
		"limits.customers":                   {named: many},
		"limits.default.rate":                {others: assignment.Limit{Rate: -1}},
		"limits.customers.a.rate":            {named: map[string]assignment.Limit{"a": {Rate: math.NaN()}}},
		"limits.customers.b.rate":            {named: map[string]assignment.Limit{"b": {Rate: 1e13}}},
		"limits.customers.c.max_criticality": {named: map[string]assignment.Limit{"c": {MaxCriticality: 5}}},
		"customer in limits":                 {named: map[string]assignment.Limit{strings.Repeat("x", 129): {}}},
	} {
		_, err := assignment.LimitsOf(c.others, c.named)
		if f, ok := errors.AsType[*assignment.FieldError](err); !ok || f.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}
