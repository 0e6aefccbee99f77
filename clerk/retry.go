package clerk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/backoff"
	"github.com/slicer-project/slicer/loadbalance/overload"
)

const (
	// The wait after the first refusal, on average; each is half as long again as the
	// one before, up to longWait. A key that moves is without an owner for tens of
	// milliseconds, and should not be found to be served long after it is.
	firstWait = 4 * time.Millisecond
	growth    = 1.5
	longWait  = 100 * time.Millisecond
	// maxTasks is how many tasks an affinity request is given to at most.
	maxTasks = 4
)

// wait is how long a request waits that has been refused so often before, if
// nothing happens: jittered by half.
func wait(times int) time.Duration {
	d := usualWait(times)
	return backoff.About(d)
}

func usualWait(times int) time.Duration {
	return time.Duration(min(float64(firstWait)*math.Pow(growth, float64(max(times, 0))), float64(longWait)))
}

// Mode of the job, 0 while the control plane has not said.
func (c *Clerk) Mode() assignment.Mode { return c.sub.State().Status.Mode }

// AwaitOwner waits before a refused request is sent again: until an assignment
// arrives that names another owner of the key than the task that refused, or for a
// few milliseconds, and longer by Refused.Times, up to about 100 ms: in consistent
// mode the next owner of a key does not own it as soon as it is assigned. It returns
// at once if the task is the owner no longer, and this is the first refusal, or a
// newer assignment than Refused.Routed says so. It waits for longer while the clerk's
// requests have been sent again more often than overload.Ownership allows.
//
// It returns nil when it is time to look the key up again; otherwise the error
// matches the refusal and ctx's.
func (c *Clerk) AwaitOwner(ctx context.Context, key string, refused Refused) error {
	c.retries.refusals.Add(1)
	if err := c.awaitTurn(ctx, key, refused); err != nil {
		return fmt.Errorf("%w: %w", refused, err)
	}
	c.retries.refused.Add(1)
	return nil
}

// AwaitOwnerAfterLoss is AwaitOwner for a request that may be sent again although it
// may have been carried out. Its error matches lost and ctx's.
func (c *Clerk) AwaitOwnerAfterLoss(ctx context.Context, key string, lost Lost) error {
	c.retries.losses.Add(1)
	if err := c.awaitTurn(ctx, key, Refused{Task: lost.Task, Times: lost.Times, Routed: lost.Routed}); err != nil {
		return fmt.Errorf("%w: %w", lost, err)
	}
	c.retries.lost.Add(1)
	return nil
}

// awaitTurn is AwaitOwner without the words.
func (c *Clerk) awaitTurn(ctx context.Context, key string, refused Refused) error {
	for {
		if err := c.await(ctx, key, refused); err != nil || c.mayAskOwner() {
			return err
		}
		refused.Times, refused.Routed = refused.Times+1, 0
	}
}

// await waits without regard to the budget.
func (c *Clerk) await(ctx context.Context, key string, refused Refused) error {
	timer := time.NewTimer(wait(refused.Times))
	defer timer.Stop()
	k := assignment.KeyOf(key)
	// By the same assignment only once at once: a server may answer under another
	// name than it is known by, for ever.
	for newer := refused.Times == 0; ctx.Err() == nil; {
		changed := c.Changed()
		if a := c.newest.Load(); a != nil && (newer || refused.Routed > 0 && a.Generation() > refused.Routed) && !names(a.Lookup(k), refused.Task) {
			return nil
		}
		select {
		case <-changed:
			newer = true
		case <-timer.C:
			return nil
		case <-ctx.Done():
		}
	}
	return context.Cause(ctx)
}

func names(r assignment.Replicas, task string) bool {
	for t := range r.All() {
		if t.Name == task {
			return true
		}
	}
	return false
}

