package clerk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/subscriber/subscribertest"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// retrial is a clerk of a job of six tasks, in virtual time.
type retrial struct {
	t      *testing.T
	c      *Clerk
	server *subscribertest.Server
	tasks  []assignment.Task
	last   *assignment.Assignment
	reg    *prometheus.Registry
	// asked are the tasks that were called, and when.
	asked []string
	at    []time.Duration
	began time.Time
	ctx   context.Context // nil for the test's
}

func newRetrial(t *testing.T, mode slicerv1.Mode, owners ...uint32) *retrial {
	n := subscribertest.NewNetwork()
	r := &retrial{t: t, server: n.Start(distributor), reg: prometheus.NewRegistry()}
	for i := range uint32(6) {
		r.tasks = append(r.tasks, subscribertest.Task(string(rune('a'+i)), i))
	}
	r.server.Say(&slicerv1.Status{Mode: mode})
	cfg := config(n)
	cfg.Registerer = r.reg
	var err error
	if r.c, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	r.put(owners...)
	return r
}

func (r *retrial) put(owners ...uint32) {
	g := assignment.Generation(1)
	if r.last != nil {
		g = r.last.Generation() + 1
	}
	r.last = subscribertest.Equal(r.t, r.last, header(g), r.tasks, owners...)
	r.server.Put(r.last)
	synctest.Wait()
}

// share gives all keys to these tasks together.
func (r *retrial) share(owners ...uint32) {
	r.t.Helper()
	var place assignment.Placement
	place.Add(0, owners...)
	next, err := assignment.Successor(r.last, header(r.last.Generation()+1), r.tasks, place)
	if err != nil {
		r.t.Fatal(err)
	}
	r.last = next
	r.server.Put(next)
	synctest.Wait()
}

func (r *retrial) stop() {
	if err := r.c.Close(); err != nil {
		r.t.Error(err)
	}
	r.server.Stop()
}

// do calls Do with answers by task and the number of the try.
func (r *retrial) do(deadline time.Duration, answer func(task string, try int) error) error {
	r.asked, r.at, r.began = nil, nil, time.Now()
	ctx := r.ctx
	if ctx == nil {
		ctx = r.t.Context()
	}
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	return r.c.Do(ctx, "k", func(_ context.Context, task assignment.Task) error {
		r.asked, r.at = append(r.asked, task.Name), append(r.at, time.Since(r.began))
		return answer(task.Name, len(r.asked)-1)
	})
}

func (r *retrial) refusal(task string) error {
	return fmt.Errorf("adapter: %w", Refused{Job: "job", Task: task, Generation: 1})
}

func (r *retrial) wantMetrics(refused, afterRefusal, afterUnreached, afterLoss int) {
	r.t.Helper()
	want := fmt.Sprintf(`
# HELP slicer_clerk_refused_total Requests that a task refused since the key is not its own.
# TYPE slicer_clerk_refused_total counter
slicer_clerk_refused_total{clerk="0",job="job"} %d
# HELP slicer_clerk_retries_total Requests sent again, by reason: refused (the task does not own the key), unreached (no task has taken it), overloaded (the task has no room) or lost (the task lost the key while the request ran).
# TYPE slicer_clerk_retries_total counter
slicer_clerk_retries_total{clerk="0",job="job",reason="lost"} %d
slicer_clerk_retries_total{clerk="0",job="job",reason="overloaded"} 0
slicer_clerk_retries_total{clerk="0",job="job",reason="refused"} %d
slicer_clerk_retries_total{clerk="0",job="job",reason="unreached"} %d
`, refused, afterLoss, afterRefusal, afterUnreached)
	if err := testutil.GatherAndCompare(r.reg, strings.NewReader(want), "slicer_clerk_refused_total", "slicer_clerk_retries_total"); err != nil {
		r.t.Error(err)
	}
}

var errOther = errors.New("may have been carried out")

