package leasetest

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/lease"
)

// TaskName names the i-th task of Assignment.
func TaskName(i int) string { return fmt.Sprintf("task-%d", i) }

// Incarnation is that of the i-th task of Assignment.
func Incarnation(i int) uint64 { return uint64(i) + 1 }

// Assignment is generation g of a job in which 64 equal slices go round among n
// tasks: between g and g+1 the slices that are divisible by 8 after adding g
// move on, the others stay.
func Assignment(job string, g assignment.Generation, n int) (*assignment.Assignment, error) {
	tasks := make([]assignment.Task, n)
	for i := range tasks {
		tasks[i] = assignment.Task{Name: TaskName(i), Incarnation: Incarnation(i), Address: "127.0.0.1:1", Index: uint32(i), Weight: 1, State: assignment.TaskRunning}
	}
	const slices = 64
	c := assignment.Columns{}
	for i := range slices {
		c.Starts = append(c.Starts, assignment.SliceKey(i)*(assignment.KeyspaceEnd/slices))
		c.Owners = append(c.Owners, uint32((i+int(g+assignment.Generation(i))/8)%n))
	}
	h := assignment.Header{Job: job, StoreID: 1, Generation: g, Previous: g - 1}
	return assignment.New(h, tasks, c)
}

// readersFollowChanges has real readers follow real changes, and looks, all the
// while, for a key with two owners and for one that is lost without need.
func (f *fixture) readersFollowChanges() {
	const tasks, changes = 3, 20
	var parts []*lease.Job
	for i := range tasks {
		parts = append(parts, f.join(i, tasks))
	}
	f.advance(1)
	f.eventually("all believe in the first assignment", func() bool { return all(parts, 1) })

	stop := make(chan struct{})
	done := make(chan struct{})
	var checks atomic.Int64
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				f.look(parts)
				checks.Add(1)
				time.Sleep(time.Millisecond)
			}
		}
	}()
	for g := assignment.Generation(2); g <= changes+1; g++ {
		f.advance(g)
		f.eventually(fmt.Sprintf("all believe in generation %d", g), func() bool { return all(parts, g) })
	}
	close(stop)
	<-done
	f.t.Logf("%d changes, %d looks at 64 keys of %d tasks", changes, checks.Load(), tasks)
}

// join makes the i-th of n tasks take part in the job.
func (f *fixture) join(i, n int) *lease.Job {
	f.t.Helper()
	r, err := lease.NewReader(lease.Config{Readers: f.Readers, TTL: 5 * f.TTL})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		if err := r.Close(); err != nil {
			f.t.Errorf("Close of a reader: %v", err)
		}
	})
	j, err := r.Join(lease.JobConfig{Job: f.job, Task: TaskName(i), Incarnation: Incarnation(i),
		Fetch: func(_ context.Context, g assignment.Generation) (*assignment.Assignment, error) {
			return Assignment(f.job, g, n)
		}})
	if err != nil {
		f.t.Fatal(err)
	}
	return j
}

func (f *fixture) advance(g assignment.Generation) {
	f.t.Helper()
	st, err := lease.Advance(f.ctx, f.w, lease.Change{Job: f.job, Token: f.token, Wanted: g, Wait: f.TTL})
	if err != nil {
		f.t.Fatalf("Advance to %d: %v", g, err)
	}
	if want := (lease.Records{Head: g, Guard: lease.Guard{Generation: g, Open: true}}); st.Records != want {
		f.t.Fatalf("Advance to %d has left %+v", g, st.Records)
	}
}

func all(parts []*lease.Job, g assignment.Generation) bool {
	for _, j := range parts {
		before, after := j.Belief().Assignments()
		if before == nil || after != nil || before.Generation() != g {
			return false
		}
	}
	return true
}

// look asks all tasks for all keys. The one that says yes is asked again after the
// others: only one that owns the key at both ends of the time in which another says yes
// owns it together with that one.
func (f *fixture) look(parts []*lease.Job) {
	for i := range 64 {
		k := assignment.SliceKey(i) * (assignment.KeyspaceEnd / 64)
		for n, j := range parts {
			if !j.Owns(k) {
				continue
			}
			for m, other := range parts {
				if m != n && other.Owns(k) && j.Owns(k) {
					f.t.Errorf("key %s is owned by %s and %s", k, TaskName(n), TaskName(m))
				}
			}
		}
	}
}

// deadReaderRunsOut lets a change wait for a reader that has died.
func (f *fixture) deadReaderRunsOut() {
	live := f.join(0, 2)
	f.advance(1)
	f.eventually("the live one believes", func() bool { return all([]*lease.Job{live}, 1) })
	f.inTime(f.TTL, func() error {
		dead, err := f.open(f.TTL)
		if err != nil {
			return err
		}
		return holds(f, dead)
	})
	start := time.Now()
	if _, err := lease.Advance(f.ctx, f.w, lease.Change{Job: f.job, Token: f.token, Wanted: 2, Wait: f.TTL / 4}); err != nil {
		f.t.Fatalf("Advance past a dead reader: %v", err)
	}
	f.t.Logf("a dead reader has held up a change for %s, the lease time is %s", time.Since(start).Round(time.Millisecond), f.TTL)
	f.eventually("the live one believes in the new one", func() bool { return all([]*lease.Job{live}, 2) })
}
