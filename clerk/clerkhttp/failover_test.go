package clerkhttp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slicer-project/slicer/clerk"
)

// TestAffinityFailover: a dead owner's requests go elsewhere, and soon without
// trying it.
func TestAffinityFailover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newTestJob(t, affinity, "abab")
		tr := j.transport(nil)
		j.kill("a")
		for range 10 {
			if got, err := get(t, tr, keyIn(0, 4)); got != "b" || err != nil {
				t.Fatalf("served by %q, %v", got, err)
			}
		}
		if n := j.task("a").dials; n != 1 {
			t.Errorf("the dead task was dialled %d times", n)
		}
		req, _ := http.NewRequestWithContext(clerk.WithKey(t.Context(), keyIn(0, 4)), "POST", "http://profiles", io.MultiReader(strings.NewReader("body")))
		time.Sleep(time.Minute) // it is tried again, once
		if got, err := do(t, tr, req); got != "b" || err != nil || j.task("b").bodies[10] != "body" {
			t.Errorf("a POST: %q, %v, bodies %q", got, err, j.task("b").bodies)
		}
		if n := j.task("a").dials; n != 2 {
			t.Errorf("the dead task was dialled %d times", n)
		}
		j.metric("slicer_clerkhttp_requests_total{job=job,result=other} 11")
		j.metric("slicer_clerkhttp_retries_total{job=job,reason=failed} 2")
		j.start("a")
		time.Sleep(time.Minute)
		if got, err := get(t, tr, keyIn(0, 4)); got != "a" || err != nil {
			t.Errorf("after it is back: %q, %v", got, err)
		}
		j.kill("a")
		j.kill("b")
		if _, err := get(t, tr, keyIn(0, 4)); !isUnreached(err) {
			t.Errorf("with all tasks dead: %v", err)
		}
		j.stop(tr)
	})
}

// TestDeathUnderWay: a request that may be carried out twice does not wait for a
// task that stands still longer than until that is said to be dead. One that was there
// only just goes on even if the budget for retries is spent.
func TestDeathUnderWay(t *testing.T) {
	for _, c := range []struct {
		underWay time.Duration
		spent    bool
		want     string
	}{{time.Second, false, "b"}, {time.Second, true, ""}, {50 * time.Millisecond, true, "b"}} {
		t.Run(fmt.Sprint(c.underWay, c.spent), func(t *testing.T) { deathUnderWay(t, c.underWay, c.spent, c.want) })
	}
}

func deathUnderWay(t *testing.T, underWay time.Duration, spent bool, want string) {
	synctest.Test(t, func(t *testing.T) {
		j := newTestJob(t, affinity, "abcb")
		tr := j.transport(nil)
		still, slow := make(chan struct{}), make(chan struct{})
		j.task("a").answers(func(http.ResponseWriter, *http.Request) { <-still })
		j.task("c").answers(func(w http.ResponseWriter, _ *http.Request) { // answers, by and by
			fmt.Fprint(w, "be")
			_ = http.NewResponseController(w).Flush()
			<-slow
			fmt.Fprint(w, "gun")
		})
		ctx := t.Context()
		twice, once, begun := ask(t, tr, ctx, "GET", keyIn(0, 4)), ask(t, tr, ctx, "POST", keyIn(0, 4)), ask(t, tr, ctx, "GET", keyIn(2, 4))
		time.Sleep(underWay)
		for spent && j.clerk.MayRetry() {
		}
		j.assign(2, "bbbb")
		select {
		case got := <-twice:
			if got.from != want || (got.err == nil) != (want != "") {
				t.Errorf("served by %q, %v", got.from, got.err)
			}
		default:
			t.Error("it waits for a task that is dead")
		}
		close(still)
		close(slow)
		if got := <-once; got.from != "" || got.err != nil || j.task("b").served() != len(want) {
			t.Errorf("a POST was answered %q, %v, and sent again", got.from, got.err)
		}
		if got := <-begun; got.from != "begun" || got.err != nil {
			t.Errorf("what a task had begun to answer before its death: %q, %v", got.from, got.err)
		}
		j.metric(fmt.Sprintf("slicer_clerkhttp_retries_total{job=job,reason=failed} %d", len(want)))
		j.stop(tr)
	})
}