// In consistent mode a key has its owner of before until all servers are ready
// for the next: that one is asked when the new one refuses, if it lives.
func TestRefusedByTheNextOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRetrial(t, slicerv1.Mode_MODE_CONSISTENT, 0)
		defer r.stop()
		r.put(1)
		err := r.do(time.Second, func(task string, _ int) error {
			if task == "b" {
				return r.refusal(task)
			}
			return nil
		})
		if err != nil || !slices.Equal(r.asked, []string{"b", "a"}) || r.at[1] != 0 {
			t.Errorf("%v, asked %v at %v", err, r.asked, r.at)
		}
		// It is not the owner any more, and the next one is in a moment.
		err = r.do(time.Second, func(task string, try int) error {
			if try < 3 {
				return r.refusal(task)
			}
			return nil
		})
		if err != nil || !slices.Equal(r.asked, []string{"b", "a", "b", "a"}) {
			t.Errorf("%v, asked %v", err, r.asked)
		}
		r.wantMetrics(4, 4, 0, 0)
		// What it answers otherwise counts.
		err = r.do(time.Second, func(task string, _ int) error {
			if task == "b" {
				return r.refusal(task)
			}
			return errOther
		})
		if !errors.Is(err, errOther) || len(r.asked) != 2 {
			t.Errorf("%v, asked %v", err, r.asked)
		}
		// It is dead.
		r.put(0)
		r.tasks[0].State = assignment.TaskDead
		r.put(1)
		err = r.do(time.Second, func(task string, try int) error {
			if try < 2 {
				return r.refusal(task)
			}
			return nil
		})
		if err != nil || !slices.Equal(r.asked, []string{"b", "b", "b"}) {
			t.Errorf("%v, asked %v", err, r.asked)
		}
	})
}

// In consistent mode the owner is asked until it owns the key, at growing
// distances.
func TestRefusedUntilTheOwnerOwns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRetrial(t, slicerv1.Mode_MODE_CONSISTENT, 0)
		defer r.stop()
		if r.c.Mode() != assignment.Consistent {
			t.Errorf("mode %s", r.c.Mode())
		}
		err := r.do(10*time.Second, func(task string, try int) error {
			if try < 20 {
				return r.refusal(task)
			}
			return nil
		})
		if err != nil || len(r.asked) != 21 || slices.ContainsFunc(r.asked, func(s string) bool { return s != "a" }) {
			t.Errorf("%v, asked %v", err, r.asked)
		}
		for i := range r.at[1:] {
			d, usual := r.at[i+1]-r.at[i], usualWait(i)
			if i == 0 && usual != firstWait || i > 10 && usual != longWait {
				t.Errorf("wait %d is usually %s", i, usual)
			}
			if d < usual/2 || d > usual*3/2 {
				t.Errorf("wait %d is %s, want about %s", i, d, usual)
			}
		}
		r.wantMetrics(20, 20, 0, 0)
	})
}

// A new assignment ends the wait; one that arrives between the choice of the task
// and its refusal lets none begin.
func TestRefusedThenMoved(t *testing.T) {
	moved := func(t *testing.T, after time.Duration, meanwhile bool) {
		r := newRetrial(t, slicerv1.Mode_MODE_CONSISTENT, 0)
		defer r.stop()
		err := r.do(10*time.Second, func(task string, try int) error {
			switch {
			case try == 9 && meanwhile:
				r.put(1)
			case try == 9:
				time.AfterFunc(after, func() { r.put(1) })
			}
			if task == "a" {
				return r.refusal(task)
			}
			return nil
		})
		if err != nil || len(r.asked) != 11 || r.asked[10] != "b" || r.at[10]-r.at[9] != after {
			t.Errorf("%v, asked %v at %v", err, r.asked, r.at)
		}
	}
	synctest.Test(t, func(t *testing.T) { moved(t, 0, true) })
	synctest.Test(t, func(t *testing.T) { moved(t, 0, false) })
	synctest.Test(t, func(t *testing.T) { moved(t, time.Millisecond, false) })
}

