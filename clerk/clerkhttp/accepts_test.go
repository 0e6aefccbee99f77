package clerkhttp

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slicer-project/slicer/assignment/httpkey"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/loadbalance/overload"
	"github.com/slicer-project/slicer/loadbalance/policy"
)

// perSecond is a server that can do so much, and has counted what it has refused and served.
type perSecond struct {
	can, room       float64
	at              time.Time
	refuse          http.HandlerFunc
	refused, served int
}

func (s *perSecond) serve(w http.ResponseWriter, r *http.Request) {
	now := time.Now()
	s.room, s.at = min(s.room+s.can*now.Sub(s.at).Seconds(), 3), now
	if s.room < 1 {
		s.refused++
		s.refuse(w, r)
		return
	}
	s.room--
	s.served++
}

// flood has a customer ask 200 times a second, and returns how many were not sent.
func flood(t *testing.T, tr *Transport, customer string, over time.Duration) (held int) {
	t.Helper()
	ctx := clerk.WithKey(overload.WithCustomer(t.Context(), customer), "k")
	for range int(over / (5 * time.Millisecond)) {
		time.Sleep(5 * time.Millisecond)
		req, err := http.NewRequestWithContext(ctx, "GET", "http://profiles", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := tr.RoundTrip(req)
		if err == nil {
			resp.Body.Close()
		} else if _, ok := errors.AsType[clerk.Overloaded](err); !ok {
			t.Fatal(err)
		} else {
			held++
		}
	}
	return held
}

// TestStockServer: an HTTP server that does not know Slicer, at ten times what it can do, refuses
// about one request for each that it serves; another customer loses nothing, and within 3 s
// after the flood all is served.
func TestStockServer(t *testing.T) {
	code := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	for _, c := range []struct {
		name   string
		refuse http.HandlerFunc
		counts bool
	}{
		{"429", code(http.StatusTooManyRequests), true},
		{"503", code(http.StatusServiceUnavailable), true},
		{"a customer's limit", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(httpkey.HeaderOverloaded, httpkey.OverloadedQuota)
			w.WriteHeader(http.StatusTooManyRequests)
		}, true},
		{"gRPC", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", grpcType)
			w.Header().Set(grpcStatus, "8")
		}, true},
		{"gRPC, UNAVAILABLE", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", grpcType)
			w.Header().Set(grpcStatus, "14")
		}, false},
		{"500", code(http.StatusInternalServerError), false},
		{"passed on", full(httpkey.OverloadedAll), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := newTestJob(t, affinity, "a")
				tr := j.transport(nil)
				s := &perSecond{can: 20, at: time.Now(), refuse: c.refuse}
				j.task("a").answers(s.serve)
				flood(t, tr, "flood", 10*time.Second)
				s.refused, s.served = 0, 0
				held := flood(t, tr, "flood", 10*time.Second)
				switch most := s.served * 12 / 10; {
				case s.served < 180, c.counts && s.refused > most, !c.counts && held > 0:
					t.Errorf("%d were served, %d refused, %d not sent", s.served, s.refused, held)
				case !c.counts:
					j.stop(tr)
					return
				}
				j.metric("slicer_clerk_throttled_total{criticality=critical,why=level} 0")
				s.can = 10_000
				if held := flood(t, tr, "mail", time.Second); held > 0 {
					t.Errorf("of another customer %d are held back", held)
				}
				s.can = 20
				flood(t, tr, "flood", 5*time.Second)
				s.can = 10_000
				flood(t, tr, "flood", 3*time.Second)
				if held := flood(t, tr, "flood", time.Second); held > 0 {
					t.Errorf("%d are held back when there is room", held)
				}
				j.stop(tr)
			})
		})
	}
}

// TestStockOwners: of three owners, of which one refuses all, or some of what it would get, the
// others are asked.
func TestStockOwners(t *testing.T) {
	for _, c := range []struct {
		code int
		can  float64
	}{{http.StatusTooManyRequests, 0}, {http.StatusTooManyRequests, 20}, {http.StatusServiceUnavailable, 0}} {
		synctest.Test(t, func(t *testing.T) {
			j := newTestJob(t, affinity, "abc")
			tr := j.transport(nil)
			j.replicate(2, 3)
			s := &perSecond{can: c.can, at: time.Now(), refuse: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(c.code) }}
			j.task("a").answers(s.serve)
			flood(t, tr, "", 5*time.Second)
			s.refused = 0
			if held := flood(t, tr, "", 20*time.Second); held > 0 || s.refused > 60 || s.refused+s.served < 2 { // about 22, with a standard deviation of 3
				t.Errorf("%+v: of 4000 requests %d were not sent and %d refused, %d served by the one that refuses", c, held, s.refused, s.served)
			}
			j.stop(tr)
		})
	}
}

// TestMaxOutstanding: owners with as many requests as they may have are not chosen; where all
// have so many a request fails at once. One counts until its answer has been read or closed.
func TestMaxOutstanding(t *testing.T) {
	for _, kind := range []policy.Kind{policy.WeightedLeastLoaded, policy.RoundRobin} {
		synctest.Test(t, func(t *testing.T) {
			j := newTestJobOf(t, affinity, "abc", clerk.Config{MaxOutstanding: 2})
			tr := j.transport(func(c *Config) { c.Policy = kind })
			j.replicate(2, 2) // a and b own all
			ask := func() (*http.Response, error) {
				req, err := http.NewRequestWithContext(clerk.WithKey(overload.WithCriticality(t.Context(), overload.Sheddable), "k"), "GET", "http://profiles", nil)
				if err != nil {
					t.Fatal(err)
				}
				return tr.RoundTrip(req)
			}
			for range 3 {
				var open []*http.Response
				for range 4 {
					resp, err := ask()
					if err != nil {
						t.Fatal(err)
					}
					open = append(open, resp)
				}
				for range 5 {
					if _, err := ask(); !errors.As(err, new(clerk.Overloaded)) {
						t.Errorf("%s: %v, want an error as no owner may have more", kind, err)
					}
				}
				for _, resp := range open {
					resp.Body.Close()
				}
			}
			if a, b := j.task("a").served(), j.task("b").served(); a != 6 || b != 6 {
				t.Errorf("%s: a was sent %d and b %d", kind, a, b)
			}
			// Nor do those count that have failed.
			j.metric("slicer_clerk_throttled_total{criticality=sheddable,why=outstanding} 15")
			j.kill("a")
			j.kill("b")
			for range 9 {
				time.Sleep(2 * longBackoff)
				resp, err := ask()
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
			}
			for _, task := range []string{"a", "b", "c"} {
				if j.clerk.Throttle(task).Holds(overload.Priorities, "") {
					t.Errorf("%s: requests that have failed are under way at %s", kind, task)
				}
			}
			j.stop(tr)
		})
	}
}
