package membership

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/slicer-project/slicer/assignment"
)

// A report by way of one Distributor says nothing of the sequence by way of another: a
// task that was declared dead by a message with its incarnation, or silenced by one with
// the highest sequence, is back as soon as it has reported for a while.
func TestNoMessageSilencesATask(t *testing.T) {
	for _, state := range []assignment.TaskState{assignment.TaskDead, assignment.TaskRunning} {
		table := New(Config{HeartbeatTimeout: time.Second}, 0, nil)
		a := assignment.Task{Name: "a", Incarnation: 1, Address: "a:1", Weight: 1}
		say := func(at time.Duration, by Session, sequence uint64, state assignment.TaskState) {
			table.Report(at, by, false, []Report{{Task: a, Said: true, Sequence: sequence, State: state}})
		}
		for _, id := range []Session{1, 2} {
			table.Attach(0, id, "d"+string(rune('0'+id)))
			table.Report(0, id, true, nil)
		}
		for at := time.Duration(0); at < 20*time.Second; at += 250 * time.Millisecond {
			say(at, 1, uint64(at/time.Millisecond)+1, assignment.TaskRunning)
			if at == 10*time.Second {
				say(at, 2, math.MaxUint64, state)
			}
			table.Heard(at, 2, at)
			table.Advance(at)
			x := table.Statuses(at)[0].Task
			if x.State != assignment.TaskRunning && (at < 10*time.Second || at > 11*time.Second) {
				t.Fatalf("at %s, after a copy that was %s at 10s, a is %s", at, state, x.State)
			}
		}
	}
}

// Whatever is said in the name of a task, by whichever Distributors, which number what
// they are told: once it ends, who goes on to report is the task.
func TestWhoGoesOnToReportComesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := New(Config{HeartbeatTimeout: time.Second, Freeze: assignment.FreezeConfig{Share: 1}, Damping: assignment.DampingConfig{Share: -1}}, 0, nil)
		const step = 100 * time.Millisecond
		now, numbers := time.Duration(0), [4]uint64{}
		say := func(by Session, incarnation uint64, age time.Duration, state assignment.TaskState) {
			numbers[by]++
			table.Report(now, by, false, []Report{{Said: true, Sequence: numbers[by], Age: age, State: state,
				Task: assignment.Task{Name: "a", Incarnation: incarnation, Address: "a:1", Weight: 1}}})
		}
		for id := Session(1); id <= 3; id++ {
			table.Attach(0, id, "d"+string(rune('0'+id)))
			table.Report(0, id, true, nil)
			numbers[id] = rapid.Uint64Range(0, 1<<40).Draw(t, "number")
		}
		hostile := rapid.IntRange(0, 100).Draw(t, "steps")
		for i := range hostile + 100 {
			now += step
			if i%2 == 0 {
				say(1, 1, 0, assignment.TaskRunning)
			}
			if i < hostile && rapid.Bool().Draw(t, "say") {
				say(Session(rapid.IntRange(1, 3).Draw(t, "by")), rapid.Uint64Range(1, 3).Draw(t, "incarnation"),
					time.Duration(rapid.IntRange(0, 2000).Draw(t, "age"))*time.Millisecond,
					rapid.SampledFrom([]assignment.TaskState{assignment.TaskDead, assignment.TaskRunning, assignment.TaskStarting}).Draw(t, "state"))
			}
			for id := Session(1); id <= 3; id++ {
				table.Heard(now, id, now)
			}
			table.Advance(now)
		}
		if x := table.Statuses(now)[0].Task; x.State != assignment.TaskRunning || x.Incarnation != 1 {
			t.Fatalf("10 s after the last word of others a is %s as incarnation %d", x.State, x.Incarnation)
		}
	})
}

// What is said again by way of another session, as by a Distributor that has attached
// anew before the end of its former stream is known, does not make two reports of one,
// and revives no task.
func TestRepeatedByANewSession(t *testing.T) {
	var s script
	table := New(Config{HeartbeatTimeout: 5 * time.Second}, 0, s.parseStored(t, "0 a/1 dead\n1 b/1 running owns\n"))
	at := 100 * time.Millisecond
	say := func(by Session, sequence uint64, age time.Duration) {
		table.Report(at, by, true, []Report{{Said: true, Sequence: sequence, Age: age, State: assignment.TaskRunning,
			Task: assignment.Task{Name: "a", Incarnation: 1, Address: "a:80", Weight: 1}}})
		table.Advance(at)
	}
	table.Attach(0, 1, "d1")
	say(1, 5, 0)
	for id := Session(2); id < 5; id++ { // a little slower each time
		table.Attach(at, id, "d1")
		at += 1100 * time.Millisecond
		say(id, 5, time.Duration(id-1)*time.Second)
	}
	for _, e := range table.Events() {
		if e.Kind == Returned {
			t.Errorf("a has returned: %s", e.Reason)
		}
	}
	at += time.Second
	say(4, 6, 0)
	at += time.Second
	say(4, 7, 0)
	returned := false
	for _, e := range table.Events() {
		returned = returned || e.Kind == Returned
	}
	if !returned {
		t.Error("a has not returned, though it goes on reporting")
	}
}