// A clerk that knows already does not wait for the first refusal; but it does not
// believe for ever in a task that is not who it is taken for.
func TestRefusedUnderAnotherName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRetrial(t, slicerv1.Mode_MODE_CONSISTENT, 1)
		defer r.stop()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began, waits := time.Now(), 0
		for times := 0; r.c.AwaitOwner(ctx, "k", Refused{Job: "job", Task: "a", Times: times, Routed: r.last.Generation()}) == nil; times++ {
			if waits++; times == 0 && time.Since(began) > 0 {
				t.Error("it waits for an assignment that it has")
			}
		}
		if waits > 30 || time.Since(began) != time.Second {
			t.Errorf("%d tries in %s", waits, time.Since(began))
		}
	})
}

func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRetrial(t, slicerv1.Mode_MODE_CONSISTENT, 0)
		defer r.stop()
		var refused Refused
		err := r.do(time.Second, func(task string, _ int) error { return r.refusal(task) })
		if !errors.As(err, &refused) || refused.Task != "a" || !errors.Is(err, context.DeadlineExceeded) || time.Since(r.began) != time.Second {
			t.Errorf("always refused: %v after %s", err, time.Since(r.began))
		}
		if s, _ := status.FromError(err); s.Code() != codes.Unavailable {
			t.Errorf("its status is %s", s.Code())
		}
		// A dead owner is waited for, and its successor asked.
		err = r.do(time.Second, func(task string, try int) error {
			if try == 2 {
				go r.put(2)
			}
			if task == "a" {
				return Unreached{errOther}
			}
			return nil
		})
		if err != nil || !slices.Equal(r.asked, []string{"a", "a", "a", "c"}) {
			t.Errorf("%v, asked %v", err, r.asked)
		}
		err = r.do(time.Second, func(string, int) error { return Unreached{errOther} })
		if !errors.Is(err, errOther) || !errors.Is(err, context.DeadlineExceeded) || len(r.asked) > 30 {
			t.Errorf("never reached: %v, asked %d times", err, len(r.asked))
		}
		for _, final := range []error{errOther, Refused{Job: "another", Task: "x"}} {
			if err := r.do(time.Second, func(string, int) error { return final }); err != final || len(r.asked) != 1 {
				t.Errorf("%v, asked %v", err, r.asked)
			}
		}
	})
}

// A request whose task lost the key while it ran is sent again only if that is safe,
// and is not said to have been refused afterwards.
func TestLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRetrial(t, slicerv1.Mode_MODE_CONSISTENT, 0)
		defer r.stop()
		r.put(1)
		loss := func(task string) error {
			return fmt.Errorf("adapter: %w", Lost{Job: "job", Task: task, Generation: 1})
		}
		var lost Lost
		err := r.do(time.Second, func(task string, _ int) error { return loss(task) })
		if !errors.As(err, &lost) || lost.Task != "b" || len(r.asked) != 1 || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("not marked: %v, asked %v", err, r.asked)
		}
		r.ctx = WithIdempotent(t.Context())
		// The key comes back to the task that had it before.
		err = r.do(time.Second, func(task string, try int) error {
			if try == 0 {
				go r.put(0)
				return loss(task)
			}
			return nil
		})
		if err != nil || !slices.Equal(r.asked, []string{"b", "a"}) {
			t.Errorf("marked: %v, asked %v", err, r.asked)
		}
		err = r.do(time.Second, func(task string, try int) error {
			if try == 0 {
				return loss(task)
			}
			return r.refusal(task)
		})
		var refused Refused
		if !errors.As(err, &lost) || errors.As(err, &refused) || !errors.Is(err, context.DeadlineExceeded) || len(r.asked) < 3 {
			t.Errorf("then refused for ever: %v, asked %v", err, r.asked)
		}
		// What another job says is an error like any other.
		err = r.do(time.Second, func(string, int) error { return Lost{Job: "another", Task: "x"} })
		if !errors.As(err, &lost) || lost.Job != "another" || len(r.asked) != 1 {
			t.Errorf("another job's: %v, asked %v", err, r.asked)
		}
	})
}

