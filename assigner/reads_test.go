package assigner

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// counted is a store that counts the readings of jobs, assignments and orders.
type counted struct {
	store.Backend
	jobs, assignments, orders atomic.Int64
}

func (c *counted) GetJob(ctx context.Context, name string) (store.Job, error) {
	c.jobs.Add(1)
	return c.Backend.GetJob(ctx, name)
}

func (c *counted) Read(ctx context.Context, job string) (*assignment.Assignment, error) {
	c.assignments.Add(1)
	return c.Backend.Read(ctx, job)
}

func (c *counted) Overrides(ctx context.Context, job string) (store.Overrides, error) {
	c.orders.Add(1)
	return c.Backend.Overrides(ctx, job)
}

func (c *counted) reads() [3]int64 {
	return [3]int64{c.jobs.Load(), c.assignments.Load(), c.orders.Load()}
}

// What an assigner has written itself it does not read again when its watch says so;
// what anything else has written it does.
func TestOwnWritesAreNotReadAgain(t *testing.T) {
	virtually(t, func(t *testing.T, start func(Config) *node) {
		st := &counted{Backend: openPebble(t)}
		n := start(Config{Stores: []NamedStore{{Backend: st}}})
		n.put(&slicerv1.JobConfig{Name: "job"})
		d := n.attach("d")
		d.preferred("job", "a1")
		d.want(&slicerv1.Want{Job: "job"})
		tasks := []*slicerv1.Task{task("t1", 1)}
		d.reports("job", true, tasks...)
		names := []string{"t1"}
		a := d.holds("job", "the first", ownedBy(names...))
		synctest.Wait()
		before := st.reads()
		for i := range 5 {
			names = append(names, fmt.Sprint("t", i+2))
			tasks = append(tasks, task(names[i+1], 1))
			d.beat(2, tasks...)
			next := d.holds("job", "one more", ownedBy(names...))
			if next.Generation() <= a.Generation() {
				t.Errorf("generation %d after %d", next.Generation(), a.Generation())
			}
			a = next
		}
		synctest.Wait()
		if got := st.reads(); got != before {
			t.Errorf("jobs, assignments and orders were read %v times, after %v before five writes of its own", got, before)
		}
		if _, err := st.PutJob(t.Context(), assignment.JobConfig{Name: "job", MaxReplicas: 2}, store.AnyVersion); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := st.reads(); got != [3]int64{before[0] + 1, before[1] + 1, before[2] + 1} {
			t.Errorf("after a write of another they were read %v times, %v before", got, before)
		}
	})
}