// Do sends a request for a key to a task that owns it, and again where the error
// of call, which sends it once, allows that:
//
//   - Refused: the task does not own the key. In consistent mode the owner by the
//     assignment before is asked at once: it stays the owner until all servers are
//     ready for the newest. After a wait, as AwaitOwner's, the request goes to the
//     owner by the newest assignment.
//   - Unreached: no task has taken the request. In affinity mode any task can
//     serve it, so it goes at once to another owner of the key, if there is one, or to
//     other running tasks, four tasks in all, as long as the requests that the clerk's
//     users send to other tasks are within overload.OtherTasks, a tenth; otherwise the
//     error is returned. In consistent mode it waits for the owner, or its successor.
//   - Overloaded: the task has no room. Where it says that another owner of the key may
//     have some, that is asked, within the same budget and Attempts; otherwise, or in
//     the end, the error is an Overloaded that says that there should be no retry.
//   - Lost: the task lost the key while the request ran. If ctx is of WithIdempotent,
//     the request is sent again as one that was refused; otherwise it is returned.
//   - Any other error is returned as it is: the request may have been carried out. One that
//     is gRPC's RESOURCE_EXHAUSTED is a refusal all the same (Throttle.Refused): return it for
//     what an HTTP server answers with 429 or 503.
//
// Do goes on until ctx ends, so give it a deadline. Its error then matches ctx's and
// the last error of call, or the first that is a Lost if there was one. It waits for the first assignment if there is none
// yet, and does not end calls: a task that takes a request and never answers is
// the business of call and its ctx.
func (c *Clerk) Do(ctx context.Context, key string, call func(ctx context.Context, task assignment.Task) error) error {
	if err := assignment.CheckKey(key); err != nil {
		return err
	}
	if c.newest.Load() == nil {
		if err := c.Ready(ctx); err != nil {
			return err
		}
	}
	c.Requested()
	labels := c.Labels(ctx)
	if labels != overload.LabelsOf(ctx) {
		ctx = overload.WithLabels(ctx, labels)
	}
	var tried []string // in affinity mode, since they were not reached
	var last error
	var ran error            // the first Lost
	var again *atomic.Uint64 // why it is sent again
	sent := 0                // times that it was, save for reasons of ownership
	send := func(task assignment.Task) (refused bool, err error) {
		if c.tally.found(); again != nil {
			again.Add(1)
		}
		to := ctx
		if sent > 0 {
			to = WithAttempt(ctx, AttemptOf(ctx)+sent)
		}
		err = c.callOnce(to, labels, task, call)
		var r Refused
		var l Lost
		switch {
		case errors.As(err, &r) && c.isOwn(r.Job):
			c.retries.refusals.Add(1)
			again, tried, refused = &c.retries.refused, nil, true
		case errors.As(err, &l) && c.isOwn(l.Job):
			c.retries.losses.Add(1)
			again, tried, ran = &c.retries.lost, nil, cmp.Or(ran, err)
		default:
			again = &c.retries.unreached
			sent++
		}
		return refused, err
	}
	for times := 0; ; {
		a := c.newest.Load()
		task, ok := c.pickOwner(a, key, tried, labels)
		if !ok || len(tried) == maxTasks || len(tried) > 0 && !c.MayRetry() {
			return last
		}
		refused, err := send(task)
		if former, ok := c.formerOwner(key, task); refused && ok && ctx.Err() == nil && c.mayAskOwner() {
			refused, err = send(former)
		}
		var unreached Unreached
		var full Overloaded
		switch {
		case err == nil:
			return nil
		case errors.As(err, &full) && c.isOwn(full.Job):
			// A task that is no owner would have to fill its caches first.
			again, tried = &c.retries.overloaded, append(tried, task.Name)
			if !full.Elsewhere || sent >= c.Attempts() || c.Mode() == assignment.Consistent || !hasOwner(a, key, tried) {
				return full.final()
			}
			last = full.final()
		case refused, again == &c.retries.lost && Idempotent(ctx):
		case !errors.As(err, &unreached):
			return err
		case c.Mode() != assignment.Consistent:
			last, tried = err, append(tried, task.Name)
		}
		ended := context.Cause(ctx)
		if len(tried) == 0 {
			ended = c.awaitTurn(ctx, key, Refused{Task: task.Name, Times: times, Routed: a.Generation()})
			times++
		}
		if ended != nil {
			return fmt.Errorf("%w: %w", cmp.Or(ran, err), ended)
		}
	}
}

// callOnce is call, unless the task has said that it refuses such requests.
func (c *Clerk) callOnce(ctx context.Context, l overload.Labels, task assignment.Task, call func(context.Context, assignment.Task) error) error {
	standsFor := 0
	if c.mayHold() {
		var err error
		t := c.Throttle(task.Name)
		if standsFor, err = t.Send(c.Priority(l), l.Customer); err != nil {
			return err
		}
		defer t.Over()
	}
	err := call(withStandsFor(ctx, standsFor), task)
	if err != nil || c.Throttling() {
		t := c.Throttle(task.Name)
		if _, unreached := errors.AsType[Unreached](err); err == nil || !unreached && ctx.Err() == nil {
			t.Answered(c.Priority(l), l.Customer, err != nil && t.Refused(err))
		}
	}
	var full Overloaded
	switch {
	case err == nil && standsFor > 0:
		c.Throttle(task.Name).Hear(overload.Level{}) // it has room for what it refused
	case errors.As(err, &full):
		c.Throttle(task.Name).HearRefusal(full)
	}
	return err
}

