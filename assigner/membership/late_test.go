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

// What another assigner has stored is the record of which incarnation counts, though a stream of the
// one before is taken to be here still, and the Distributor that had brought word of the new one has
// gone; but not if the one that counts here has reported since.
func TestStoredIncarnationCounts(t *testing.T) {
	var s script
	before, after := s.parseStored(t, "0 a/1 running owns\n"), s.parseStored(t, "0 a/2 running owns\n")
	for _, reports := range []bool{false, true} {
		cfg := Config{HeartbeatTimeout: 5 * time.Second}
		report := func(table *Table, at time.Duration, by Session, complete bool, incarnation uint64) {
			table.Report(at, by, complete, []Report{{
				Task: assignment.Task{Name: "a", Incarnation: incarnation, Address: "a:80", Weight: 1}, Said: true, Sequence: uint64(at), State: assignment.TaskRunning,
			}})
		}
		was := New(cfg, 0, before)
		was.Attach(0, 1, "d1")
		report(was, time.Second, 1, true, 1)
		table := New(cfg, 10*time.Second, before)
		table.Attach(10*time.Second, 1, "d1")
		table.Attach(10*time.Second, 2, "d2")
		table.Follow(10*time.Second, was)
		report(table, 11*time.Second, 2, true, 2)
		table.Detach(12*time.Second, 2)
		want := uint64(2)
		if reports {
			report(table, 12*time.Second, 1, true, 1)
			want = 1
		}
		table.Advance(12100 * time.Millisecond)
		table.Stored(after, false)
		if got := table.Tasks()[0].Incarnation; got != want {
			t.Errorf("incarnation %d counts, want %d; the one before reports: %v", got, want, reports)
		}
	}
}
