package distributor

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// preferenceView are what an assigner has been told last, all pieces of it.
func (f *fakeAssigner) preferenceView() (all []*slicerv1.PreferredAssigner) {
	for _, m := range f.hear() {
		if b := m.GetPreferenceView(); b != nil {
			if b.First {
				all = nil
			}
			all = append(all, b.Jobs...)
		}
	}
	return all
}

// Each assigner is told which one the Distributor takes for preferred, and since when,
// whenever that changes.
func TestAssignersAreToldWhoIsPreferred(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		f, g := n.assigner(t, "a1", assigner1), n.assigner(t, "a2", assigner2)
		f.prefer(1, "a1")
		w := newWorld(t, n, assigner1, assigner2)
		time.Sleep(10 * time.Second)
		for _, x := range []*fakeAssigner{f, g} {
			if b := x.preferenceView(); len(b) != 1 || b[0].Job != testJob || b[0].AssignerId != "a1" {
				t.Errorf("%s is told %v", x.id, b)
			}
		}
		g.prefer(2, "a2")
		synctest.Wait()
		if b := f.preferenceView(); len(b) != 1 || b[0].AssignerId != "a2" || b[0].ForMs != 0 {
			t.Errorf("told %v", b)
		}
		time.Sleep(5 * time.Second)
		if b := f.preferenceView(); len(b) != 0 {
			t.Errorf("told without need: %v", b)
		}
		// A stream that begins anew is told, with the right age.
		f.mu.Lock()
		for s := range f.streams {
			s.end <- status.Error(codes.Unavailable, "test")
		}
		f.mu.Unlock()
		time.Sleep(3 * time.Second)
		if b := f.preferenceView(); len(b) != 1 || b[0].ForMs < 5000 || b[0].ForMs > 8000 {
			t.Errorf("told %v", b)
		}
		_ = w
	})
}

func TestListAssignersWithoutAssigners(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		f := n.assigner(t, "a1", assigner1)
		f.prefer(1, "a1", &slicerv1.Candidate{AssignerId: "a1", Address: assigner1, Zone: "eu-1"})
		w := newWorld(t, n, assigner1)
		time.Sleep(time.Second)
		f.stop()
		time.Sleep(time.Second)
		resp, err := slicerv1.NewAdminServiceClient(w.cc).ListAssigners(context.Background(), &slicerv1.ListAssignersRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if resp.DistributorId != "d1" || len(resp.Assigners) != 1 || resp.Assigners[0].Zone != "eu-1" || resp.Assigners[0].Address != assigner1 {
			t.Errorf("answer %v", resp)
		}
	})
}
