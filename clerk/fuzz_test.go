package clerk

import (
	"testing"
	"testing/synctest"
	"time"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/loadbalance/overload"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// FuzzOverloaded: whatever details a task sends with a status, what is made of them is bounded,
// and holds back nothing but what would go to that task.
func FuzzOverloaded(f *testing.F) {
	for _, m := range []*slicerv1.Overloaded{
		{}, {Scope: slicerv1.Overloaded_SCOPE_TASK, Job: "job", Task: "a", Level: 511, PauseMs: 1000}, {Scope: 99, Job: "job", Task: "b", Level: 1<<32 - 1, PauseMs: 1<<32 - 1},
		{Scope: slicerv1.Overloaded_SCOPE_QUOTA, Customer: "mail"}, {Scope: slicerv1.Overloaded_SCOPE_QUOTA, Job: "job", Task: "a"}, {Scope: slicerv1.Overloaded_SCOPE_ALL, Level: 1},
	} {
		data, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint32(codes.ResourceExhausted), data)
		f.Add(uint32(codes.Unavailable), data)
	}
	f.Fuzz(func(t *testing.T, code uint32, detail []byte) {
		synctest.Test(t, func(t *testing.T) {
			err := status.ErrorProto(&spb.Status{Code: int32(code), Message: "no", Details: []*anypb.Any{{TypeUrl: "type.googleapis.com/slicer.v1.Overloaded", Value: detail}}})
			o, ok := OverloadedFromStatus(err)
			if ok && code != uint32(codes.Unavailable) && code != uint32(codes.ResourceExhausted) {
				t.Errorf("code %d: %+v", code, o)
			}
			if len(o.Job) > assignment.MaxNameLen || len(o.Task) > assignment.MaxNameLen || len(o.Customer) > assignment.MaxCustomerLen || o.Elsewhere && o.Customer != "" ||
				o.Level != (overload.Level{}) && (o.Level.Below == 0 || o.Level.Below >= overload.Priorities || o.Level.Pause < overload.LeastPause || o.Level.Pause > overload.MostPause) {
				t.Errorf("%+v", o)
			}
			all := newThrottles("job", 0)
			a, b := all.throttle("a"), all.throttle("b")
			if ok {
				a.HearRefusal(o)
			}
			refused := a.Refused(err)
			for range 100 {
				a.Answered(0, o.Customer, refused)
				if n, err := b.Send(0, o.Customer); n != 0 || err != nil {
					t.Fatalf("after what a said of itself b holds back: %d, %v", n, err)
				}
				_, _ = a.Send(0, o.Customer)
			}
			time.Sleep(time.Minute)
			if _, err := a.Send(0, o.Customer); err != nil {
				t.Errorf("after a minute it is believed still: %v", err)
			}
		})
	})
}
