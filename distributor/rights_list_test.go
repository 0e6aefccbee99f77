package distributor

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment/access/accesstest"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// Where no assigner lists them a Distributor tells what it knows, of the jobs that the caller may read.
func TestRightsOfAList(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		g := newGuarded(t, testPolicy)
		g.f.allow(testJob, &slicerv1.Access{Read: []string{bob}})
		if err := asked(t, g.at(guarded1, plane1), "clerk", testJob); err != nil {
			t.Fatal(err)
		}
		for id, want := range map[string]int{bob: 1, root: 1, ann: 0, accesstest.Nobody: -1} {
			resp, err := slicerv1.NewAdminServiceClient(g.at(guarded1, id)).ListAssigners(t.Context(), &slicerv1.ListAssignersRequest{})
			if want < 0 && (status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "ListAssigners")) || want >= 0 && (err != nil || len(resp.Jobs) != want || len(resp.Assigners) != 1) {
				t.Errorf("%s: %v, %v", id, resp, err)
			}
		}
	})
}
