package sliceletgrpc

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/subscriber/subscribertest"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// replicate gives all keys to both tasks.
func (b *bed) replicate(g assignment.Generation) {
	b.t.Helper()
	synctest.Wait()
	a := subscribertest.Task("a", 0)
	for _, m := range b.plane.Heard() {
		if task := m.GetHello().GetTask(); task != nil {
			a.Incarnation, a.Address = task.GetIncarnation(), task.GetAddress()
		}
	}
	var p assignment.Placement
	p.Add(0, 0, 1)
	next, err := assignment.Successor(nil, assignment.Header{Job: "job", StoreID: 1, Generation: g}, []assignment.Task{a, subscribertest.Task("b", 1)}, p)
	if err != nil {
		b.t.Fatal(err)
	}
	b.plane.Put(next)
	synctest.Wait()
}

// TestOverloaded: what a handler says that has no room depends on whether another task
// could have some.
func TestOverloaded(t *testing.T) {
	run(t, Config{}, func(b *bed) {
		b.service.full = true
		key := func() string { return keyOf(0) }
		refused := func(when, key, before string, code codes.Code, scope slicerv1.Overloaded_Scope, pushed bool) {
			t.Helper()
			ctx := b.t.Context()
			if key != "" {
				ctx = b.with(KeyHeader, key)
			}
			if before != "" {
				ctx = metadata.AppendToOutgoingContext(ctx, AttemptHeader, before)
			}
			var trailer metadata.MD
			err := b.ask(ctx, "x", grpc.Trailer(&trailer))
			var m *slicerv1.Overloaded
			for _, d := range status.Convert(err).Details() {
				m, _ = d.(*slicerv1.Overloaded)
			}
			if status.Code(err) != code || m.GetScope() != scope || m.GetTask() != "a" || m.GetJob() != "job" {
				t.Errorf("%s: %v with %v, want %s with %s", when, err, m, code, scope)
			}
			if (len(trailer.Get(pushback)) == 1) != pushed {
				t.Errorf("%s: trailer %v", when, trailer)
			}
		}
		b.plane.Say(&slicerv1.Status{TakesReports: true, Mode: slicerv1.Mode_MODE_AFFINITY})
		b.assign(5, 0, 1)
		refused("one owner", key(), "", codes.ResourceExhausted, slicerv1.Overloaded_SCOPE_ALL, true)
		refused("no key", "", "", codes.Unavailable, slicerv1.Overloaded_SCOPE_TASK, false)
		b.replicate(6)
		refused("two owners", key(), "", codes.Unavailable, slicerv1.Overloaded_SCOPE_TASK, false)
		for range 3 {
			refused("two owners", key(), "1", codes.Unavailable, slicerv1.Overloaded_SCOPE_TASK, false)
			time.Sleep(3 * time.Second)
		}
		for range 40 {
			_ = b.ask(b.with(AttemptHeader, "2"), "x")
		}
		refused("many retries", key(), "", codes.ResourceExhausted, slicerv1.Overloaded_SCOPE_ALL, true)
		refused("many retries, no key", "", "", codes.ResourceExhausted, slicerv1.Overloaded_SCOPE_ALL, true)
		time.Sleep(3 * time.Second)
		refused("no more of them", key(), "", codes.Unavailable, slicerv1.Overloaded_SCOPE_TASK, false)
		// What is no number is a first attempt.
		for range 20 {
			_ = b.ask(b.with(AttemptHeader, "many"), "x")
		}
		refused("no numbers", key(), "-1", codes.Unavailable, slicerv1.Overloaded_SCOPE_TASK, false)
		for range 40 {
			_ = b.ask(b.with(previousAttempts, "1"), "x")
		}
		refused("retries of gRPC's own", key(), "", codes.ResourceExhausted, slicerv1.Overloaded_SCOPE_ALL, true)
		time.Sleep(3 * time.Second)
		b.plane.Say(&slicerv1.Status{TakesReports: true, Mode: slicerv1.Mode_MODE_CONSISTENT})
		synctest.Wait()
		if Overloaded(t.Context()) == nil || status.Code(Overloaded(t.Context())) != codes.ResourceExhausted {
			t.Error("without an RPC it is no error of its own")
		}
	})
}
