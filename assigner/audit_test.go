package assigner

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment/jobfile"
	"github.com/slicer-project/slicer/assignment/store"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// Words that are too long, or on several lines, are refused before anything is done.
func TestAuditRefusals(t *testing.T) {
	n := start(t, Config{})
	n.put(&slicerv1.JobConfig{Name: "job"})
	long := strings.Repeat("x", store.MaxWhy+1)
	for _, c := range []struct{ who, why, says string }{
		{long, "", "who: "}, {"ada", long, "why: "}, {"a\nb", "", "who: "}, {"ada", "\xff", "why: "},
	} {
		if c.why != "\xff" { // which gRPC refuses by itself
			_, err := n.admin.PutJob(t.Context(), &slicerv1.PutJobRequest{Config: &slicerv1.JobConfig{Name: "job", Zone: "z"}, Who: c.who, Why: c.why})
			if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), c.says) {
				t.Errorf("put by %.10q for %.10q: %v", c.who, c.why, err)
			}
		}
		_, err := adminService{a: n.Assigner}.DeleteJob(t.Context(), &slicerv1.DeleteJobRequest{Name: "job", Who: c.who, Why: c.why})
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), c.says) {
			t.Errorf("delete by %.10q for %.10q: %v", c.who, c.why, err)
		}
	}
	got, err := n.admin.GetHistory(t.Context(), &slicerv1.GetHistoryRequest{Job: "job"})
	if err != nil || len(got.Entries) != 1 || got.Entries[0].Action != "create job" {
		t.Errorf("history %v, %v", got, err)
	}
	// The address of a Distributor's caller may be as long as it likes.
	_, err = n.admin.DeleteJob(t.Context(), &slicerv1.DeleteJobRequest{Name: "job", Peer: long})
	if err != nil {
		t.Error(err)
	}
}

// What changed is said in so many bytes, whole settings first.
func TestAuditSettings(t *testing.T) {
	change := jobfile.Change{Field: "zone", From: strings.Repeat("a", 63), To: strings.Repeat("b", 63)}
	for n := range 30 {
		s := settings("change job", slices.Repeat([]jobfile.Change{change}, n))
		whole := strings.Count(s, change.String())
		if len(s) > maxAction || whole != n && (whole < 6 || !strings.HasSuffix(s, "more")) {
			t.Errorf("%d changes: %d bytes, %d of them whole: %s", n, len(s), whole, s)
		}
		if err := store.ValidateWords("action", s, maxAction); err != nil {
			t.Error(err)
		}
	}
}

// A job that was deleted has its history in the store that it was kept in.
func TestAuditInSeveralStores(t *testing.T) {
	n := start(t, Config{Stores: []NamedStore{{Name: "eu", Backend: openPebble(t)}, {Name: "us", Backend: openPebble(t)}}})
	for _, at := range []string{"us", "eu"} {
		n.put(&slicerv1.JobConfig{Name: "job-" + at, Store: at})
		if _, err := n.admin.DeleteJob(t.Context(), &slicerv1.DeleteJobRequest{Name: "job-" + at, Who: "ada", Why: "moved"}); err != nil {
			t.Fatal(err)
		}
		got, err := n.admin.GetHistory(t.Context(), &slicerv1.GetHistoryRequest{Job: "job-" + at})
		if err != nil || len(got.Entries) != 2 || got.Entries[1].Action != "delete job" || got.Entries[1].Stamp.Who != "ada" || got.Entries[1].Stamp.Why != "moved" {
			t.Errorf("store %s: %v, %v", at, got, err)
		}
	}
	if _, err := n.admin.GetHistory(t.Context(), &slicerv1.GetHistoryRequest{Job: "nobody"}); status.Code(err) != codes.NotFound {
		t.Error(err)
	}
}
