package ctl

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

func TestAssignersView(t *testing.T) {
	v := newAssigners(&slicerv1.ListAssignersResponse{
		AssignerId: "a1",
		Assigners: []*slicerv1.AssignerStatus{
			{Id: "a1", Address: "10.0.0.1:7100", Zone: "eu-1", Stores: []string{"default"}, Jobs: 2, Preferred: 2},
			{Id: "a2", Address: "10.0.0.2:7100", Stores: []string{"default", "west"}, Preferred: 1},
		},
		Jobs: []*slicerv1.JobAssigners{
			{Job: "api", Store: "default", Chosen: "a1", Views: []*slicerv1.AssignerView{{AssignerId: "a1", Distributors: 2, ForMs: 65_000}}},
			{Job: "web", Store: "default", Zone: "eu-1", Chosen: "a1", Views: []*slicerv1.AssignerView{
				{AssignerId: "a1", Distributors: 1, ForMs: 1200}, {AssignerId: "a2", Distributors: 1, ForMs: 3_600_000}}},
		},
		Distributors: []*slicerv1.AttachedDistributor{{Id: "d1"}, {Id: "d2", Zone: "eu-1"}},
	})
	var b bytes.Buffer
	v.print(&b)
	want := `as assigner a1 sees it, with 2 distributors: d1 d2

ASSIGNER  ADDRESS        ZONE  STORES        JOBS  PREFERRED
a1        10.0.0.1:7100  eu-1  default          2          2
a2        10.0.0.2:7100  -     default west     0          1

JOB  ZONE  STORE    CHOSEN  PREFERRED
api  -     default  a1      a1 by 2 distributors for 1m5s
web  eu-1  default  a1      a1 by 1 distributor for 1.2s, a2 by 1 distributor for 1h0m
`
	if d := cmp.Diff(want, b.String()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if v.Jobs[0].Disputed || !v.Jobs[1].Disputed {
		t.Errorf("disputed: %v and %v, want false and true", v.Jobs[0].Disputed, v.Jobs[1].Disputed)
	}
	if _, err := json.Marshal(v); err != nil {
		t.Error(err)
	}
}

func TestAssignersViewOfADistributor(t *testing.T) {
	v := newAssigners(&slicerv1.ListAssignersResponse{
		DistributorId: "d1",
		Assigners:     []*slicerv1.AssignerStatus{{Id: "a1", Address: "10.0.0.1:7100", Preferred: 1}},
		Jobs:          []*slicerv1.JobAssigners{{Job: "web", Views: []*slicerv1.AssignerView{{Distributors: 1, ForMs: 400}}}},
	})
	var b bytes.Buffer
	v.print(&b)
	want := `no assigner answers; the view of distributor d1

ASSIGNER  ADDRESS        ZONE  STORES  JOBS  PREFERRED
a1        10.0.0.1:7100  -     -          -          1

JOB  ZONE  STORE  CHOSEN  PREFERRED
web  -     -      -       none by 1 distributor for 400ms
`
	if d := cmp.Diff(want, b.String()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if v.Jobs[0].Disputed {
		t.Error("disputed, with one opinion")
	}
}

// clocks answers for assigners of which one has a wrong clock.
type clocks struct {
	slicerv1.AdminServiceClient
	asked []string
}

func (c *clocks) InspectJob(_ context.Context, r *slicerv1.InspectJobRequest, _ ...grpc.CallOption) (*slicerv1.InspectJobResponse, error) {
	c.asked = append(c.asked, r.Job)
	if r.Job[0] == 'b' {
		return &slicerv1.InspectJobResponse{AssignerId: "a2", Alarm: "the clock has jumped"}, nil
	}
	return &slicerv1.InspectJobResponse{AssignerId: "a1"}, nil
}

func TestAssignersAlarms(t *testing.T) {
	v := newAssigners(&slicerv1.ListAssignersResponse{AssignerId: "a1", Jobs: []*slicerv1.JobAssigners{
		{Job: "a0", Chosen: "a1"}, {Job: "a1", Chosen: "a1"}, {Job: "a2", Chosen: "a1"}, {Job: "a3", Chosen: "a1"}, {Job: "a4", Chosen: "a1"},
		{Job: "b0", Chosen: "a2"}, {Job: "b1", Chosen: "a2"}, {Job: "c"}}})
	fake := &clocks{}
	(&client{admin: fake, timeout: time.Second}).alarms(t.Context(), v)
	if got := strings.Join(fake.asked, " "); got != "a0 a1 a2 a3 b0" {
		t.Errorf("asked about %s", got)
	}
	var b bytes.Buffer
	v.print(&b)
	if n := strings.Count(b.String(), "\nalarm: "); n != 1 || !strings.Contains(b.String(), "\nalarm: assigner a2, job b0: the clock has jumped\n") {
		t.Errorf("%d alarms:\n%s", n, &b)
	}
}
