package overload

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/waittest"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/loadbalance/overload"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/test/kit/bed"
)

// TestTold: what one task has no room for, and what a customer asks of it, goes through the
// whole control plane: a client that has never asked the task knows what it refuses, and the
// task that is asked may use all of the customer's limit, though there are two.
func TestTold(t *testing.T) {
	plane := bed.Start(t, bed.Config{Distributors: 2})
	ctx, cancel := context.WithTimeout(t.Context(), waittest.Patience)
	defer cancel()
	const limit = 40
	cfg := assignment.JobConfig{Name: "job", Overload: assignment.OverloadConfig{Admission: assignment.AdmissionOn}}
	var err error
	if cfg.Limits, err = assignment.LimitsOf(assignment.Limit{}, map[string]assignment.Limit{"mail": {Rate: limit}}); err != nil {
		t.Fatal(err)
	}
	if err := plane.PutJob(ctx, cfg.WithDefaults()); err != nil {
		t.Fatal(err)
	}
	join := func(task string, distributor int) *slicelet.Slicelet {
		s, err := slicelet.New(slicelet.Config{
			Job: "job", Task: task, Address: bed.Listen(t).Addr().String(), Distributors: plane.Addrs()[distributor:][:1],
			Signals: []func() float64{func() float64 { return 3 }},
		})
		if err != nil {
			t.Fatal(err)
		}
		bed.CloseAtEnd(t, s.Close)
		if err := s.Ready(ctx); err != nil {
			t.Fatal(err)
		}
		return s
	}
	full := join("full", 0)
	join("idle", 1)
	ck, err := clerk.New(clerk.Config{Job: "job", Distributors: plane.Addrs()[1:]})
	if err != nil {
		t.Fatal(err)
	}
	bed.CloseAtEnd(t, ck.Close)
	var l overload.Labels
	l.Criticality = overload.Sheddable
	conn, err := grpc.NewClient(plane.Distributors[1].Addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	bed.CloseAtEnd(t, conn.Close)
	admin := slicerv1.NewAdminServiceClient(conn)
	told, known, all, served, began := false, false, false, 0, time.Now()
	for i := 0; !told || !known || !all; i++ {
		if ctx.Err() != nil {
			t.Fatalf("a client knows what the task refuses: %v; the assigner what is asked for: %v; all of the limit may be used: %v", told, known, all)
		}
		time.Sleep(time.Millisecond)
		now := time.Now()
		a := slicelet.Arrival{Labels: overload.Labels{Criticality: overload.CriticalPlus}}
		if i%4 > 0 {
			a.Labels = l
		}
		full.Admission().Admit(ctx, now, a)
		told = told || ck.Throttling()
		var c slicelet.Charge
		if full.Admission().Charge(now, &c, &slicelet.Arrival{Labels: overload.Labels{Criticality: overload.CriticalPlus, Customer: "mail"}}) {
			served++
		}
		if over := now.Sub(began); over > 2*time.Second {
			// A task that is told nothing lets through half of the limit, after what the
			// bucket held in the beginning.
			all = all || known && float64(served)/over.Seconds() > .8*limit
			served, began = 0, now
			r, err := admin.InspectJob(ctx, &slicerv1.InspectJobRequest{Job: "job", Customer: "mail"})
			if err != nil || len(r.GetCustomers()) != 1 {
				t.Fatalf("%v: %v", err, r.GetCustomers())
			}
			c := r.Customers[0]
			if c.GetLimit().GetCustomer() != "mail" || c.GetLimit().GetRate() != limit {
				t.Fatal(c)
			}
			parts := c.GetParts()
			known = known || c.GetAsked() > limit && len(parts) == 1 && parts[0].GetDistributor() == "distributor-0" && parts[0].GetShare() > .9*limit
		}
	}
}

// TestStarting: a task that starts is known to clients, and owns nothing until it has started.
func TestStarting(t *testing.T) {
	plane := bed.Start(t, bed.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), waittest.Patience)
	defer cancel()
	if err := plane.PutJob(ctx, assignment.JobConfig{Name: "job"}.WithDefaults()); err != nil {
		t.Fatal(err)
	}
	join := func(task string, starting bool) *slicelet.Slicelet {
		s, err := slicelet.New(slicelet.Config{Job: "job", Task: task, Address: bed.Listen(t).Addr().String(), Distributors: plane.Addrs(), Starting: starting})
		if err != nil {
			t.Fatal(err)
		}
		bed.CloseAtEnd(t, s.Close)
		if err := s.Ready(ctx); err != nil {
			t.Fatal(err)
		}
		return s
	}
	join("runs", false)
	ck, err := clerk.New(clerk.Config{Job: "job", Distributors: plane.Addrs()})
	if err != nil {
		t.Fatal(err)
	}
	bed.CloseAtEnd(t, ck.Close)
	await := func(want assignment.TaskState) *assignment.Assignment {
		t.Helper()
		for {
			changed := ck.Changed()
			if a := ck.Assignment(); a != nil {
				if pos, ok := a.Position("starts"); ok && a.Task(pos).State == want {
					return a
				}
			}
			select {
			case <-changed:
			case <-ctx.Done():
				t.Fatalf("the task is not shown as %s", want)
			}
		}
	}
	s := join("starts", true)
	a := await(assignment.TaskStarting)
	for slice, owners := range a.All() {
		for owner := range owners.All() {
			if owner.Name == "starts" {
				t.Fatalf("it owns %v before it has started", slice)
			}
		}
	}
	s.Started()
	await(assignment.TaskRunning)
	for len(s.Slices()) == 0 {
		if ctx.Err() != nil {
			t.Fatal("it owns nothing after it has started")
		}
		time.Sleep(10 * time.Millisecond)
	}
}
