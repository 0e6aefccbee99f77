package fanout

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// FuzzLyingTask: whatever a task reports, of its level, of customers and of load, clients are
// told the same of another task, and that has at least what is its part by capacity of a tenth
// of a limit.
func FuzzLyingTask(f *testing.F) {
	const id = 77
	huge := float32(3.4e38)
	for _, r := range []*slicerv1.Report{
		{}, running(1), {Level: 511, PauseMs: 1000}, {Level: 1<<32 - 1, PauseMs: 1<<32 - 1, State: slicerv1.TaskState_TASK_STATE_DRAINING},
		{Customers: &slicerv1.CustomerUse{Customer: []uint64{id}, Asked: []float32{huge}, Used: []float32{huge}, Name: []string{"mail", "a b", ""}}},
		{Customers: &slicerv1.CustomerUse{Customer: []uint64{1, id, 1<<64 - 1}, Asked: []float32{0, -1, 1}, Used: []float32{0, 0, 0}}},
		{Load: &slicerv1.LoadReport{RangeSkip: []uint64{0}, RangeWidth: []uint64{1 << 62}, Rate: []float32{huge}, ShedRate: huge}},
	} {
		b, err := proto.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var m slicerv1.Report
		if proto.Unmarshal(b, &m) != nil || CheckReport(&m) != nil {
			return
		}
		j, now := NewJob(Config{Name: testJob, Distributor: "d"}), epoch
		from := Peer{Session: 1, ID: "a"}
		j.Step(now, Peers{Preferred: from, Target: from})
		j.Step(now, Answered{From: from, Status: &slicerv1.JobStatus{Job: testJob, Limited: true}})
		limits, err := assignment.LimitsOf(assignment.Limit{Rate: 1000}, nil)
		if err != nil {
			t.Fatal(err)
		}
		j.Step(now, Quoted{From: 1, Quotas: wire.QuotasToProto([]assignment.CustomerShare{{Customer: id, Share: 100}}, &limits)})
		for i, name := range []string{"liar", "honest"} {
			n := uint64(i + 1)
			j.Step(now, Came{ID: n, Hello: Hello{Job: testJob, Role: slicerv1.Role_ROLE_SLICELET, Report: running(1), Task: &slicerv1.Task{Name: name, Incarnation: n, Weight: 1}}})
		}
		j.Step(now, Came{ID: 3, Hello: Hello{Job: testJob, Role: slicerv1.Role_ROLE_CLERK}})
		share, level := -1., uint32(0)
		for i := range 4 {
			now = now.Add(5 * time.Second)
			j.Step(now, Tick{Acknowledged: now})
			j.Step(now, Reported{ID: 1, Report: &m})
			r := running(uint64(i))
			r.Level, r.PauseMs = 100, 50
			r.Customers = &slicerv1.CustomerUse{Customer: []uint64{id}, Asked: []float32{50}, Used: []float32{50}}
			j.Step(now, Reported{ID: 2, Report: r})
			now = now.Add(5 * time.Second)
			j.Step(now, Tick{Acknowledged: now})
			for n := uint64(1); n <= 3; n++ {
				for done := false; !done; {
					done = true
					for _, a := range j.Step(now, Ready{n}) {
						s, ok := a.(Send)
						if !ok {
							continue
						}
						done = false
						var c captured
						if err := s.Messages.Send(&c, nil); err != nil {
							t.Fatal(err)
						}
						if q := c.m.GetQuotas(); n == 2 && len(q.GetShare()) == 1 {
							share = float64(q.Share[0])
						}
						if status := c.m.GetStatus(); n == 3 && status != nil {
							level = 0
							for _, x := range status.Conditions {
								if x.Task == "honest" {
									level = x.Level
								} else if x.Task != "liar" {
									t.Errorf("clients are told of %v", x)
								}
							}
						}
					}
				}
			}
		}
		if share < .1*100/2 || level != 100 {
			t.Errorf("the other may use %v of 100, and clients are told level %d of it", share, level)
		}
	})
}
