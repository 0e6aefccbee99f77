package clerkhttp

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
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
			for _, b := range tr.snapshot.Load().backends {
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
		tr := j.transport(func(c *Config) { c.Policy = policy.RoundRobin })
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

// TestInactive: a client that sends nothing has no connections in the end; the next request
// connects to its owner alone.
func TestInactive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newTestJob(t, affinity, "abcd")
		var open atomic.Int64
		for _, task := range j.tasks {
			task.srv.ConnState = func(_ net.Conn, s http.ConnState) {
				switch s {
				case http.StateNew:
					open.Add(1)
				case http.StateClosed:
					open.Add(-1)
				}
			}
		}
		tr := j.transport(func(c *Config) {
			c.Base = DefaultBase()
			c.Base.DialContext = j.dial
		})
		at := func(when string, want int64) {
			t.Helper()
			synctest.Wait()
			if n := open.Load(); n != want {
				t.Errorf("%s the servers have %d connections, want %d", when, n, want)
			}
		}
		for i := range 4 {
			if _, err := get(t, tr, keyIn(i, 4)); err != nil {
				t.Fatal(err)
			}
		}
		at("with requests to all", 4)
		time.Sleep(idleWarm - time.Second)
		at("before they are idle", 4)
		time.Sleep(2 * time.Second)
		at("when they are idle", 0)
		if _, err := get(t, tr, keyIn(2, 4)); err != nil {
			t.Fatal(err)
		}
		at("with the next request", 1)
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