// In affinity mode others do as well: the owners first, then any that runs.
func TestUnreachedInAffinityMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRetrial(t, slicerv1.Mode_MODE_AFFINITY, 0)
		defer r.stop()
		r.tasks[3].State, r.tasks[4].State = assignment.TaskDraining, assignment.TaskDead
		r.share(1, 3, 5) // b, d, f
		seen := map[string]int{}
		for range 200 {
			time.Sleep(4 * time.Second) // for the budget
			err := r.do(time.Second, func(string, int) error { return Unreached{errOther} })
			owners, others := slices.Sorted(slices.Values(r.asked[:3])), r.asked[3:]
			if err != (Unreached{errOther}) || !slices.Equal(owners, []string{"b", "d", "f"}) || len(others) != 1 || others[0] != "a" && others[0] != "c" {
				t.Fatalf("%v, asked %v", err, r.asked)
			}
			seen[r.asked[0]]++
			seen[others[0]]++
		}
		if len(seen) != 5 || time.Since(r.began) != 0 {
			t.Errorf("first and last were %v", seen)
		}
		r.wantMetrics(0, 0, 600, 0)
		time.Sleep(10 * time.Second)
		// A refusal is not a matter of one task: the newest owner is asked again.
		err := r.do(time.Second, func(task string, try int) error {
			switch try {
			case 0:
				return Unreached{errOther}
			case 1:
				return r.refusal(task)
			}
			return nil
		})
		if err != nil || len(r.asked) != 3 || r.at[2] == 0 {
			t.Errorf("%v, asked %v at %v", err, r.asked, r.at)
		}
		// There are not that many tasks.
		r.tasks = r.tasks[:2]
		r.last = nil
		r.server.Put(subscribertest.Equal(t, nil, assignment.Header{Job: "job", StoreID: 2, Generation: 3}, r.tasks, 0))
		synctest.Wait()
		if err := r.do(time.Second, func(string, int) error { return Unreached{errOther} }); !errors.Is(err, errOther) || !slices.Equal(r.asked, []string{"a", "b"}) {
			t.Errorf("%v, asked %v", err, r.asked)
		}
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		err = r.c.Do(ctx, "k", func(context.Context, assignment.Task) error { n++; cancel(); return Unreached{errOther} })
		if n != 1 || !errors.Is(err, context.Canceled) || !errors.Is(err, errOther) {
			t.Errorf("cancelled: %v after %d calls", err, n)
		}
	})
}

// TestRetryBudget: what Do gives to other tasks is a tenth of the requests, however
// many of them fail, and one a second for a quiet client.
func TestRetryBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRetrial(t, slicerv1.Mode_MODE_AFFINITY, 0)
		defer r.stop()
		const requests = 3000 // at 100/s
		calls := 0
		for range requests {
			time.Sleep(10 * time.Millisecond)
			err := r.do(time.Second, func(string, int) error { return Unreached{errOther} })
			if calls += len(r.asked); err != (Unreached{errOther}) {
				t.Fatal(err)
			}
		}
		if calls > requests*11/10+10 || calls < requests*109/100 {
			t.Errorf("%d calls for %d requests, want 1.1 a request", calls, requests)
		}
		time.Sleep(20 * time.Second)
		if err := r.do(time.Second, func(string, int) error { return Unreached{errOther} }); err == nil || len(r.asked) != maxTasks {
			t.Errorf("a request after a while is given to %v", r.asked)
		}
		r.wantOverBudget(true, false)
	})
}

// TestOwnershipBudget: requests whose key has no owner wait, and are sent again as
// often as others come, and not each every 100 ms.
func TestOwnershipBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRetrial(t, slicerv1.Mode_MODE_CONSISTENT, 0)
		defer r.stop()
		const requests = 500
		var calls, served atomic.Int64
		var owned atomic.Bool
		var wg sync.WaitGroup
		for range requests {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				err := r.c.Do(ctx, "k", func(_ context.Context, task assignment.Task) error {
					if calls.Add(1); owned.Load() {
						return nil
					}
					return r.refusal(task.Name)
				})
				if err == nil {
					served.Add(1)
				}
			})
		}
		time.Sleep(9 * time.Second)
		// Without a budget it would be some 45,000.
		if n := calls.Load(); n > 2*requests+10*20 || n < requests+9*20 {
			t.Errorf("%d calls for %d requests in 9 s", n, requests)
		}
		owned.Store(true)
		wg.Wait()
		if served.Load() != requests {
			t.Errorf("%d of %d requests were served in the end", served.Load(), requests)
		}
		r.wantOverBudget(false, true)
	})
}

