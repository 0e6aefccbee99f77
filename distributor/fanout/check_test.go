package fanout

import (
	"log/slog"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/slicer-project/slicer/assignment"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

func TestHelloFillsIn(t *testing.T) {
	h := sliceletHello("s1", 3)
	h.Task.Index, h.Task.State = 9, slicerv1.TaskState_TASK_STATE_STARTING
	in, err := CheckHello(&slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Hello{Hello: h}}, epoch)
	if err != nil {
		t.Fatal(err)
	}
	if in.Task.Index != 0 || in.Task.State != slicerv1.TaskState_TASK_STATE_RUNNING || in.Name != "slicelet s1" {
		t.Errorf("introduction %+v", in)
	}
	h.Report, h.StoreId, h.Checksum = nil, 7, 8
	in, err = CheckHello(&slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Hello{Hello: h}}, epoch)
	if err != nil || in.Task.State != slicerv1.TaskState_TASK_STATE_STARTING || in.Held != (Version{}) || in.Checksum != 0 {
		t.Errorf("introduction %+v, %v", in, err)
	}
}

// Whatever arrives, it is refused with a precise status or it is within bounds.
func FuzzHello(f *testing.F) {
	for _, h := range []*slicerv1.Hello{clerkHello("c"), sliceletHello("s", 1), {}} {
		b, err := proto.Marshal(&slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Hello{Hello: h}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var m slicerv1.WatchRequest
		if proto.Unmarshal(b, &m) != nil {
			return
		}
		in, err := CheckHello(&m, epoch)
		if code := status.Code(err); err != nil {
			if code != codes.InvalidArgument && code != codes.ResourceExhausted {
				t.Fatalf("code %v", code)
			}
			return
		}
		if in.Role < 1 || int(in.Role) >= NumRoles || in.Job == "" || !assignment.ValidToken(in.Job, 63) || len(in.Name) > 300 ||
			in.Held.Gen < 0 || in.Held.Gen.Time().Sub(epoch) > 24*time.Hour || (in.Role == slicerv1.Role_ROLE_SLICELET) != (in.Task != nil) {
			t.Fatalf("introduction %+v", in)
		}
		j, report := NewJob(Config{Name: in.Job}), in.Report
		assigner := Peer{Session: 1, ID: "a1"}
		j.Step(epoch, Peers{Preferred: assigner, Target: assigner})
		j.Step(epoch, Came{ID: 1, Hello: in})
		for range 2 {
			for _, a := range j.Step(epoch.Add(time.Second), PeerReady{Session: 1}) {
				if tell, ok := a.(Tell); ok {
					for _, m := range tell.Messages {
						if _, err := proto.Marshal(m); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			if in.Task != nil {
				j.Step(epoch, Reported{ID: 1, Report: report})
			}
		}
	})
}

// The same for reports.
func FuzzReport(f *testing.F) {
	for _, r := range []*slicerv1.Report{{}, running(1), {Load: &slicerv1.LoadReport{RangeSkip: []uint64{0}, RangeWidth: []uint64{5}, Rate: []float32{1}}}} {
		b, err := proto.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var m slicerv1.Report
		if proto.Unmarshal(b, &m) != nil {
			return
		}
		err := CheckReport(&m)
		if code := status.Code(err); err != nil {
			if code != codes.InvalidArgument && code != codes.ResourceExhausted {
				t.Fatalf("code %v", code)
			}
			return
		}
		if m.State < 0 || m.State > 4 || m.AgeMs < 0 || proto.Size(&m) > MaxReport {
			t.Fatalf("report %v", &m)
		}
	})
}

// However often a client sends what is complained about, the log has a few lines of it, which
// say how many were left out.
func TestComplaintsAreFew(t *testing.T) {
	const many = 10_000
	for name, c := range map[string]struct {
		hello func() Hello
		send  func(i int) Event
	}{
		"refusals of nothing": {
			func() Hello { return Hello{Job: testJob, Role: slicerv1.Role_ROLE_CLERK, Index: -1} },
			func(int) Event { return Acked{ID: 1, Gen: baseGen, Refusal: "no"} },
		},
		"generations to come": {
			func() Hello {
				return Hello{Job: testJob, Role: slicerv1.Role_ROLE_SLICELET, Report: running(1), Task: &slicerv1.Task{Name: "t", Incarnation: 1}}
			},
			func(i int) Event {
				return Acked{ID: 1, Gen: assignment.Generation(epoch.Add(time.Hour).UnixMilli()) + assignment.Generation(i)}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			j, now := NewJob(Config{Name: testJob, Distributor: "d"}), epoch
			j.Step(now, Came{ID: 1, Hello: c.hello(), Key: "address 192.0.2.1"})
			lines, leftOut := 0, 0
			for i := range many {
				now = now.Add(time.Millisecond)
				for _, a := range j.Step(now, c.send(i)) {
					if l, ok := a.(Log); ok && l.Level >= slog.LevelWarn {
						lines++
						if n := len(l.Attrs); l.Attrs[n-2] == "unlogged" {
							leftOut += l.Attrs[n-1].(int)
						}
					}
				}
			}
			if lines == 0 || lines > many/50 || lines+leftOut < many*9/10 {
				t.Errorf("%d messages have left %d lines, which say that %d were left out", many, lines, leftOut)
			}
		})
	}
}
