package membership

import (
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
)

// A report that was held up for longer than the heartbeat timeout does not go with one
// of before, even if the table was not told the time in between, as while its assigner
// waits for the store.
func TestLateReportAloneRevivesNobody(t *testing.T) {
	var s script
	table := New(Config{HeartbeatTimeout: 5 * time.Second}, 0, s.parseStored(t, "0 a/1 dead\n1 b/1 running owns\n"))
	report := func(at time.Duration, complete bool, seq uint64) {
		table.Report(at, 1, complete, []Report{{
			Task: assignment.Task{Name: "a", Incarnation: 1, Address: "a:80", Weight: 1}, Said: true, Sequence: seq, State: assignment.TaskRunning,
		}})
	}
	table.Attach(0, 1, "d1")
	report(100*time.Millisecond, true, 5)
	table.Advance(200 * time.Millisecond)
	for at := time.Second; at <= 6*time.Second; at += time.Second {
		table.Heard(at, 1, at)
	}
	report(6100*time.Millisecond, false, 7)
	table.Advance(6200 * time.Millisecond)
	for _, e := range table.Events() {
		if e.Kind == Returned {
			t.Errorf("a has returned: %s", e.Reason)
		}
	}
	report(7200*time.Millisecond, false, 8)
	returned := false
	for _, e := range table.Events() {
		returned = returned || e.Kind == Returned
	}
	if !returned {
		t.Error("a has not returned, though it goes on reporting")
	}
}
