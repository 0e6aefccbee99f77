package clerkgrpc

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/clerk"
)

// TestDeathUnderWay: an RPC that may be carried out twice does not wait for a task
// that stands still longer than until that is said to be dead.
func TestDeathUnderWay(t *testing.T) {
	const repeat = `{"methodConfig": [{"name": [{}], "retryPolicy": {
		"maxAttempts": 2, "initialBackoff": "0.1s", "maxBackoff": "1s", "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"]}}]}`
	for _, c := range []struct {
		what, config string
		change       func(tasks []assignment.Task) []assignment.Task
		moves        bool
	}{
		{"dead", repeat, func(tasks []assignment.Task) []assignment.Task { tasks[0].State = assignment.TaskDead; return tasks }, true},
		{"restarted", repeat, func(tasks []assignment.Task) []assignment.Task { tasks[0].Incarnation++; return tasks }, true},
		{"gone", repeat, func(tasks []assignment.Task) []assignment.Task { return tasks[1:] }, true},
		{"draining", repeat, func(tasks []assignment.Task) []assignment.Task {
			tasks[0].State = assignment.TaskDraining
			return tasks
		}, false},
		{"dead, but once is enough", "", func(tasks []assignment.Task) []assignment.Task {
			tasks[0].State = assignment.TaskDead
			return tasks
		}, false},
	} {
		run(t, Config{ServiceConfig: c.config}, func(b *bed) {
			tasks := three()
			still := b.serve(tasks[0])
			still.block = make(chan struct{})
			b.serve(tasks[1])
			b.serve(tasks[2])
			b.put(tasks, each...)
			ctx, cancel := context.WithTimeout(clerk.WithKey(b.t.Context(), keyOf(0, 3)), time.Minute)
			defer cancel()
			type answer struct {
				from string
				err  error
			}
			got := make(chan answer, 1)
			go func() {
				from, err := b.ask(ctx)
				got <- answer{from, err}
			}()
			synctest.Wait()
			time.Sleep(time.Second)
			began := time.Now()
			after := c.change(append([]assignment.Task(nil), tasks...))
			one := uint32(len(after) - 1)
			b.put(after, []uint32{one}, []uint32{one}, []uint32{one})
			a := <-got
			switch took := time.Since(began); {
			case c.moves && (a.err != nil || a.from != "c" || took > time.Second):
				b.t.Errorf("%s: %q, %v after %v; want the next owner's answer at once", c.what, a.from, a.err, took)
			case !c.moves:
				b.fails(a.err, codes.DeadlineExceeded, "")
			}
			close(still.block)
		})
	}
}

// TestDeathBudget: of the RPCs that have piled up at a task that dies a tenth of all goes
// to the next owner, and of those that were sent just before it was said to be dead all.
func TestDeathBudget(t *testing.T) {
	deathBudget(t, time.Second, func(requests int) int { return requests / 10 })
	deathBudget(t, 50*time.Millisecond, func(requests int) int { return requests })
}

func deathBudget(t *testing.T, underWay time.Duration, moved func(requests int) int) {
	t.Helper()
	run(t, Config{}, func(b *bed) {
		tasks := three()
		still := b.serve(tasks[0])
		still.block = make(chan struct{})
		next := b.serve(tasks[1])
		b.serve(tasks[2])
		b.put(tasks, each...)
		ctx, cancel := context.WithTimeout(clerk.WithIdempotent(clerk.WithKey(b.t.Context(), keyOf(0, 3))), time.Minute)
		defer cancel()
		const requests = 200
		errs := make(chan error, requests)
		for range requests {
			go func() {
				_, err := b.ask(ctx)
				errs <- err
			}()
		}
		synctest.Wait()
		time.Sleep(underWay)
		after := append([]assignment.Task(nil), tasks...)
		after[0].State = assignment.TaskDead
		b.put(after, []uint32{1}, []uint32{1}, []uint32{2})
		failed := 0
		for range requests {
			if err := <-errs; err != nil {
				b.fails(err, codes.Unavailable, "said to be dead")
				failed++
			}
		}
		if n := next.count(); n != moved(requests) || failed != requests-n {
			b.t.Errorf("after %v: %d of %d went to the next owner, %d failed", underWay, n, requests, failed)
		}
		close(still.block)
	})
}
