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
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/httpkey"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/loadbalance/policy"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

const (
	affinity   = slicerv1.Mode_MODE_AFFINITY
	consistent = slicerv1.Mode_MODE_CONSISTENT
)

func TestRoutesByKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newTestJob(t, affinity, "abca")
		tr := j.transport(nil)
		for i, want := range "abca" {
			if got, err := get(t, tr, keyIn(i, 4)); got != string(want) || err != nil {
				t.Errorf("slice %d is served by %q, %v; want %c", i, got, err, want)
			}
		}
		r := j.task("b").requests[0]
		if r.Host != "profiles" || r.Header.Get(httpkey.HeaderGeneration) != "1" || r.Header.Get(httpkey.HeaderKey) != httpkey.EncodeKey(keyIn(1, 4)) {
			t.Errorf("the task got host %q and %v", r.Host, r.Header)
		}
		j.assign(2, "bbbb")
		if got, err := get(t, tr, keyIn(0, 4)); got != "b" || err != nil {
			t.Errorf("after the move slice 0 is served by %q, %v", got, err)
		}
		j.metric("slicer_clerkhttp_requests_total{job=job,result=owner} 5")
		j.lint()
		j.stop(tr)
		if _, err := get(t, tr, "k"); !errors.Is(err, ErrClosed) {
			t.Errorf("closed: %v", err)
		}
	})
}

func TestKeyless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newTestJob(t, affinity, "abcd")
		for _, kind := range []policy.Kind{policy.RoundRobin, policy.LeastLoaded} {
			tr := j.transport(func(c *Config) { c.Policy = kind })
			served := map[string]int{}
			for range 40 {
				name, err := get(t, tr, "-")
				if err != nil {
					t.Fatal(err)
				}
				served[name]++
			}
			if len(served) != 4 || kind == policy.RoundRobin && served["a"] != 10 {
				t.Errorf("%s: served by %v", kind, served)
			}
			for _, b := range tr.view.Load().backends {
				if n := b.outstanding.Load(); n != 0 {
					t.Errorf("%s has %d requests outstanding", b.name, n)
				}
			}
			j.metric("slicer_clerkhttp_requests_total{job=job,result=keyless} 40")
			if err := tr.Close(); err != nil {
				t.Error(err)
			}
		}
		tr := j.transport(func(c *Config) {
			c.Missing = Refuse
			c.Key = func(r *http.Request) (string, bool) { return r.Header.Get("X-User"), r.Header["X-User"] != nil }
		})
		if _, err := get(t, tr, "-"); !errors.Is(err, ErrNoKey) {
			t.Errorf("without a key: %v", err)
		}
		req, _ := http.NewRequest("GET", "http://profiles", nil)
		req.Header.Set("X-User", keyIn(2, 4))
		req.Header.Set("Slicer-Forged", "x")
		if got, err := do(t, tr, req); got != "c" || err != nil {
			t.Errorf("a key by function: %q, %v", got, err)
		}
		if h := j.task("c").requests[len(j.task("c").requests)-1].Header; h.Get("Slicer-Forged") != "" || req.Header.Get(httpkey.HeaderKey) != "" {
			t.Errorf("headers %v became %v", req.Header, h)
		}
		if _, err := get(t, tr, strings.Repeat("x", httpkey.MaxLen+1)); err == nil || !strings.Contains(err.Error(), "key: \"4097 bytes\" is not allowed") {
			t.Errorf("a long key: %v", err)
		}
		j.stop(tr)
	})
}

func TestWaitsForTheFirstAssignment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newTestJob(t, affinity, "a")
		ck, err := clerk.New(clerk.Config{Job: "job", Distributors: []string{"10.0.0.2:1"}, DialOptions: j.net.DialOptions()})
		if err != nil {
			t.Fatal(err)
		}
		// Longer than the clerk waits at most before it looks for a Distributor again.
		tr := j.transport(func(c *Config) { c.Clerk = ck })
		began := time.Now()
		if _, err := get(t, tr, "k"); !errors.Is(err, ErrNoTask) || !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, clerk.ErrUnavailable) {
			t.Errorf("without an assignment: %v", err)
		}
		if d := time.Since(began); d != defaultPatience {
			t.Errorf("it waited %s", d)
		}
		late := j.net.Start("10.0.0.2:1")
		done := make(chan string)
		go func() {
			got, err := get(t, tr, "k")
			if err != nil {
				t.Error(err)
			}
			done <- got
		}()
		time.Sleep(100 * time.Millisecond)
		late.Put(j.last)
		if got := <-done; got != "a" {
			t.Errorf("served by %q", got)
		}
		tr.Close()
		ck.Close()
		late.Stop()
		j.stop()
	})
}

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
			t.Errorf("with everybody dead: %v", err)
		}
		j.stop(tr)
	})
}

