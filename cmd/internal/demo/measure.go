package demo

import (
	"context"
	"time"

	"github.com/slicer-project/slicer/assignment"
)

// lastCalls is how many calls a task should have had in the last window, so
// that chance alone does not look like imbalance.
const lastCalls = 600

// lastWindow is how much of the load at the end the last imbalance is measured over.
func lastWindow(c *Config) time.Duration {
	return min(max(time.Duration(lastCalls*c.Tasks)*time.Second/time.Duration(c.QPS), 3*time.Second), c.Duration/5)
}

// shot is what had been counted when so much of the load was over. That is less than
// has passed since it began when the process was without the CPU.
type shot struct {
	snapshot
	at time.Duration
}

// recent drops the shots that a window which ends at the newest does not need. What is
// left begins with the start of the window, if it is that long.
func recent(shots []shot, window time.Duration) []shot {
	for len(shots) > 1 && shots[len(shots)-1].at-shots[1].at >= window {
		shots = shots[1:]
	}
	return shots
}

func (d *demo) shot() shot {
	return shot{d.meter.snapshot(), time.Since(d.began) - time.Duration(d.stalled.Load())}
}

// view shows each second and returns the imbalance at the end.
func (d *demo) view(ctx context.Context) (last float64, err error) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	window, shots := lastWindow(&d.cfg), []shot{d.shot()} // one a second
	churned, told := 0., 0
	for second := 1; ; second++ {
		over := false
		select {
		case <-ticker.C:
		case <-ctx.Done():
			over = true
		}
		before := shots[len(shots)-1].snapshot
		shots = recent(append(shots, d.shot()), window)
		now := shots[len(shots)-1].snapshot
		a, _ := d.watch.now()
		if over {
			return now.since(shots[0].snapshot).imbalance(running(a)), nil
		}
		t := d.tick(second, a, now.since(before))
		var churn float64
		t.Generations, churn = d.watch.progress()
		t.KeyChurn, churned = churn-churned, churn
		t.Events, told = d.eventsAfter(told)
		if err := d.out.tick(t); err != nil {
			return 0, err
		}
	}
}

func (d *demo) eventsAfter(n int) ([]event, int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]event{}, d.events[n:]...), len(d.events)
}

func (d *demo) tick(second int, a *assignment.Assignment, s snapshot) *tick {
	t := &tick{
		Second: second, AtMS: time.Since(d.began).Milliseconds(), Distributor: d.plane.addrs.distributor, Page: d.plane.addrs.page,
		counts: s.total, HitRate: s.total.hitRate(), Imbalance: s.imbalance(running(a)),
	}
	if a == nil {
		return t
	}
	t.Generation, t.Slices = int64(a.Generation()), a.NumSlices()
	for _, k := range a.Tasks() {
		n, share := owned(a, k.Name)
		t.Tasks = append(t.Tasks, tickTask{k.Name, k.State.String(), s.carried[k.Name], n, share})
	}
	return t
}

func (d *demo) summary(first, last float64) *Summary {
	flooded, aside := d.meter.flood()
	total := d.meter.snapshot().total.minus(aside)
	s := &Summary{
		Requests: total.Requests, Errors: total.Errors, Availability: total.availability(), Flooded: flooded,
		Misrouted: total.Misrouted, Retried: total.Retried, HitRate: total.hitRate(),
		Mode: assignment.Affinity.String(), Refused: total.Refused,
		ImbalanceFirst: first, ImbalanceLast: last, StalledMS: time.Duration(d.stalled.Load()).Milliseconds(),
	}
	var churn float64
	if s.Generations, churn = d.watch.progress(); s.Generations > 0 {
		s.KeyChurnPerRound = churn / float64(s.Generations)
	}
	s.LookupP50NS, s.LookupP99NS = d.meter.lookupTimes()
	s.Events, _ = d.eventsAfter(0)
	d.mu.Lock()
	s.DrainErrors = d.drainErrors
	s.KillErrors = d.killErrors
	d.mu.Unlock()
	if d.cfg.Consistent {
		s.Mode = assignment.Consistent.String()
		d.overlaps.tell(s)
	}
	hottest := 0.
	if d.zipf != nil {
		hottest = d.zipf.hottest()
	}
	s.judge(&d.cfg, hottest)
	return s
}
