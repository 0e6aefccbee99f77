package slicelethttp

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/httpkey"
	"github.com/slicer-project/slicer/loadbalance/overload"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// TestLabels: the handler finds the labels of a request, and the time that is left, in its
// context.
func TestLabels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, slicerv1.Mode_MODE_AFFINITY)
		defer c.stop()
		c.assign(1, assignment.TaskRunning, "mo")
		var seen overload.Labels
		var left time.Duration
		h, err := Handler(c.s, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			seen, left = overload.LabelsOf(r.Context()), 0
			if by, ok := r.Context().Deadline(); ok {
				left = time.Until(by)
			}
		}), Config{})
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{keyIn(0), ""} {
			saw := func(headers ...string) (overload.Labels, int) {
				t.Helper()
				r := request(key, "")
				for i := 0; i < len(headers); i += 2 {
					r.Header.Add(headers[i], headers[i+1])
				}
				h.ServeHTTP(httptest.NewRecorder(), r)
				cohort, ok := seen.Cohort()
				if !ok {
					t.Error("no cohort")
				}
				return seen, cohort
			}
			if l, _ := saw(); l.Criticality != overload.Critical || l.Customer != "" || left != 0 {
				t.Errorf("a request that says nothing: %+v, %v", l, left)
			}
			l, cohort := saw(httpkey.HeaderCriticality, "critical", httpkey.HeaderCriticality, "sheddable", httpkey.HeaderCohort, "9",
				httpkey.HeaderCustomer, "mail", httpkey.HeaderTimeout, "1500")
			if l.Criticality != overload.Sheddable || cohort != 9 || l.Customer != "" || left != 1500*time.Millisecond {
				t.Errorf("%+v, %v", l, left)
			}
			for _, bad := range []string{"0", "-1", "1.5", "86400001", "99999999999999999999", "soon"} {
				if saw(httpkey.HeaderTimeout, bad); left != 0 {
					t.Errorf("timeout %s: %v", bad, left)
				}
			}
			if saw(httpkey.HeaderTimeout, "86400000"); left != httpkey.MaxTimeout {
				t.Errorf("the longest timeout: %v", left)
			}
		}
	})
}
