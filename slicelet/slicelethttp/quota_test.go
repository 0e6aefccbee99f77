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

// TestQuota: a customer gets its limit, in what its handlers say that requests cost.
func TestQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClusterWith(t, slicerv1.Mode_MODE_AFFINITY, func(cfg *slicelet.Config) { cfg.Customer = slicelet.BelieveCustomer })
		defer c.stop()
		c.server.Say(&slicerv1.Status{TakesReports: true, Mode: slicerv1.Mode_MODE_AFFINITY, LoadMetric: assignment.LoadCustom, Limited: true, ReportIntervalMs: 1000})
		synctest.Wait()
		c.assign(1, assignment.TaskRunning, "mo")
		c.server.Send(&slicerv1.WatchResponse{Message: &slicerv1.WatchResponse_Quotas{Quotas: &slicerv1.Quotas{
			Limits: &slicerv1.Limits{Others: &slicerv1.Limit{Rate: 10}}, Customer: []uint64{assignment.CustomerID("mail")}, Share: []float32{8},
		}}})
		time.Sleep(2 * time.Second)
		h, err := Handler(c.s, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			overload.Spend(r.Context(), .15)
			overload.Spend(r.Context(), .05)
		}), Config{})
		if err != nil {
			t.Fatal(err)
		}
		ask := func(customer, key string) *httptest.ResponseRecorder {
			time.Sleep(10 * time.Millisecond)
			r := request(key, "")
			r.Header.Set(httpkey.HeaderCustomer, customer)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w
		}
		served := func(customer string) (n int) {
			for range 1000 { // in 10 s
				switch w := ask(customer, keyIn(0)); {
				case w.Code == http.StatusOK:
					n++
				case w.Code != http.StatusTooManyRequests || w.Header().Get(httpkey.HeaderOverloaded) != httpkey.OverloadedQuota:
					t.Fatal(w.Code, w.Header())
				}
			}
			return n
		}
		for customer, want := range map[string]int{"mail": 8 * 5 * 10, "other": 5 * 5 * 10, "": 1000} {
			served(customer)
			if n := served(customer); n < want-want/10 || n > want+want/10 {
				t.Errorf("customer %q: %d were served in 10 s, want %d", customer, n, want)
			}
		}
	})
}
