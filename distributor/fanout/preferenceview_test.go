package fanout

import (
	"fmt"
	"testing"
	"time"
)

func TestPreferenceViewsAreCutIntoPieces(t *testing.T) {
	now := time.UnixMilli(baseGen)
	b := make(PreferenceView)
	jobs := make([]string, 2*maxNamedJobs+1)
	for i := range jobs {
		jobs[i] = fmt.Sprintf("job-%05d", i)
	}
	if !b.Look(now, jobs, func(string) string { return "a1" }) || b.Look(now, jobs, func(string) string { return "a1" }) {
		t.Error("a change is reported where there is none, or none where there is one")
	}
	n := 0
	msgs := b.Messages(now)
	for i, m := range msgs {
		if m.GetPreferenceView().First != (i == 0) {
			t.Errorf("piece %d: first is %v", i, m.GetPreferenceView().First)
		}
		n += len(m.GetPreferenceView().Jobs)
	}
	if len(msgs) != 3 || n != len(jobs) {
		t.Errorf("%d pieces with %d jobs", len(msgs), n)
	}
	if !b.Look(now, jobs[:1], func(string) string { return "a1" }) || len(b) != 1 {
		t.Errorf("%d jobs are left", len(b))
	}
	if msgs := make(PreferenceView).Messages(now); len(msgs) != 1 || !msgs[0].GetPreferenceView().First {
		t.Errorf("of nothing: %v", msgs)
	}
}
