package ctl

import (
	"strings"
	"testing"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/jobfile"
	"github.com/slicer-project/slicer/assignment/store"
)

// What the history says of limits is enough to set them again, whatever customers are called.
func TestLimitsFromHistory(t *testing.T) {
	t.Parallel()
	limits := func(others assignment.Limit, named map[string]assignment.Limit) assignment.JobConfig {
		l, err := assignment.LimitsOf(others, named)
		if err != nil {
			t.Fatal(err)
		}
		return assignment.JobConfig{Name: "a", Limits: l}.WithDefaults()
	}
	was := assignment.JobConfig{Name: "a"}.WithDefaults()
	var orders []store.Entry
	for i, next := range []assignment.JobConfig{
		limits(assignment.Limit{Rate: 5}, map[string]assignment.Limit{"spiffe://corp/ns/a.rate": {Rate: .5}, "b": {Rate: 1}, "free": {}}),
		limits(assignment.Limit{}, map[string]assignment.Limit{"spiffe://corp/ns/a.rate": {Rate: 2e9, MaxCriticality: assignment.Critical}, "default": {MaxCriticality: assignment.Sheddable}, "free": {Rate: 3}}),
	} {
		var changes []string
		for _, c := range jobfile.Changes(was, next) {
			changes = append(changes, c.String())
		}
		what := "change job"
		if i == 0 {
			what = "create job"
		}
		orders = append(orders, store.Entry{Order: int64(i + 1), Action: what + ": " + strings.Join(changes, ", ")})
		if got, _, err := fromHistory("a", orders); err != nil || got != next {
			t.Fatalf("%v\n%s\n%+v, want\n%+v", err, orders[i].Action, got, next)
		}
		was = next
	}
}
