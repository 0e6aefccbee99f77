package clerkgrpc

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/clerk"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// expect compares a registry's metrics, given as name{labels} value, with what
// they should be.
func (b *bed) expect(r *prometheus.Registry, want map[string]float64) {
	b.t.Helper()
	families, err := r.Gather()
	if err != nil {
		b.t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				if n := l.GetName(); n == "cause" || n == "result" {
					name += " " + l.GetValue()
				}
			}
			got[name] += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	for name, v := range want {
		if got[name] != v {
			b.t.Errorf("%s is %v, want %v", name, got[name], v)
		}
	}
}

// TestOwnerDies: in affinity mode others answer for a dead owner, the same one for
// a key, until it is back.
func TestOwnerDies(t *testing.T) {
	r := prometheus.NewRegistry()
	run(t, Config{Clerk: clerk.Config{Registerer: r}}, func(b *bed) {
		tasks := three()
		for _, task := range tasks {
			b.serve(task)
		}
		b.put(tasks, each...)
		key := keyOf(0, 3)
		b.answers(key, "a")
		b.kill(tasks[0])
		instead, err := b.ask(clerk.WithKey(b.t.Context(), key))
		if err != nil || instead == "a" {
			b.t.Fatalf("%q, %v", instead, err)
		}
		for range 20 {
			b.answers(key, instead)
		}
		b.answers(keyOf(1, 3), "b")
		b.expect(r, map[string]float64{
			"slicer_clerkgrpc_elsewhere_total": 21, "slicer_clerk_connections": 2,
			"slicer_clerk_connections_opened_total warm": 3, "slicer_clerk_connections_closed_total failed": 1,
			"slicer_clerk_selections_total found": 2, "slicer_clerk_selections_total not_found": 21,
		})
		b.serve(tasks[0])
		time.Sleep(10 * time.Second)
		b.answers(key, "a")
		// All are gone: that is told at once.
		for _, task := range tasks {
			b.kill(task)
		}
		time.Sleep(time.Second)
		began := time.Now()
		_, err = b.ask(clerk.WithKey(b.t.Context(), key))
		b.fails(err, codes.Unavailable, "none of the 3 tasks")
		if time.Since(began) > time.Second {
			b.t.Errorf("told after %v", time.Since(began))
		}
		if problems, err := testutil.GatherAndLint(r); err != nil || len(problems) > 0 {
			b.t.Errorf("%v, %v", problems, err)
		}
	})
}

// TestRestart: a task that is started again is not taken for the one that failed.
func TestRestart(t *testing.T) {
	run(t, Config{}, func(b *bed) {
		tasks := three()
		for _, task := range tasks {
			b.serve(task)
		}
		b.put(tasks, each...)
		b.answers(keyOf(0, 3), "a")
		b.kill(tasks[0])
		time.Sleep(time.Minute) // so that gRPC waits long between attempts
		again := append([]assignment.Task(nil), tasks...)
		again[0].Incarnation++
		b.serve(again[0])
		b.put(again, each...)
		b.answers(keyOf(0, 3), "a")
		// It may move as well.
		moved := append([]assignment.Task(nil), again...)
		moved[0].Incarnation++
		moved[0].Address = "10.0.0.9:80"
		b.serve(moved[0])
		b.put(moved, each...)
		b.kill(again[0])
		b.answers(keyOf(0, 3), "a")
	})
}

// TestSilentOwner: an owner that does not even refuse a connection is given up
// after a second, and tried on.
func TestSilentOwner(t *testing.T) {
	run(t, Config{}, func(b *bed) {
		tasks := three()
		b.hang[tasks[0].Address] = true
		b.serve(tasks[1])
		b.serve(tasks[2])
		b.put(tasks, each...)
		began := time.Now()
		got, err := b.ask(clerk.WithKey(b.t.Context(), keyOf(0, 3)))
		if took := time.Since(began); err != nil || got == "a" || took < patience || took > 2*patience {
			b.t.Errorf("%q, %v after %v", got, err, took)
		}
		b.mu.Lock()
		delete(b.hang, tasks[0].Address)
		b.mu.Unlock()
		b.serve(tasks[0])
		time.Sleep(time.Minute)
		b.answers(keyOf(0, 3), "a")
	})
}