// wantOverBudget checks which budget has not allowed retries.
func (r *retrial) wantOverBudget(other, own bool) {
	r.t.Helper()
	families, err := r.reg.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	got := map[string]bool{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == "slicer_clerk_retries_over_budget_total" && l.GetName() == "budget" {
					got[l.GetValue()] = m.GetCounter().GetValue() > 0
				}
			}
		}
	}
	if len(got) != 2 || got["other_tasks"] != other || got["ownership"] != own {
		r.t.Errorf("over budget: %v, want %t and %t", got, other, own)
	}
}

// Do waits for the first assignment, within its deadline.
func TestDoBeforeTheFirstAssignment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := subscribertest.NewNetwork()
		c, err := New(config(n))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		called := false
		err = c.Do(ctx, "k", func(context.Context, assignment.Task) error { called = true; return nil })
		if called || !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrUnavailable) {
			t.Errorf("called: %t, %v", called, err)
		}
		var field *assignment.FieldError
		if err := c.Do(ctx, strings.Repeat("k", assignment.MaxKeyLen+1), nil); !errors.As(err, &field) || field.Field != "key" {
			t.Errorf("a long key: %v", err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestRefusedOnTheWire(t *testing.T) {
	want := Refused{Job: "job", Task: "a", Generation: 7}
	err := status.Convert(fmt.Errorf("handler: %w", want)).Err()
	if got, ok := RefusedFromStatus(fmt.Errorf("call: %w", err)); !ok || got != want {
		t.Errorf("%v comes back as %+v, %t", err, got, ok)
	}
	with := func(code codes.Code, m *slicerv1.Refusal) error {
		s, err := status.New(code, "").WithDetails(&slicerv1.Chunk{}, m)
		if err != nil {
			t.Fatal(err)
		}
		return s.Err()
	}
	for _, err := range []error{nil, errOther, status.Error(codes.Unavailable, "down"), with(codes.Internal, &slicerv1.Refusal{Job: "job"}), context.Canceled} {
		if r, ok := RefusedFromStatus(err); ok {
			t.Errorf("%v is taken for %v", err, r)
		}
	}
	long := strings.Repeat("x", 1<<20)
	for _, g := range []int64{-1, 1 << 62} {
		r, ok := RefusedFromStatus(with(codes.Unavailable, &slicerv1.Refusal{Job: long, Task: long, Generation: g}))
		if !ok || len(r.Job) > 253 || len(r.Task) > 253 || r.Generation < 0 || r.Generation > assignment.MaxGeneration {
			t.Errorf("generation %d, names of %d and %d bytes", r.Generation, len(r.Job), len(r.Task))
		}
	}
	if s := (Refused{Job: "\xff"}).GRPCStatus(); s.Code() != codes.Unavailable {
		t.Errorf("status %v", s)
	}
}

func TestLostOnTheWire(t *testing.T) {
	want := Lost{Job: "job", Task: "a", Generation: 7}
	err := status.Convert(fmt.Errorf("handler: %w", want)).Err()
	if got, ok := LostFromStatus(fmt.Errorf("call: %w", err)); !ok || got != want {
		t.Errorf("%v comes back as %+v, %t", err, got, ok)
	}
	// Neither is ever taken for the other: of one nothing was done.
	if r, ok := RefusedFromStatus(err); ok {
		t.Errorf("taken for %v", r)
	}
	if l, ok := LostFromStatus(Refused{Job: "job", Task: "a"}.GRPCStatus().Err()); ok {
		t.Errorf("a refusal is taken for %v", l)
	}
	if l, ok := LostFromStatus(status.Error(codes.Aborted, "conflict")); ok {
		t.Errorf("any ABORTED is taken for %v", l)
	}
	if s := (Lost{Job: "\xff"}).GRPCStatus(); s.Code() != codes.Aborted {
		t.Errorf("status %v", s)
	}
}
