package clerkhttp

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slicer-project/slicer/assignment/httpkey"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/loadbalance/overload"
)

// labelsOf is what a request says: criticality, cohort, customer and timeout.
func labelsOf(r *http.Request) string {
	var all []string
	for _, name := range []string{httpkey.HeaderCriticality, httpkey.HeaderCohort, httpkey.HeaderCustomer, httpkey.HeaderTimeout} {
		all = append(all, strings.Join(r.Header[name], ","))
	}
	return strings.Join(all, " ")
}

// TestLabels: a request says what its context says, and nothing that was in its headers.
func TestLabels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newTestJob(t, affinity, "a")
		tr := j.transport(nil)
		ctx := clerk.WithKey(t.Context(), "k")
		brief, cancel := context.WithTimeout(ctx, 2500*time.Millisecond)
		defer cancel()
		endless, cancel := context.WithTimeout(ctx, 1000*time.Hour)
		defer cancel()
		for _, c := range []struct {
			ctx  context.Context
			want string
		}{
			{ctx, "   "},
			{overload.WithCustomer(overload.WithCohort(overload.WithCriticality(brief, overload.Sheddable), 0), "mail"), "sheddable 0 mail 2500"},
			{endless, "   86400000"},
		} {
			req, err := http.NewRequestWithContext(c.ctx, "GET", "http://profiles", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set(httpkey.HeaderCriticality, "critical_plus")
			req.Header.Set(httpkey.HeaderTimeout, "1")
			if _, err := do(t, tr, req); err != nil {
				t.Fatal(err)
			}
			a := j.task("a")
			if got := labelsOf(a.requests[len(a.requests)-1]); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		}
		j.stop(tr)
	})
}
