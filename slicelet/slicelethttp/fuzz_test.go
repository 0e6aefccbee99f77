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
	"github.com/slicer-project/slicer/slicelet"
)

// FuzzHeaders: whatever headers say, what the handler hears of a request is allowed, and the
// next request is served.
func FuzzHeaders(f *testing.F) {
	f.Add("critical_plus", "0", "mail", "2", "10000", "86400000", "0", "k")
	f.Add("", "", "", "", "", "", "", "")
	f.Add("CRITICAL", "-1", "a b", "-9223372036854775808", "65536", "-1", "99999999999999999999", "%zz")
	f.Add("sheddable\x00", "128", "\xff", "2147483648", "1e9", "9223372036854775807", "\n", "\x00")
	f.Fuzz(func(t *testing.T, criticality, cohort, customer, attempt, standsFor, timeout, generation, key string) {
		synctest.Test(t, func(t *testing.T) {
			c := newClusterWith(t, slicerv1.Mode_MODE_AFFINITY, func(c *slicelet.Config) {
				c.Customer, c.Signals = slicelet.BelieveCustomer, []func() float64{func() float64 { return .9 }}
			})
			defer c.stop()
			c.assign(1, assignment.TaskRunning, "mo")
			c.server.Say(&slicerv1.Status{TakesReports: true, Mode: slicerv1.Mode_MODE_AFFINITY, Overload: &slicerv1.OverloadConfig{Admission: slicerv1.Admission_ADMISSION_ON}})
			synctest.Wait()
			h, err := Handler(c.s, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				l := overload.LabelsOf(r.Context())
				n, ok := l.Cohort()
				if !l.Criticality.Valid() || !ok || n < 0 || n >= overload.Cohorts || l.Customer != "" && !assignment.ValidCustomer(l.Customer) {
					t.Errorf("%+v", l)
				}
				if by, ok := r.Context().Deadline(); ok && time.Until(by) > httpkey.MaxTimeout {
					t.Errorf("it ends in %v", time.Until(by))
				}
			}), Config{})
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				r := request("", "")
				for name, value := range map[string]string{httpkey.HeaderCriticality: criticality, httpkey.HeaderCohort: cohort, httpkey.HeaderCustomer: customer, httpkey.HeaderAttempt: attempt,
					httpkey.HeaderStandsFor: standsFor, httpkey.HeaderTimeout: timeout, httpkey.HeaderGeneration: generation, httpkey.HeaderKey: key} {
					r.Header[name] = []string{value}
				}
				h.ServeHTTP(httptest.NewRecorder(), r)
				time.Sleep(overload.Tick)
			}
			w := httptest.NewRecorder()
			if h.ServeHTTP(w, request(keyIn(0), "")); w.Code != http.StatusOK {
				t.Errorf("the next: %d", w.Code)
			}
			synctest.Wait()
		})
	})
}