// TestReplicas: of several owners those that drain or fail are avoided, and no other task
// is asked.
func TestReplicas(t *testing.T) {
	r := prometheus.NewRegistry()
	run(t, Config{Clerk: clerk.Config{Registerer: r}}, func(b *bed) {
		tasks := three()
		for _, task := range tasks {
			b.serve(task)
		}
		b.put(tasks, []uint32{0, 1}, []uint32{2})
		key := keyOf(0, 2)
		count := func(n int) map[string]int {
			seen := map[string]int{}
			for range n {
				got, err := b.ask(clerk.WithKey(b.t.Context(), key))
				if err != nil {
					b.t.Error(err)
				}
				seen[got]++
			}
			return seen
		}
		if seen := count(400); seen["a"] < 80 || seen["b"] < 80 {
			b.t.Errorf("owners are asked %v", seen)
		}
		draining := append([]assignment.Task(nil), tasks...)
		draining[0].State = assignment.TaskDraining
		b.put(draining, []uint32{0, 1}, []uint32{2})
		if seen := count(10); seen["b"] != 10 {
			b.t.Errorf("while a drains, owners are asked %v", seen)
		}
		// One that drains is better than one that fails.
		b.kill(tasks[1])
		if seen := count(10); seen["a"] != 10 {
			b.t.Errorf("with b dead, owners are asked %v", seen)
		}
		b.expect(r, map[string]float64{"slicer_clerkgrpc_elsewhere_total": 0})
	})
}

// TestConsistentWaits: in consistent mode no other task answers for a dead owner.
func TestConsistentWaits(t *testing.T) {
	run(t, Config{}, func(b *bed) {
		b.mode(slicerv1.Mode_MODE_CONSISTENT)
		tasks := three()
		for _, task := range tasks {
			b.serve(task)
		}
		b.put(tasks, each...)
		key := keyOf(0, 3)
		b.answers(key, "a")
		b.kill(tasks[0])
		began := time.Now()
		_, err := b.ask(clerk.WithKey(b.t.Context(), key))
		b.fails(err, codes.DeadlineExceeded, "")
		if time.Since(began) < limit {
			b.t.Errorf("failed after %v", time.Since(began))
		}
		done := make(chan string)
		go func() {
			got, _ := b.ask(clerk.WithKey(b.t.Context(), key))
			done <- got
		}()
		time.Sleep(2 * time.Second)
		b.put(tasks, []uint32{1}, []uint32{1}, []uint32{2})
		if got := <-done; got != "b" {
			b.t.Errorf("the new owner did not answer: %q", got)
		}
	})
}

// TestRefused: an RPC that a task refuses goes to the newest owner.
func TestRefused(t *testing.T) {
	r := prometheus.NewRegistry()
	run(t, Config{Clerk: clerk.Config{Registerer: r}}, func(b *bed) {
		b.mode(slicerv1.Mode_MODE_CONSISTENT)
		tasks, servers := b.serveThree()
		b.put(tasks, each...)
		key := keyOf(0, 3)
		ctx := clerk.WithKey(b.t.Context(), key)
		// The owner does not know yet.
		servers[0].refuse = 3
		b.answers(key, "a")
		servers[0].refuse = 3
		if n := receive(b, ctx); n != 3 || servers[0].count() != 8 {
			b.t.Errorf("%d messages, %d RPCs at the owner", n, servers[0].count())
		}
		// The owner is another.
		servers[0].refuse = 1 << 30
		done := make(chan string)
		go func() {
			got, _ := b.ask(ctx)
			done <- got
		}()
		time.Sleep(time.Second)
		b.put(tasks, []uint32{1}, []uint32{1}, []uint32{2})
		if got := <-done; got != "b" {
			b.t.Errorf("%q answers", got)
		}
		// What a task's own request to another job has come to is not its refusal.
		servers[1].refuse, servers[1].refuseAs = 1, "another"
		before := servers[1].count()
		_, err := b.ask(ctx)
		b.fails(err, codes.Unavailable, "not mine")
		if n := servers[1].count() - before; n != 1 {
			b.t.Errorf("it was sent %d times", n)
		}
		// No task owns it in time.
		servers[1].refuse, servers[1].refuseAs = 1<<30, ""
		_, err = b.ask(ctx)
		b.fails(err, codes.DeadlineExceeded, `task "b"`)
		short, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		s, err := b.stub.SayHellos(short, wrapperspb.String(""))
		if err == nil {
			_, err = s.Recv()
		}
		b.fails(err, codes.DeadlineExceeded, `task "b"`)
	})
}

