package demo

import (
	"context"
	"time"

	"github.com/slicer-project/slicer/assignment"
)

// lastCalls is how many calls a task should have had in the last window, so
// that chance alone does not look like imbalance.
const lastCalls = 600

// lastWindow is how many seconds at the end the last imbalance is measured over.
func lastWindow(c *Config) int {
	seconds := lastCalls * c.Tasks / c.QPS
	return min(max(seconds, 3), int(c.Duration.Seconds())/5)
}

// view shows each second and returns the imbalance at the end.
func (d *demo) view(ctx context.Context) (last float64, err error) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	shots := []snapshot{d.meter.snapshot()} // one a second, as many as the last window needs
	churned, told := 0., 0
	for second := 1; ; second++ {
		over := false
		select {
		case <-ticker.C:
		case <-ctx.Done():
			over = true
		}
		shot := d.meter.snapshot()
		a, _ := d.watch.now()
		if over {
			return shot.since(shots[0]).imbalance(running(a)), nil
		}
		t := d.tick(second, a, shot.since(shots[len(shots)-1]))
		var churn float64
		t.Generations, churn = d.watch.progress()
		t.KeyChurn, churned = churn-churned, churn
		t.Events, told = d.eventsAfter(told)
		if err := d.out.tick(t); err != nil {
			return 0, err
		}
		if shots = append(shots, shot); len(shots) > lastWindow(&d.cfg) {
			shots = shots[1:]
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
		Second: second, AtMS: time.Since(d.began).Milliseconds(), Distributor: d.plane.addrs.distributor,
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
	shot := d.meter.snapshot()
	s := &Summary{
		Requests: shot.total.Requests, Errors: shot.total.Errors, Availability: shot.total.availability(),
		Misrouted: shot.total.Misrouted, Retried: shot.total.Retried, HitRate: shot.total.hitRate(),
		Mode: assignment.Affinity.String(), Refused: shot.total.Refused,
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
	s.judge(d.cfg.Tasks, d.zipf == nil, hottest)
	return s
}