// TestBrokenOff: what reached a task that broke off is sent again only if that
// does no harm.
func TestBrokenOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newTestJob(t, affinity, "ab")
		tr := j.transport(nil)
		j.task("a").answers(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
		for _, c := range []struct {
			method, header, want string
		}{{"GET", "", "b"}, {"POST", "", ""}, {"PUT", "", ""}, {"POST", "Idempotency-Key", "b"}} {
			req, _ := http.NewRequestWithContext(clerk.WithKey(t.Context(), keyIn(0, 2)), c.method, "http://profiles", nil)
			if c.header != "" {
				req.Header.Set(c.header, "1")
			}
			before := j.task("a").served()
			if got, err := do(t, tr, req); got != c.want || (err != nil) != (c.want == "") {
				t.Errorf("%s: %q, %v", c.method, got, err)
			}
			if n := j.task("a").served() - before; n != 1 {
				t.Errorf("%s was sent %d times", c.method, n)
			}
		}
		// With a body that is read by then, but can be had again.
		req, _ := http.NewRequestWithContext(clerk.WithKey(t.Context(), keyIn(0, 2)), "GET", "http://profiles", strings.NewReader("again"))
		if got, err := do(t, tr, req); got != "b" || err != nil {
			t.Errorf("GET with a body: %q, %v", got, err)
		}
		if b := j.task("b").bodies; b[len(b)-1] != "again" {
			t.Errorf("bodies %q", b)
		}
		j.stop(tr)
	})
}

// TestRetryBudget: of requests that their task does not answer a tenth goes to another
// one, and it is the clerk's budget, which others use too.
func TestRetryBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newTestJob(t, affinity, "ab")
		tr := j.transport(nil)
		j.task("a").answers(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
		const requests = 1000
		served := 0
		for range requests {
			time.Sleep(10 * time.Millisecond)
			if got, err := get(t, tr, keyIn(0, 2)); err == nil && got == "b" {
				served++
			} else if err == nil {
				t.Fatalf("answered by %q", got)
			}
		}
		sent := j.task("a").served() + j.task("b").served()
		if sent > requests*11/10+1 || sent < requests*109/100 || served != j.task("b").served() {
			t.Errorf("sent %d times, %d served", sent, served)
		}
		time.Sleep(20 * time.Second)
		for j.clerk.MayRetry() {
		}
		before := j.task("b").served()
		if _, err := get(t, tr, keyIn(0, 2)); err == nil || j.task("b").served() != before {
			t.Errorf("sent again though others have used the budget up: %v", err)
		}
		j.stop(tr)
	})
}

// TestResponseTimeout: a task that does not begin to answer in time is left by requests
// that may go elsewhere; while there are too many of these they wait.
func TestResponseTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newTestJob(t, affinity, "ab")
		const limit = 100 * time.Millisecond
		tr := j.transport(func(c *Config) { c.ResponseTimeout = limit })
		var takes atomic.Int64
		j.task("a").answers(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			select {
			case <-time.After(time.Duration(takes.Load())):
				fmt.Fprint(w, "a")
			case <-r.Context().Done():
			}
		})
		for _, c := range []struct {
			method      string
			takes, want time.Duration
			budget      bool
			by          string // empty for none
		}{
			{"GET", 3 * limit, limit, true, "b"},
			{"GET", limit / 2, limit / 2, true, "a"},
			{"POST", 3 * limit, limit, true, ""},
			{"POST", limit / 2, limit / 2, true, "a"},
			{"GET", limit * 3 / 2, limit * 3 / 2, false, "a"},
			{"GET", time.Hour, 2 * limit, false, ""}, // as long as both tasks together
			{"POST", 3 * limit, limit, false, ""},
		} {
			time.Sleep(20 * time.Second)
			for !c.budget && j.clerk.MayRetry() {
			}
			takes.Store(int64(c.takes))
			req, _ := http.NewRequestWithContext(clerk.WithKey(t.Context(), keyIn(0, 2)), c.method, "http://profiles", strings.NewReader("x"))
			began := time.Now()
			got, err := do(t, tr, req)
			if took := time.Since(began); got != c.by || took != c.want || (err == nil) != (c.by != "") || err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%+v: %q, %v after %s", c, got, err, took)
			}
		}
		j.stop(tr)
	})
}

// TestConsistentOwnerDown: only the owner will do.
func TestConsistentOwnerDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newTestJob(t, consistent, "ab")
		tr := j.transport(nil)
		j.kill("a")
		done := make(chan string)
		go func() {
			got, err := get(t, tr, keyIn(0, 2))
			if err != nil {
				t.Error(err)
			}
			done <- got
		}()
		time.Sleep(time.Second)
		if j.task("b").served() > 0 {
			t.Error("another task was asked")
		}
		j.assign(2, "bb")
		if got := <-done; got != "b" {
			t.Errorf("served by %q", got)
		}
		j.stop(tr)
	})
}