// TestLost: an RPC whose answer was held back may have been carried out, so it is sent
// again only if it is marked as safe for that.
func TestLost(t *testing.T) {
	const retried = `{"methodConfig": [{"name": [{}], "retryPolicy": {
		"maxAttempts": 2, "initialBackoff": "0.1s", "maxBackoff": "1s", "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"]}}]}`
	for _, c := range []struct {
		what, config string
		mark         func(context.Context) context.Context
		again        bool
	}{
		{"not marked", "", func(ctx context.Context) context.Context { return ctx }, false},
		{"marked", "", clerk.WithIdempotent, true},
		{"with a retry policy", retried, func(ctx context.Context) context.Context { return ctx }, true},
	} {
		r := prometheus.NewRegistry()
		run(t, Config{ServiceConfig: c.config, Clerk: clerk.Config{Registerer: r}}, func(b *bed) {
			b.mode(slicerv1.Mode_MODE_CONSISTENT)
			tasks := three()[:1]
			owner := b.serve(tasks[0])
			b.put(tasks, []uint32{0})
			ctx := c.mark(clerk.WithKey(b.t.Context(), "k"))
			want := 1
			if c.again {
				want = 4
			}
			owner.lose = 3
			got, err := b.ask(ctx)
			if n := owner.count(); n != want {
				b.t.Errorf("%s: sent %d times, want %d", c.what, n, want)
			}
			lost, isLost := clerk.LostFromStatus(err)
			if c.again && (err != nil || got != "a") || !c.again && (!isLost || lost.Task != "a" || status.Code(err) != codes.Aborted) {
				b.t.Errorf("%s: %q, %v", c.what, got, err)
			}
			owner.lose = 3
			s, err := b.stub.SayHellos(ctx, wrapperspb.String("name"))
			if err == nil {
				_, err = s.Recv()
			}
			if _, isLost := clerk.LostFromStatus(err); isLost == c.again || (err == nil) != c.again || owner.count() != 2*want {
				b.t.Errorf("%s: a stream: %v, %d RPCs in all", c.what, err, owner.count())
			}
			if c.again {
				b.expect(r, map[string]float64{"slicer_clerkgrpc_ownership_lost_total": 6, "slicer_clerk_ownership_lost_total": 6})
			}
		})
	}
}

// TestStreamsThatAreUnderWay are not sent again.
func TestStreamsThatAreUnderWay(t *testing.T) {
	run(t, Config{}, func(b *bed) {
		b.mode(slicerv1.Mode_MODE_CONSISTENT)
		tasks := three()[:1]
		s := b.serve(tasks[0])
		b.put(tasks, []uint32{0})
		ctx, cancel := context.WithTimeout(clerk.WithKey(b.t.Context(), "k"), limit)
		defer cancel()
		stream, err := b.stub.SayHellos(ctx, wrapperspb.String(""))
		if err != nil {
			b.t.Fatal(err)
		}
		for range 3 {
			if _, err := stream.Recv(); err != nil {
				b.t.Error(err)
			}
		}
		if _, err := stream.Recv(); !errors.Is(err, io.EOF) || s.count() != 1 {
			b.t.Errorf("%v; %d streams", err, s.count())
		}
		if md, err := stream.Header(); err != nil || len(md) == 0 {
			b.t.Errorf("header %v, %v", md, err)
		}
	})
}

// TestNotServing: a task whose health service says so gets no RPCs, if it is asked.
func TestNotServing(t *testing.T) {
	run(t, Config{HealthCheck: true}, func(b *bed) {
		tasks := three()
		h := health.NewServer()
		for i, task := range tasks {
			b.health = nil
			if i == 0 {
				b.health = h
			}
			b.serve(task)
		}
		b.put(tasks, each...)
		b.answers(keyOf(0, 3), "a")
		b.answers(keyOf(1, 3), "b") // which has no health service
		h.SetServingStatus("", healthv1.HealthCheckResponse_NOT_SERVING)
		synctest.Wait()
		if got, err := b.ask(clerk.WithKey(b.t.Context(), keyOf(0, 3))); err != nil || got == "a" {
			b.t.Errorf("%q, %v", got, err)
		}
		h.SetServingStatus("", healthv1.HealthCheckResponse_SERVING)
		synctest.Wait()
		b.answers(keyOf(0, 3), "a")
	})
}
