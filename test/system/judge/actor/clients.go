package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/test/kit/boottime"
	"github.com/slicer-project/slicer/test/system/judge/history"
)

const (
	// patience is how long a client goes on with an operation. It is longer than any
	// owner is stopped, to see what that one says when it goes on.
	patience = 12 * time.Second
	// inFlight bounds a process's operations.
	inFlight = 256
)

// clients begin operations at a steady rate, whatever becomes of them.
type clients struct {
	cfg   Config
	log   *history.Log
	clerk *clerk.Clerk
	peers peers
	me    string

	refused, gaveUp, full atomic.Int64
}

func runClients(ctx context.Context, cfg Config, log *history.Log) error {
	k, err := clerk.New(clerk.Config{Job: cfg.Job, Distributors: cfg.Distributors, Backups: cfg.Backups, Logger: slog.Default()})
	if err != nil {
		return err
	}
	defer k.Close()
	c := &clients{cfg: cfg, log: log, clerk: k, me: fmt.Sprintf("%s-%d", cfg.Name, os.Getpid())}
	if err := k.Ready(ctx); err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(cfg.Seed, uint64(os.Getpid())))
	keys := cfg.registers()
	zipf := rand.NewZipf(rng, 1.2, 8, uint64(len(keys)-1))
	slots := make(chan struct{}, inFlight)
	tick := time.NewTicker(time.Second / time.Duration(cfg.PerSecond))
	defer tick.Stop()
	var wg sync.WaitGroup
	for n := 0; ctx.Err() == nil; n++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			continue
		}
		op := history.Op{Client: c.me, Key: keys[zipf.Uint64()], Write: rng.IntN(3) > 0}
		if op.Write {
			op.Arg = fmt.Sprintf("%s-%d", c.me, n)
		}
		select {
		case slots <- struct{}{}:
			wg.Go(func() {
				c.one(op)
				<-slots
			})
		default:
			c.full.Add(1)
		}
	}
	wg.Wait()
	log.Count("refusals", int(c.refused.Load()))
	log.Count("given-up", int(c.gaveUp.Load()))
	log.Count("not-begun", int(c.full.Load()))
	return nil
}

var errUnknown = errors.New("it may have been carried out")

// one carries out an operation, as often as it is refused, and writes down what
// became of it: not if it certainly was not carried out.
func (c *clients) one(op history.Op) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := c.clerk.Do(ctx, op.Key, func(ctx context.Context, t assignment.Task) error {
		var resp Response
		op.Call = boottime.Now()
		err := c.peers.call(ctx, t.Address, "Registers.Do", Request{Key: op.Key, Write: op.Write, Arg: op.Arg}, &resp)
		op.Return = boottime.Now()
		switch {
		case errors.Is(err, errNotSent):
			return clerk.Unreached{Err: err}
		case err != nil || resp.Unknown:
			return errUnknown
		case resp.Refused:
			c.refused.Add(1)
			return clerk.Refused{Job: c.cfg.Job, Task: t.Name, Generation: assignment.Generation(resp.Generation)}
		}
		op.Got = resp.Got
		return nil
	})
	switch {
	case err == nil:
		c.log.Did(op)
	case errors.Is(err, errUnknown):
		op.Unknown = true
		c.log.Did(op)
	default:
		c.gaveUp.Add(1)
	}
}
