package demo

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/backoff"
)

// afterDrain is for how long after a drained server has stopped errors are
// still blamed on its drain.
const afterDrain = time.Second

// follow carries out the script.
func (d *demo) follow(ctx context.Context) {
	for _, s := range script(&d.cfg) {
		timer := time.NewTimer(time.Until(d.began.Add(s.at)))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		switch s.kind {
		case evShift:
			d.zipf.shift()
			d.happened(evShift, "", "the hot keys are others now")
		case evFlood:
			d.meter.enter(inFlood)
			d.zipf.times.Store(floodTimes)
			d.happened(evFlood, "", fmt.Sprintf("%d calls a second, for %s", floodTimes*d.cfg.QPS, floodLasts))
		case evCalm:
			d.zipf.times.Store(1)
			d.happened(evCalm, "", "as many calls as before")
			d.steps.Go(func() {
				backoff.Sleep(ctx, callLimit) // until the last call of the flood is over
				d.meter.enter(afterFlood)
				backoff.Sleep(ctx, floodSettles)
				d.meter.enter(usual)
			})
		case evKill:
			d.steps.Go(func() { d.kill(ctx) })
		case evDrain:
			d.steps.Go(func() { d.drain(ctx) })
		case evAdd:
			d.steps.Go(func() { d.add(ctx) })
		}
	}
}

func (d *demo) happened(kind, task, detail string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events = append(d.events, event{time.Since(d.began).Milliseconds(), kind, task, detail})
}

// pick takes a running server out of the set.
func (d *demo) pick() *server {
	a, _ := d.watch.now()
	d.mu.Lock()
	defer d.mu.Unlock()
	names := slices.DeleteFunc(running(a), func(n string) bool { return d.servers[n] == nil })
	if len(names) == 0 {
		return nil
	}
	s := d.servers[names[d.rng.IntN(len(names))]]
	delete(d.servers, s.name)
	return s
}

// kill ends a server without a drain and waits until others own its keys.
func (d *demo) kill(ctx context.Context) {
	s := d.pick()
	if s == nil {
		d.happened(evTrouble, "", "there is no running server to kill")
		return
	}
	a, _ := d.watch.now()
	n, share := owned(a, s.name)
	before := d.meter.snapshot().total
	d.happened(evKill, s.name, fmt.Sprintf("without a drain, owning %d slices, %.1f%% of the keys", n, 100*share))
	at := time.Now()
	d.steps.Go(s.kill)
	if d.until(ctx, func(a *assignment.Assignment) bool { n, _ := owned(a, s.name); return n == 0 }) {
		d.happened(evReassigned, s.name, fmt.Sprintf("others own its keys %.1f s after it died", time.Since(at).Seconds()))
	}
	if d.cfg.Consistent {
		d.countKill(ctx, before)
	}
}

// drain drains and stops a server, and counts the calls that this costs.
func (d *demo) drain(ctx context.Context) {
	s := d.pick()
	if s == nil {
		d.happened(evTrouble, "", "there is no running server to drain")
		return
	}
	before := d.meter.snapshot().total
	d.happened(evDrain, s.name, "its slices go first, then it")
	at := time.Now()
	if err := s.drain(ctx); err != nil {
		d.happened(evTrouble, s.name, fmt.Sprintf("drain: %v", err))
		return
	}
	took := time.Since(at)
	backoff.Sleep(ctx, afterDrain)
	lost := d.meter.snapshot().total.minus(before).Errors
	d.mu.Lock()
	d.drainErrors = lost
	d.mu.Unlock()
	d.happened(evDrained, s.name, fmt.Sprintf("stopped %.1f s after it was asked to; %d calls lost", took.Seconds(), lost))
}

// add starts a server and waits until it owns keys.
func (d *demo) add(ctx context.Context) {
	s, err := d.addServer()
	if err != nil {
		d.happened(evTrouble, "", fmt.Sprintf("add a server: %v", err))
		return
	}
	d.happened(evAdd, s.name, "at "+s.addr)
	at := time.Now()
	if d.until(ctx, func(a *assignment.Assignment) bool { n, _ := owned(a, s.name); return n > 0 }) {
		d.happened(evJoined, s.name, fmt.Sprintf("owns keys %.1f s after it started", time.Since(at).Seconds()))
	}
}

// until waits for an assignment that is as wanted; false when the run ends first.
func (d *demo) until(ctx context.Context, wanted func(*assignment.Assignment) bool) bool {
	for {
		a, changed := d.watch.now()
		if wanted(a) {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}
