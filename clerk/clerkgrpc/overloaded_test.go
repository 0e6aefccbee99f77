package clerkgrpc

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/loadbalance/overload"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"github.com/slicer-project/slicer/test/examples/greeter/hello"
)

// TestOverloadedOwner: an RPC that a task has no room for goes to another owner, which is
// told that it is not the first attempt, and in the end fails with what says that there
// should be no retry.
func TestOverloadedOwner(t *testing.T) {
	run(t, Config{Keyless: AnyTask}, func(b *bed) {
		tasks, servers := b.serveThree()
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
			asked := 0
			for ; asked < 1000 && servers[0].full+servers[1].full == 2; asked++ {
				if _, err := b.ask(ctx); err != nil {
					t.Errorf("%s: %v, while one has room", name, err)
				}
			}
			if asked == 1000 {
				t.Errorf("%s: none was full", name)
			}
			time.Sleep(20 * time.Second)
			all(100, false)
			before := counts()
			_, err := b.ask(ctx)
			b.fails(err, codes.ResourceExhausted, "should not be sent again")
			if n := counts() - before; n != 3 {
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

// TestDrainingHeard: a task that says that it drains gets nothing more that others may serve.
func TestDrainingHeard(t *testing.T) {
	run(t, Config{Keyless: AnyTask}, func(b *bed) {
		tasks, servers := b.serveThree()
		b.put(tasks, []uint32{0, 1, 2})
		for _, ctx := range []context.Context{clerk.WithKey(b.t.Context(), "k"), b.t.Context()} {
			for _, draining := range []bool{true, false} {
				servers[0].mu.Lock()
				servers[0].draining = draining
				servers[0].mu.Unlock()
				before := servers[0].count()
				for range 90 {
					if _, err := b.ask(ctx); err != nil {
						t.Error(err)
					}
				}
				if n := servers[0].count() - before; draining && n > 1 {
					t.Errorf("%d of 90 RPCs went to the task that drains", n)
				}
				b.kill(tasks[0]) // and started anew
				tasks[0].Incarnation++
				servers[0] = b.serve(tasks[0])
				b.put(tasks, []uint32{0, 1, 2})
				time.Sleep(10 * time.Second)
			}
		}
		before := servers[0].count()
		for range 300 {
			_, _ = b.ask(b.t.Context())
		}
		if n := servers[0].count() - before; n < 50 { // six standard deviations less than a third
			t.Errorf("%d of 300 RPCs went to a task that has started anew", n)
		}
	})
}

// TestThrottled: RPCs that a task has said that it refuses are not sent to it, but for trial
// requests; those without a cohort get one.
func TestThrottled(t *testing.T) {
	for _, shared := range []bool{false, true} {
		cfg := Config{Keyless: AnyTask}
		run(t, cfg, func(b *bed) {
			tasks, servers := b.serveThree()
			conn := b.stub
			if shared {
				ck, err := clerk.New(clerk.Config{Job: jobName, Distributors: []string{distributor}, DialOptions: b.net.DialOptions()})
				if err != nil {
					t.Fatal(err)
				}
				defer ck.Close()
				cc := b.dial(Config{Keyless: AnyTask, Shared: ck})
				defer cc.Close()
				conn = hello.NewGreeterClient(cc)
			}
			b.put(tasks, []uint32{0})
			say := func(level string, servers ...*server) {
				for _, s := range servers {
					s.mu.Lock()
					s.level = level
					s.mu.Unlock()
				}
			}
			ask := func(c overload.Criticality, keyed bool) error {
				ctx := overload.WithCriticality(b.t.Context(), c)
				if keyed {
					ctx = clerk.WithKey(ctx, "k")
				}
				_, err := conn.SayHello(ctx, wrapperspb.String("x"))
				return err
			}
			// Within critical, by cohort.
			say("320;1000", servers[0])
			if err := ask(overload.Critical, true); err != nil {
				t.Fatal(err)
			}
			held, before := 0, servers[0].count()
			for range 1000 {
				if err := ask(overload.Critical, true); err != nil {
					b.fails(err, codes.ResourceExhausted, "no room")
					held++
				}
			}
			if n := servers[0].count() - before; held < 400 || held > 600 || n != 1000-held { // six standard deviations from half
				t.Errorf("%d were held back, %d sent", held, n)
			}
			if v := servers[0].newest().Get(CohortHeader); len(v) != 1 {
				t.Errorf("the cohort is %q", v)
			}
			// All that are below; the trial request stands for them.
			for range 10 {
				b.fails(ask(overload.Sheddable, true), codes.ResourceExhausted, "no room")
			}
			time.Sleep(1600 * time.Millisecond)
			if err := ask(overload.Sheddable, true); err != nil {
				t.Error(err)
			}
			if v := servers[0].newest().Get(StandsForHeader); len(v) != 1 || v[0] != "11" {
				t.Errorf("the trial request stands for %q", v)
			}
			// Without a key others are asked, as long as there are any with room.
			before = servers[0].count()
			for range 30 {
				if err := ask(overload.Sheddable, false); err != nil {
					t.Error(err)
				}
			}
			if n := servers[0].count() - before; n != 0 {
				t.Errorf("%d went to the task without room", n)
			}
			say("320;1000", servers...)
			failed := 0
			for range 30 {
				if ask(overload.Sheddable, false) != nil {
					failed++
				}
			}
			if failed < 20 {
				t.Errorf("%d of 30 were held back", failed)
			}
			// When there is room again, all are sent.
			say("", servers...)
			time.Sleep(1600 * time.Millisecond)
			for range 10 {
				_ = ask(overload.Sheddable, false)
			}
			for range 10 {
				if err := ask(overload.Sheddable, true); err != nil {
					t.Error(err)
				}
			}
			// A refusal says it, too.
			servers[0].mu.Lock()
			servers[0].full, servers[0].levelOf = 1, overload.Level{Below: 500, Pause: time.Second}
			servers[0].mu.Unlock()
			before = servers[0].count()
			for range 5 {
				b.fails(ask(overload.Sheddable, true), codes.ResourceExhausted, "no room")
			}
			if n := servers[0].count() - before; n != 1 {
				t.Errorf("%d were sent after a refusal", n)
			}
		})
	}
}
