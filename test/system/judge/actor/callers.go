package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/test/kit/boottime"
	"github.com/slicer-project/slicer/test/system/judge/history"
)

const (
	// satisfied is how soon a call must be served, from when it was due.
	satisfied = 250 * time.Millisecond
	// giveUp is when a caller gives up.
	giveUp = 2 * time.Second
	// callKeys is how many keys calls are for, some far more often than others.
	callKeys = 10000
	// maxCalls bounds a caller's calls under way.
	maxCalls = 512
)

// caller is one client: a Poisson stream of calls for keys of which some are hot,
// others in each shift, in all processes the same.
type caller struct {
	cfg   Config
	log   *history.Log
	name  string
	clerk *clerk.Clerk
	peers *peers

	asked, satisfied, served atomic.Int64
}

func runCallers(ctx context.Context, cfg Config, log *history.Log) error {
	conns := &peers{}
	var wg sync.WaitGroup
	errs := make(chan error, cfg.Callers)
	for i := range cfg.Callers {
		c := &caller{cfg: cfg, log: log, name: fmt.Sprintf("%s-%d/%d", cfg.Name, i, os.Getpid()), peers: conns}
		wg.Go(func() { errs <- c.run(ctx, uint64(i)) })
	}
	wg.Wait()
	close(errs)
	var all error
	for err := range errs {
		all = errors.Join(all, err)
	}
	return all
}

func (c *caller) run(ctx context.Context, i uint64) (err error) {
	if c.clerk, err = clerk.New(clerk.Config{Job: c.cfg.Job, Distributors: c.cfg.Distributors, Backups: c.cfg.Backups, Logger: slog.Default()}); err != nil {
		return err
	}
	defer c.clerk.Close()
	if err := c.clerk.Ready(ctx); err != nil {
		return err
	}
	var wg sync.WaitGroup
	wg.Go(func() { c.tell(ctx) })
	rng := rand.New(rand.NewPCG(c.cfg.Seed, i+uint64(os.Getpid())<<16))
	zipf := rand.NewZipf(rng, 1.1, 50, callKeys-1)
	slots := make(chan struct{}, maxCalls)
	timer := time.NewTimer(0)
	defer timer.Stop()
	due := time.Now()
	for ctx.Err() == nil {
		select {
		case <-timer.C:
		case <-ctx.Done():
			continue
		}
		key := fmt.Sprintf("k%d", (zipf.Uint64()+uint64(boottime.Now()/c.cfg.Shift)*7919)%callKeys)
		at := due
		slots <- struct{}{}
		wg.Go(func() {
			c.call(key, at)
			<-slots
		})
		due = due.Add(time.Duration(rng.ExpFloat64() * float64(time.Second) / float64(c.cfg.PerSecond)))
		if time.Since(due) > 50*time.Millisecond {
			due = time.Now() // this process had no CPU: not for the service to make up for
		}
		timer.Reset(time.Until(due))
	}
	wg.Wait()
	return nil
}

// tell writes down, each second, how calls that were due meanwhile have fared.
func (c *caller) tell(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		c.log.Rate(history.Rate{Client: c.name, At: boottime.Now(),
			Asked: int(c.asked.Swap(0)), Satisfied: int(c.satisfied.Swap(0)), Served: int(c.served.Swap(0))})
	}
}

func (c *caller) call(key string, due time.Time) {
	ctx, cancel := context.WithDeadline(context.Background(), due.Add(giveUp))
	defer cancel()
	tr := trace{due: due}
	tr.say("begun")
	err := c.clerk.Do(ctx, key, func(ctx context.Context, t assignment.Task) error {
		tr.say("to " + t.Name)
		var resp Response
		err := c.peers.call(ctx, t.Address, "Registers.Do", Request{Key: key, Touch: true}, &resp)
		switch {
		case err != nil && ctx.Err() == nil: // asking twice does no harm
			tr.say(err.Error())
			return clerk.Unreached{Err: err}
		case err != nil:
			return err
		case resp.Refused:
			tr.say(fmt.Sprintf("refused by %d", resp.Generation))
			return clerk.Refused{Job: c.cfg.Job, Task: t.Name, Generation: assignment.Generation(resp.Generation)}
		}
		return nil
	})
	took := time.Since(due)
	c.asked.Add(1)
	if err == nil {
		c.served.Add(1)
		if took <= satisfied {
			c.satisfied.Add(1)
			return
		}
	}
	tr.say("ended")
	slog.Warn(notSatisfied, "key", key, "boottime", boottime.Now(), "error", err, "steps", strings.Join(tr.steps, "; "))
}

// notSatisfied is what is said of a call that was not.
const notSatisfied = "call not satisfied"

// trace is what has become of one call.
type trace struct {
	due   time.Time
	steps []string
}

// maxSteps bounds a trace: its beginning and its end are kept.
const maxSteps = 40

func (t *trace) say(what string) {
	if len(t.steps) == maxSteps {
		t.steps = append(t.steps[:maxSteps/2], t.steps[maxSteps/2+2:]...)
	}
	t.steps = append(t.steps, fmt.Sprintf("%d ms %s", time.Since(t.due).Milliseconds(), what))
}
