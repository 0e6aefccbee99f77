package clerkhttp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/slicer-project/slicer/assignment/httpkey"
	"github.com/slicer-project/slicer/clerk"
)

// TestRefusal: in consistent mode a refused request goes to the owner when there
// is one, body and all.
func TestRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newTestJob(t, consistent, "aabb")
		tr := j.transport(nil)
		key := keyIn(1, 4)
		j.task("a").answers(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			refuse("a")(w, r)
		})
		post := func(body io.Reader, timeout time.Duration) (string, error) {
			ctx, cancel := context.WithTimeout(clerk.WithKey(t.Context(), key), timeout)
			defer cancel()
			req, _ := http.NewRequestWithContext(ctx, "POST", "http://profiles", body)
			return do(t, tr, req)
		}
		done := make(chan error)
		go func() {
			got, err := post(iotest.OneByteReader(strings.NewReader("small")), time.Minute)
			if err == nil && got != "b" {
				err = errors.New("served by " + got)
			}
			done <- err
		}()
		time.Sleep(3 * time.Second)
		j.assign(2, "abbb")
		if err := <-done; err != nil {
			t.Error(err)
		}
		if b := j.task("b").bodies; len(b) != 1 || b[0] != "small" {
			t.Errorf("bodies %q", b)
		}
		if n := j.task("a").served(); n < 20 || n > 300 {
			t.Errorf("asked %d times in 3 s", n)
		}
		// A body that is too large to be kept.
		j.assign(3, "aabb")
		large := strings.Repeat("x", maxKept+1)
		if got, err := post(io.MultiReader(strings.NewReader(large)), time.Minute); got != "421" || err != nil {
			t.Errorf("a large body: %q, %v", got, err)
		}
		// But one that can be had again.
		go func() {
			_, err := post(strings.NewReader(large), time.Minute)
			done <- err
		}()
		time.Sleep(time.Second)
		j.assign(4, "abbb")
		if err := <-done; err != nil {
			t.Error(err)
		}
		// It never has an owner: the deadline is the context's, or Patience.
		j.assign(5, "aabb")
		_, err := post(strings.NewReader("x"), 2*time.Second)
		var refused clerk.Refused
		if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &refused) || refused.Task != "a" || refused.Generation != 1 {
			t.Errorf("within a deadline: %v", err)
		}
		began := time.Now()
		if _, err := get(t, tr, key); !errors.As(err, &refused) {
			t.Errorf("without a deadline: %v", err)
		}
		if d := time.Since(began); d < 9*time.Second || d > 11*time.Second {
			t.Errorf("it took %s", d)
		}
		j.stop(tr)
	})
}

// TestRefusalAsItMoves: an assignment that arrives while a request is under way to
// the former owner is known when that refuses.
func TestRefusalAsItMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newTestJob(t, consistent, "aabb")
		tr := j.transport(nil)
		var moved time.Time
		j.task("a").answers(func(w http.ResponseWriter, r *http.Request) {
			if j.task("a").served() == 10 {
				j.assign(2, "abbb")
				moved = time.Now()
			}
			refuse("a")(w, r)
		})
		got, err := get(t, tr, keyIn(1, 4))
		if took := time.Since(moved); got != "b" || err != nil || j.task("a").served() != 10 || took != 0 {
			t.Errorf("served by %q after %d refusals and %s, %v", got, j.task("a").served(), took, err)
		}
		j.stop(tr)
	})
}

// TestLost: a request whose answer a task held back may have been carried out, so only
// an idempotent one is sent again.
func TestLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newTestJob(t, consistent, "a")
		tr := j.transport(nil)
		n := 0
		j.task("a").answers(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			if n++; n%3 != 0 {
				lose("a")(w, r)
			}
		})
		for _, c := range []struct {
			method, header string
			mark           bool
			again          bool
		}{
			{method: "GET", again: true},
			{method: "POST"},
			{method: "DELETE"},
			{method: "POST", header: "Idempotency-Key", again: true},
			{method: "POST", mark: true, again: true},
		} {
			ctx := clerk.WithKey(t.Context(), "k")
			if c.mark {
				ctx = clerk.WithIdempotent(ctx)
			}
			req, _ := http.NewRequestWithContext(ctx, c.method, "http://profiles", iotest.OneByteReader(strings.NewReader("small")))
			if c.header != "" {
				req.Header.Set(c.header, "1")
			}
			n = 0
			resp, err := tr.RoundTrip(req)
			if err != nil {
				t.Fatalf("%+v: %v", c, err)
			}
			resp.Body.Close()
			lost, isLost := LostOf(resp)
			if isLost == c.again || !c.again && (n != 1 || lost.Task != "a" || lost.Generation != 1) || c.again && n != 3 {
				t.Errorf("%+v: %d, sent %d times, %+v", c, resp.StatusCode, n, lost)
			}
		}
		j.metric("slicer_clerkhttp_retries_total{job=job,reason=lost} 6")
		j.metric("slicer_clerk_ownership_lost_total{job=job} 6")
		// For ever: no caller is told that nothing was done, though it was refused later.
		j.task("a").answers(func(w http.ResponseWriter, r *http.Request) {
			if n++; n == 1 {
				lose("a")(w, r)
			} else {
				refuse("a")(w, r)
			}
		})
		n = 0
		_, err := get(t, tr, "k")
		var refused clerk.Refused
		var lost clerk.Lost
		if errors.As(err, &refused) || !errors.As(err, &lost) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("for ever: %v", err)
		}
		// Without the header, or with another code, it is an answer like any other.
		for _, h := range []http.HandlerFunc{
			func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(409) },
			func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set(httpkey.HeaderLost, "a")
				w.WriteHeader(503)
			},
		} {
			j.task("a").answers(h)
			if got, err := get(t, tr, "k"); err != nil || got != "409" && got != "503" {
				t.Errorf("%q, %v", got, err)
			}
		}
		j.stop(tr)
	})
}

// TestNotARefusal: 421 without the header is an answer like any other.
func TestNotARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newTestJob(t, consistent, "a")
		tr := j.transport(nil)
		j.task("a").answers(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(421) })
		if got, err := get(t, tr, "k"); got != "421" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		j.task("a").answers(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(httpkey.HeaderRefused, strings.Repeat("x", 1000))
			w.Header().Set(httpkey.HeaderGeneration, "-5")
			w.WriteHeader(421)
		})
		if got, err := get(t, tr, "k"); got != "421" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		j.stop(tr)
	})
}