// TestDeathUnderWay: a request that may be carried out twice does not wait for a
// task that stands still longer than until that is said to be dead.
func TestDeathUnderWay(t *testing.T) {
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
		type answer struct {
			from string
			err  error
		}
		ask := func(method, key string) chan answer {
			got := make(chan answer, 1)
			req, err := http.NewRequestWithContext(clerk.WithKey(t.Context(), key), method, "http://profiles", nil)
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				from, err := do(t, tr, req)
				got <- answer{from, err}
			}()
			return got
		}
		twice, once, begun := ask("GET", keyIn(0, 4)), ask("POST", keyIn(0, 4)), ask("GET", keyIn(2, 4))
		synctest.Wait()
		j.assign(2, "bbbb")
		select {
		case got := <-twice:
			if got.from != "b" || got.err != nil {
				t.Errorf("served by %q, %v", got.from, got.err)
			}
		default:
			t.Error("it waits for a task that is dead")
		}
		close(still)
		close(slow)
		if got := <-once; got.from != "" || got.err != nil || j.task("b").served() != 1 {
			t.Errorf("a POST was answered %q, %v, and sent again", got.from, got.err)
		}
		if got := <-begun; got.from != "begun" || got.err != nil {
			t.Errorf("what a task had begun to answer before its death: %q, %v", got.from, got.err)
		}
		j.metric("slicer_clerkhttp_retries_total{job=job,reason=failed} 1")
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
		// Nobody ever owns it: the deadline is the context's, or Patience.
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

// TestConsistentOwnerDown: nobody but the owner will do.
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
			t.Error("somebody else was asked")
		}
		j.assign(2, "bb")
		if got := <-done; got != "b" {
			t.Errorf("served by %q", got)
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

func TestReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newTestJob(t, affinity, "abc")
		// One slice of a and b, one of c.
		tasks := []assignment.Task{j.last.Task(0), j.last.Task(1), j.last.Task(2)}
		a, err := assignment.Successor(j.last, assignment.Header{Job: "job", StoreID: 1, Generation: 2}, tasks,
			assignment.Placement{Starts: assignment.Equal(2), Offsets: []uint32{0, 2, 3}, Owners: []uint32{0, 1, 2}})
		if err != nil {
			t.Fatal(err)
		}
		j.server.Put(a)
		synctest.Wait()
		tr := j.transport(nil)
		count := func() map[string]int {
			n := map[string]int{}
			for range 20 {
				got, err := get(t, tr, keyIn(0, 2))
				if err != nil {
					t.Fatal(err)
				}
				n[got]++
			}
			return n
		}
		if n := count(); n["a"] != 10 || n["b"] != 10 {
			t.Errorf("served by %v", n)
		}
		j.kill("a")
		if n := count(); n["b"] != 20 {
			t.Errorf("with a dead, served by %v", n)
		}
		j.metric("slicer_clerkhttp_requests_total{job=job,result=owner} 40")
		j.stop(tr)
	})
}

// TestConnections: those of tasks that leave are closed at once, those of tasks
// outside the subset when they have been idle, and the clerk counts both.
func TestConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newTestJob(t, affinity, "abcd")
		j.clerk.Close()
		var err error
		j.clerk, err = clerk.New(clerk.Config{
			Job: "job", Distributors: []string{distributor}, DialOptions: j.net.DialOptions(), Registerer: j.metrics,
			Subset: clerk.SubsetConfig{Size: 2, Index: new(int)},
		})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		tr := j.transport(nil)
		for i := range 4 {
			if _, err := get(t, tr, keyIn(i, 4)); err != nil {
				t.Fatal(err)
			}
		}
		j.metric("slicer_clerk_connections_opened_total{cause=warm} 2")
		j.metric("slicer_clerk_connections_opened_total{cause=on_demand} 2")
		j.metric("slicer_clerk_connections{job=job} 4")
		time.Sleep(idleOnDemand + time.Second)
		j.metric("slicer_clerk_connections_closed_total{cause=idle} 2")
		j.metric("slicer_clerk_connections{job=job} 2")
		in := ""
		for _, task := range j.clerk.Subset().Tasks() {
			in += task.Name
		}
		for range 10 {
			if got, err := get(t, tr, "-"); err != nil || !strings.Contains(in, got) {
				t.Errorf("without a key served by %q, %v; the subset is %s", got, err, in)
			}
		}
		// A task of the subset goes, with its connection; another takes its place.
		left := strings.ReplaceAll("abcd", in[:1], "")
		j.assign(2, left)
		j.metric("slicer_clerk_connections_closed_total{cause=task_gone} 1")
		j.metric("slicer_clerk_connections{job=job} 1")
		// The other side ends one.
		j.kill(in[1:])
		synctest.Wait()
		j.metric("slicer_clerk_connections_closed_total{cause=failed} 1")
		if _, err := get(t, tr, keyIn(strings.Index(left, strings.Trim(left, in)[:1]), 3)); err != nil {
			t.Error(err)
		}
		if err := tr.Close(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		j.metric("slicer_clerk_connections_closed_total{cause=shutdown} 1")
		j.metric("slicer_clerk_connections{job=job} 0")
		j.stop(tr)
	})
}

func TestConfigRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newTestJob(t, affinity, "a")
		for field, cfg := range map[string]Config{
			"clerk":    {},
			"missing":  {Clerk: j.clerk, Missing: 2},
			"policy":   {Clerk: j.clerk, Policy: policy.Weighted},
			"patience": {Clerk: j.clerk, Patience: -1},
		} {
			_, err := NewTransport(cfg)
			var fe *assignment.FieldError
			if !errors.As(err, &fe) || fe.Field != field {
				t.Errorf("%v, want one of %s", err, field)
			}
		}
		j.stop()
	})
}
