package jobfile

import (
	"cmp"
	"fmt"

	"github.com/slicer-project/slicer/assignment"
)

// Change is a setting that differs between two configs of a job, by the name and
// with the values that a file has for it.
type Change struct {
	Field string `json:"field"`
	From  string `json:"from"`
	To    string `json:"to"`
}

// String says it on one line.
func (c Change) String() string {
	return fmt.Sprintf("%s: %s -> %s", c.Field, cmp.Or(c.From, `""`), cmp.Or(c.To, `""`))
}

// Changes are the settings in which next differs from old, in the order in which
// Format prints them. Both are valid.
func Changes(old, next assignment.JobConfig) (all []Change) {
	for _, f := range fields {
		if from, to := f.text(&old), f.text(&next); from != to {
			all = append(all, Change{f.name, from, to})
		}
	}
	return append(append(all, limitChanges(old.Limits, next.Limits)...), accessChanges(old.Access, next.Access)...)
}
