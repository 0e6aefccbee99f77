package clerk

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/slicer-project/slicer/assignment"
)

const (
	// The wait after the first refusal, on average; each is twice the one before.
	firstWait = 4 * time.Millisecond
	longWait  = 100 * time.Millisecond
	// maxTasks is how many tasks an affinity request is given to at most.
	maxTasks = 4
)

// wait is how long a request waits that has been refused so often before, if
// nothing happens: jittered by half.
func wait(times int) time.Duration {
	d := min(firstWait<<min(max(times, 0), 10), longWait)
	return d/2 + rand.N(d)
}

// Mode of the job, 0 while the control plane has not said.
func (c *Clerk) Mode() assignment.Mode { return c.sub.State().Status.Mode }

// AwaitOwner waits before a refused request is sent again: until the newest
// assignment names another owner of the key than the one that refused, or for a
// few milliseconds, and longer by Refused.Times, up to about 100 ms. In consistent
// mode the new owner of a key may not know yet that it is. It returns nil when it
// is time to look the key up again; otherwise the error matches the refusal
// and ctx's.
func (c *Clerk) AwaitOwner(ctx context.Context, key string, refused Refused) error {
	timer := time.NewTimer(wait(refused.Times))
	defer timer.Stop()
	k, due := assignment.KeyOf(key), refused.Times == 0
	for {
		changed, a := c.sub.Changed(), c.newest.Load()
		if due && ctx.Err() == nil && a != nil && !names(a.Lookup(k), refused.Task) {
			return nil
		}
		select {
		case <-changed:
			due = true
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", refused, context.Cause(ctx))
		}
	}
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
// allows it, until ctx ends: call sends it once.
//
// In consistent mode only the owner can serve the key. A Refused or Unreached
// request waits, as AwaitOwner does, and goes to the newest owner. In affinity mode
// any task can: it goes to another owner of the key at once, or else to other
// running tasks, four in all. Any other error is returned as it is, and so is the
// last one when there is nobody left to try.
func (c *Clerk) Do(ctx context.Context, key string, call func(ctx context.Context, task assignment.Task) error) error {
	if err := c.Ready(ctx); err != nil {
		return err
	}
	for times := 0; ; times++ {
		task := c.Lookup(key).At(0)
		err := call(ctx, task)
		var refused Refused
		var unreached Unreached
		switch {
		case err == nil:
			return nil
		case errors.As(err, &refused):
		case errors.As(err, &unreached):
			refused = Refused{Job: c.Assignment().Job(), Task: task.Name}
		default:
			return err
		}
		refused.Times = times
		if wait := c.AwaitOwner(ctx, key, refused); wait != nil {
			return err
		}
	}
}
