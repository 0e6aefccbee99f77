package clerk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// A request that a task has no room for goes to other owners, as long as there are any and
// Attempts and the budget allow, and then fails with what says that there should be no
// retry. Each attempt says which it is.
func TestOverloadedTasks(t *testing.T) {
	full := func(task string) error {
		return fmt.Errorf("adapter: %w", Overloaded{Job: "job", Task: task, Elsewhere: true})
	}
	for _, c := range []struct {
		name   string
		mode   slicerv1.Mode
		owners int
		answer func(task string, try int) error
		asked  int
		ok     bool
		code   codes.Code
	}{
		{name: "all of three owners", owners: 3, answer: func(task string, _ int) error { return full(task) }, asked: 3, code: codes.ResourceExhausted},
		{name: "of five", owners: 5, answer: func(task string, _ int) error { return full(task) }, asked: 3, code: codes.ResourceExhausted},
		{name: "the only owner", owners: 1, answer: func(task string, _ int) error { return full(task) }, asked: 1, code: codes.ResourceExhausted},
		{name: "one has room", owners: 3, ok: true, asked: 2, answer: func(task string, try int) error {
			if try == 0 {
				return full(task)
			}
			return nil
		}},
		{name: "no retry", owners: 3, answer: func(task string, _ int) error { return Overloaded{Job: "job", Task: task} }, asked: 1, code: codes.ResourceExhausted},
		{name: "no retry after one", owners: 3, asked: 2, code: codes.ResourceExhausted, answer: func(task string, try int) error {
			return Overloaded{Job: "job", Task: task, Elsewhere: try == 0}
		}},
		{name: "of another job", owners: 3, answer: func(string, int) error { return Overloaded{Job: "another", Task: "x", Elsewhere: true} }, asked: 1, code: codes.Unavailable},
		{name: "consistent", mode: slicerv1.Mode_MODE_CONSISTENT, owners: 1, answer: func(task string, _ int) error { return full(task) }, asked: 1, code: codes.ResourceExhausted},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mode := c.mode
				if mode == 0 {
					mode = slicerv1.Mode_MODE_AFFINITY
				}
				r := newRetrial(t, mode, 0)
				defer r.stop()
				var owners []uint32
				for i := range uint32(c.owners) {
					owners = append(owners, i)
				}
				r.share(owners...)
				var asked []string
				var attempts []int
				err := r.c.Do(t.Context(), "k", func(ctx context.Context, task assignment.Task) error {
					asked, attempts = append(asked, task.Name), append(attempts, AttemptOf(ctx))
					return c.answer(task.Name, len(asked)-1)
				})
				if len(asked) != c.asked || len(slices.Compact(slices.Sorted(slices.Values(asked)))) != len(asked) || !slices.IsSorted(attempts) || attempts[len(attempts)-1] != len(asked)-1 {
					t.Errorf("asked %v, as attempts %v", asked, attempts)
				}
				if c.ok {
					if err != nil {
						t.Error(err)
					}
					return
				}
				var o Overloaded
				if !errors.As(err, &o) || status.Code(err) != c.code {
					t.Errorf("failed with %v, want %s", err, c.code)
				}
				if got, ok := OverloadedFromStatus(err); !ok || got.Elsewhere != (c.code == codes.Unavailable) {
					t.Errorf("as a status: %+v, %t", got, ok)
				}
			})
		})
	}
}

// The job's config says how often a request is sent, and how many are sent again.
func TestRetryLimits(t *testing.T) {
	for _, c := range []struct {
		attempts uint32
		budget   float64
		calls    [2]int // for the first request, and for 1,000
	}{
		{0, 0, [2]int{3, 1110}}, {1, 0, [2]int{1, 1000}}, {2, 0, [2]int{2, 1110}}, {4, 1, [2]int{4, 2010}}, {3, -1, [2]int{1, 1000}}, {3, .5, [2]int{3, 1510}}, {99, 99, [2]int{3, 1110}},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRetrial(t, slicerv1.Mode_MODE_AFFINITY, 0)
			defer r.stop()
			r.server.Say(&slicerv1.Status{Mode: slicerv1.Mode_MODE_AFFINITY, Overload: &slicerv1.OverloadConfig{RetryAttempts: c.attempts, RetryBudget: c.budget}})
			r.share(0, 1, 2, 3, 4)
			calls := 0
			ask := func() {
				_ = r.c.Do(t.Context(), "k", func(_ context.Context, task assignment.Task) error {
					calls++
					return Overloaded{Job: "job", Task: task.Name, Elsewhere: true}
				})
			}
			if ask(); calls != c.calls[0] {
				t.Errorf("%d attempts and a budget of %v: a request was sent %d times, want %d", c.attempts, c.budget, calls, c.calls[0])
			}
			time.Sleep(20 * time.Second)
			calls = 0
			for range 1000 {
				ask()
				time.Sleep(5 * time.Millisecond)
			}
			if calls > c.calls[1] || calls < c.calls[1]-20 {
				t.Errorf("%d attempts and a budget of %v: 1,000 requests were sent %d times, want %d", c.attempts, c.budget, calls, c.calls[1])
			}
		})
	}
}

// What is sent to other owners is a tenth of the requests, or one a second.
func TestOverloadedBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRetrial(t, slicerv1.Mode_MODE_AFFINITY, 0)
		defer r.stop()
		r.share(0, 1, 2)
		calls := 0
		for range 10_000 {
			time.Sleep(2 * time.Millisecond)
			_ = r.c.Do(t.Context(), "k", func(_ context.Context, task assignment.Task) error {
				calls++
				return Overloaded{Job: "job", Task: task.Name, Elsewhere: true}
			})
		}
		if calls < 10_900 || calls > 11_010 {
			t.Errorf("%d attempts of 10,000 requests", calls)
		}
	})
}

// What a stranger sends is bounded, and is an Overloaded only with a code of one.
func TestOverloadedFromStatus(t *testing.T) {
	of := func(code codes.Code, m *slicerv1.Overloaded) error {
		s, err := status.New(code, "x").WithDetails(m)
		if err != nil {
			t.Fatal(err)
		}
		return s.Err()
	}
	long := strings.Repeat("x", 100_000)
	for _, c := range []struct {
		err           error
		ok, elsewhere bool
	}{
		{of(codes.Unavailable, &slicerv1.Overloaded{Scope: slicerv1.Overloaded_SCOPE_TASK}), true, true},
		{of(codes.Unavailable, &slicerv1.Overloaded{Scope: slicerv1.Overloaded_SCOPE_ALL}), true, false},
		{of(codes.Unavailable, &slicerv1.Overloaded{Scope: 99, Task: long, Job: long}), true, false},
		{of(codes.ResourceExhausted, &slicerv1.Overloaded{Scope: slicerv1.Overloaded_SCOPE_TASK}), true, false},
		{of(codes.Internal, &slicerv1.Overloaded{Scope: slicerv1.Overloaded_SCOPE_TASK}), false, false},
		{status.Error(codes.Unavailable, "x"), false, false},
		{errOther, false, false},
		{nil, false, false},
	} {
		o, ok := OverloadedFromStatus(c.err)
		if ok != c.ok || o.Elsewhere != c.elsewhere || len(o.Job) > assignment.MaxNameLen || len(o.Task) > assignment.MaxNameLen {
			t.Errorf("%.100v: %t, elsewhere %t, names of %d and %d bytes", c.err, ok, o.Elsewhere, len(o.Job), len(o.Task))
		}
	}
}
