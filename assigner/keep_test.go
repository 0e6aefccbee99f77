package assigner

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/lease"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// two is a store of which only the newest two generations can be had by number,
// the least that one may be told to keep.
type two struct {
	store.Backend
	mu   sync.Mutex
	lost []error
}

func (s *two) ReadGeneration(ctx context.Context, job string, g assignment.Generation) (*assignment.Assignment, error) {
	newest, err := s.Read(ctx, job)
	if err == nil && g != newest.Generation() && g != newest.Previous() {
		err = fmt.Errorf("generation %d is not kept: the newest is %d, after %d", g, newest.Generation(), newest.Previous())
	}
	if err != nil {
		s.mu.Lock()
		s.lost = append(s.lost, err)
		s.mu.Unlock()
		return nil, err
	}
	return s.Backend.ReadGeneration(ctx, job, g)
}

// Two generations are enough for a change: those that guard and bridge name are
// the newest stored ones until it is completed, since nothing is decided before.
func TestTwoGenerationsKeptAreEnough(t *testing.T) {
	virtually(t, func(t *testing.T, start func(Config) *node) {
		begun := time.Now()
		clock := func() time.Duration { return time.Since(begun) }
		st := openPebble(t)
		served := openLeases(t, st)
		spy := newSpy(t, served)
		kept := &two{Backend: st}
		n := start(Config{Stores: []NamedStore{{Backend: st, Leases: spy}}})
		n.put(consistentJob())
		d := n.attach("d1")
		d.preferred("job", "a1")
		d.want(&slicerv1.Want{Job: "job"})
		var tasks []*slicerv1.Task
		var parts []*part
		for i := range 8 {
			x := task(fmt.Sprint("t", i), uint64(i+1))
			tasks = append(tasks, x)
			parts = append(parts, joinAs(t, kept, served, x, time.Second, clock))
		}
		d.reports("job", true, tasks...)
		a := d.holds("job", "all of them", func(a *assignment.Assignment) bool { return len(owners(a)) == len(tasks) })
		eventually(t, "all believe", together(a.Generation(), parts...))
		// One after the other drains: changes follow as closely as they can.
		for i := range 6 {
			tasks[i].State = slicerv1.TaskState_TASK_STATE_DRAINING
			d.reports("job", false, tasks...)
			time.Sleep(10 * time.Millisecond)
		}
		a = d.holds("job", "the last two", ownedBy("t6", "t7"))
		eventually(t, "all believe again", func() bool {
			return parts[6].in() == spy.inForce() && parts[7].in() == spy.inForce() && spy.inForce() >= a.Generation()
		})
		kept.mu.Lock()
		defer kept.mu.Unlock()
		if err := errors.Join(kept.lost...); err != nil {
			t.Error(err)
		}
		if steps, _ := spy.did(); steps[lease.Rewrite] < 2 {
			t.Errorf("steps %v: so few changes are no test", steps)
		}
	})
}
