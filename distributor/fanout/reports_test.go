package fanout

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

func protoTask(name string, incarnation uint64) *slicerv1.Task {
	return &slicerv1.Task{Name: name, Incarnation: incarnation, Address: "h:1", Weight: 1, State: slicerv1.TaskState_TASK_STATE_RUNNING}
}

// An assigner that follows the messages knows, after each, which tasks are connected and
// what each reported last, whatever happens in between.
func TestReportsTellTheTruth(t *testing.T) {
	type truth struct{ incarnation, sequence uint64 }
	rapid.Check(t, func(t *rapid.T) {
		r := newReports(0)
		now := epoch
		connected := make(map[string]truth)
		speaker := make(map[string]uint64)
		known := make(map[string]truth)
		complete := true
		var numbers, taken uint64 // streams, and reports, whose own sequence is not believed
		names := rapid.SampledFrom([]string{"a", "b", "c"})
		t.Repeat(map[string]func(*rapid.T){
			"connect": func(t *rapid.T) {
				name := names.Draw(t, "name")
				numbers++
				inc := connected[name].incarnation
				if by, ok := speaker[name]; ok && rapid.Bool().Draw(t, "restarted") {
					r.disconnect(by, name, !complete)
					inc = numbers
				} else if !ok {
					inc = numbers
				}
				r.connect(now, numbers, "", protoTask(name, inc), running(rapid.Uint64().Draw(t, "sequence")))
				taken++
				connected[name], speaker[name] = truth{inc, taken}, numbers
			},
			"report": func(t *rapid.T) {
				name := names.Draw(t, "name")
				by, ok := speaker[name]
				if !ok {
					return
				}
				report := running(rapid.Uint64().Draw(t, "sequence"))
				if rapid.Bool().Draw(t, "stray") {
					r.report(now, by+1000000, name, report)
					return
				}
				r.report(now, by, name, report)
				taken++
				connected[name] = truth{connected[name].incarnation, taken}
			},
			"disconnect": func(t *rapid.T) {
				name := names.Draw(t, "name")
				if by, ok := speaker[name]; ok {
					r.disconnect(by, name, !complete)
					delete(connected, name)
					delete(speaker, name)
				}
			},
			"time": func(*rapid.T) { now = now.Add(time.Second) },
			"new assigner": func(*rapid.T) {
				complete = true
				clear(known)
			},
			"take": func(t *rapid.T) {
				for i, m := range r.take(now, testJob, complete) {
					if m.Complete != (complete && i == 0) {
						t.Fatalf("message %d: complete is %v", i, m.Complete)
					}
					if m.Complete {
						clear(known)
					}
					last := "" // of those connected
					for _, tr := range m.Reports {
						n := tr.Task.Name
						if !tr.Disconnected && n <= last {
							t.Fatalf("%s comes after %s", n, last)
						}
						if tr.Disconnected {
							if known[n].incarnation == tr.Task.Incarnation {
								delete(known, n)
							}
						} else {
							known[n], last = truth{tr.Task.Incarnation, tr.Report.GetSequence()}, n
						}
					}
				}
				complete = false
				if fmt.Sprint(known) != fmt.Sprint(connected) {
					t.Fatalf("known %v, true %v", known, connected)
				}
			},
		})
	})
}

func TestReportsAreCutIntoMessages(t *testing.T) {
	r := newReports(0)
	const n, size = 300, 20 << 10
	for i := range uint64(n) {
		rep := running(1)
		rep.Load = &slicerv1.LoadReport{HotKey: make([]uint64, size/8)}
		r.connect(epoch, i, "", protoTask(fmt.Sprintf("t%03d", i), i+1), rep)
	}
	for _, complete := range []bool{true, false} {
		msgs := r.take(epoch, testJob, complete)
		reports := make(map[string]int)
		for i, m := range msgs {
			if s := proto.Size(m); s > MaxBatch+size+n*100 {
				t.Errorf("complete %v: message %d has %d bytes", complete, i, s)
			}
			for _, tr := range m.Reports {
				if tr.Report != nil {
					reports[tr.Task.Name]++
				}
			}
		}
		if len(reports) != n || len(msgs) < 5 {
			t.Errorf("complete %v: %d reports in %d messages", complete, len(reports), len(msgs))
		}
		if complete && len(msgs[0].Reports) != n {
			t.Errorf("the complete message names %d tasks", len(msgs[0].Reports))
		}
		for i := range uint64(n) {
			name := fmt.Sprintf("t%03d", i)
			r.report(epoch, i, name, r.tasks[name].report)
		}
	}
}

func TestReportsDoNotPileUpDisconnections(t *testing.T) {
	r := newReports(0)
	for i := range uint64(5000) {
		name := fmt.Sprint("t", i)
		r.connect(epoch, i, "", protoTask(name, 1), nil)
		r.disconnect(i, name, true)
	}
	if !r.overflowing() {
		t.Error("5000 disconnections are not too many")
	}
	if msgs := r.take(epoch, testJob, true); len(msgs) != 1 || len(msgs[0].Reports) != 0 || r.overflowing() {
		t.Errorf("%d messages", len(msgs))
	}
}

func TestReportsKeepWhatIsOnItsWay(t *testing.T) {
	r := newReports(0)
	task := protoTask("a", 1)
	r.connect(epoch, 1, "", task, running(1))
	sent := r.take(epoch, testJob, true)[0].Reports[0].Task
	if _, changed := r.report(epoch, 1, "a", &slicerv1.Report{State: slicerv1.TaskState_TASK_STATE_DRAINING}); !changed {
		t.Error("a change of state is none")
	}
	if sent.State != slicerv1.TaskState_TASK_STATE_RUNNING {
		t.Error("a message that may be on its way was changed")
	}
}
