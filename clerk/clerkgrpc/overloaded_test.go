package clerkgrpc

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/clerk"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// TestOverloadedOwner: an RPC that a task has no room for goes to another owner, which is
// told that it is not the first attempt, and in the end fails with what says that there
// should be no retry.
func TestOverloadedOwner(t *testing.T) {
	run(t, Config{Keyless: AnyTask}, func(b *bed) {
		tasks := three()
		servers := make([]*server, 3)
		for i, task := range tasks {
			servers[i] = b.serve(task)
		}
		b.put(tasks, []uint32{0, 1, 2})
		all := func(full int, noRetry bool) {
			for _, s := range servers {
				s.mu.Lock()
				s.full, s.noRetry = full, noRetry
				s.mu.Unlock()
			}
		}
		counts := func() (n int) {
			for _, s := range servers {
				n += s.count()
			}
			return n
		}
		for name, ctx := range map[string]context.Context{"keyed": clerk.WithKey(b.t.Context(), "k"), "keyless": b.t.Context()} {
			time.Sleep(20 * time.Second) // for the budget
			all(0, false)
			servers[0].full, servers[1].full = 1, 1
			for range 5 {
				if _, err := b.ask(ctx); err != nil {
					t.Errorf("%s: %v, while one has room", name, err)
				}
			}
			if servers[0].full+servers[1].full == 2 {
				t.Errorf("%s: none was full", name)
			}
			time.Sleep(20 * time.Second)
			all(100, false)
			before := counts()
			_, err := b.ask(ctx)
			b.fails(err, codes.ResourceExhausted, "should not be sent again")
			if n := counts() - before; n != clerk.MaxAttempts {
				t.Errorf("%s: %d attempts", name, n)
			}
			for _, s := range servers {
				if s.full != 99 {
					t.Errorf("%s: %s was asked %d times", name, s.name, 100-s.full)
				}
			}
			var attempts string
			for _, s := range servers {
				if v := s.newest().Get(AttemptHeader); len(v) > 0 && v[len(v)-1] > attempts {
					attempts = v[len(v)-1]
				}
			}
			if attempts != "2" {
				t.Errorf("%s: the last attempt says that it was sent %q times before", name, attempts)
			}
			all(100, true)
			before = counts()
			_, err = b.ask(ctx)
			b.fails(err, codes.ResourceExhausted, "should not be sent again")
			if n := counts() - before; n != 1 {
				t.Errorf("%s: %d attempts of what should not be sent again", name, n)
			}
		}
		// What a task's own request to another job has come to says nothing of the task.
		all(100, false)
		for _, s := range servers {
			s.refuseAs = "another"
		}
		before := counts()
		_, err := b.ask(clerk.WithKey(b.t.Context(), "k"))
		b.fails(err, codes.Unavailable, "no room")
		if n := counts() - before; n != 1 {
			t.Errorf("%d attempts", n)
		}
	})
}

// TestOverloadedBudget: retries are a tenth, for all that use the connection.
func TestOverloadedBudget(t *testing.T) {
	run(t, Config{}, func(b *bed) {
		tasks := three()
		servers := make([]*server, 3)
		for i, task := range tasks {
			servers[i] = b.serve(task)
			servers[i].full = 1 << 30
		}
		b.put(tasks, []uint32{0, 1, 2})
		for range 2000 {
			time.Sleep(5 * time.Millisecond)
			_, err := b.ask(clerk.WithKey(b.t.Context(), "k"))
			b.fails(err, codes.ResourceExhausted, "no room")
		}
		n := 0
		for _, s := range servers {
			n += s.count()
		}
		if n < 2150 || n > 2210 {
			t.Errorf("%d attempts of 2000 RPCs", n)
		}
	})
}

// TestOverloadedConsistent: a key has one owner in consistent mode, so an RPC and a stream
// fail at once.
func TestOverloadedConsistent(t *testing.T) {
	run(t, Config{}, func(b *bed) {
		b.mode(slicerv1.Mode_MODE_CONSISTENT)
		tasks := three()
		s := b.serve(tasks[0])
		b.put(tasks, []uint32{0})
		ctx := clerk.WithKey(b.t.Context(), "k")
		s.full = 1
		_, err := b.ask(ctx)
		b.fails(err, codes.ResourceExhausted, "should not be sent again")
		s.full = 1
		stream, err := b.stub.SayHellos(ctx, wrapperspb.String("name"))
		if err == nil {
			_, err = stream.Recv()
		}
		b.fails(err, codes.ResourceExhausted, "should not be sent again")
		if s.count() != 2 {
			t.Errorf("%d attempts", s.count())
		}
	})
}