// isOwn reports whether a refusal is of this job, and not of one that the task is a
// client of itself.
func (c *Clerk) isOwn(job string) bool { return job == c.job || job == "" }

// formerOwner is the task that a key comes from, if it is known and lives.
func (c *Clerk) formerOwner(key string, owner assignment.Task) (assignment.Task, bool) {
	before, a := c.former.Load(), c.newest.Load()
	if before == nil || c.Mode() != assignment.Consistent {
		return assignment.Task{}, false
	}
	owners := before.Lookup(assignment.KeyOf(key))
	if owners.Len() != 1 || owners.At(0).Name == owner.Name {
		return assignment.Task{}, false
	}
	pos, ok := a.Position(owners.At(0).Name)
	if !ok || !a.Task(pos).Same(owners.At(0)) || a.Task(pos).State == assignment.TaskDead {
		return assignment.Task{}, false
	}
	return a.Task(pos), true
}

// hasOwner reports whether the key has an owner that has not been tried.
func hasOwner(a *assignment.Assignment, key string, tried []string) bool {
	for t := range a.Lookup(assignment.KeyOf(key)).All() {
		if !slices.Contains(tried, t.Name) {
			return true
		}
	}
	return false
}

// pickOwner chooses the task for a request that others have been tried for in vain, rather
// an owner that does not hold it back.
func (c *Clerk) pickOwner(a *assignment.Assignment, key string, tried []string, l overload.Labels) (assignment.Task, bool) {
	owners := a.Lookup(assignment.KeyOf(key))
	untried := func(t assignment.Task) bool { return !slices.Contains(tried, t.Name) }
	t, ok := assignment.Task{}, false
	if owners.Len() > 1 && (c.mayHold() || c.throttles.drains.Load() > 0) {
		p := c.Priority(l)
		t, ok = pick(owners.Len(), owners.At, func(t assignment.Task) bool {
			throttle := c.Throttle(t.Name)
			return untried(t) && !throttle.Draining() && !throttle.Holds(p, l.Customer)
		})
	}
	if !ok {
		t, ok = pick(owners.Len(), owners.At, untried)
	}
	if !ok {
		t, ok = pick(a.NumTasks(), a.Task, func(t assignment.Task) bool {
			return t.State == assignment.TaskRunning && !slices.Contains(tried, t.Name)
		})
	}
	return t, ok
}

// pick chooses one of n tasks at random that will do.
func pick(n int, at func(int) assignment.Task, will func(assignment.Task) bool) (assignment.Task, bool) {
	for i, first := 0, rand.IntN(n); i < n; i++ {
		if t := at((first + i) % n); will(t) {
			return t, true
		}
	}
	return assignment.Task{}, false
}

// retries counts refusals, and what was sent again. It is a prometheus.Collector.
type retries struct {
	refusals, losses atomic.Uint64
	// sent again, by reason
	refused, unreached, lost, overloaded atomic.Uint64
}

var (
	refusedDesc = prometheus.NewDesc("slicer_clerk_refused_total",
		"Requests that a task refused since the key is not its own.", nil, nil)
	lossesDesc = prometheus.NewDesc("slicer_clerk_ownership_lost_total",
		"Requests whose answer a task held back, since it lost the key while they ran.", nil, nil)
	retriesDesc = prometheus.NewDesc("slicer_clerk_retries_total",
		"Requests sent again, by reason: refused (the task does not own the key), unreached (no task has taken it), overloaded (the task has no room) or lost (the task lost the key while the request ran).", []string{"reason"}, nil)
)

// Describe is prometheus.Collector's.
func (r *retries) Describe(ch chan<- *prometheus.Desc) {
	ch <- refusedDesc
	ch <- lossesDesc
	ch <- retriesDesc
}

// Collect is prometheus.Collector's.
func (r *retries) Collect(ch chan<- prometheus.Metric) {
	count := func(d *prometheus.Desc, n *atomic.Uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n.Load()), labels...)
	}
	count(refusedDesc, &r.refusals)
	count(lossesDesc, &r.losses)
	count(retriesDesc, &r.refused, "refused")
	count(retriesDesc, &r.unreached, "unreached")
	count(retriesDesc, &r.lost, "lost")
	count(retriesDesc, &r.overloaded, "overloaded")
}
