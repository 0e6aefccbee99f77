package assigner

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/access/accesstest"
	"github.com/slicer-project/slicer/assignment/store"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

const anybodysTasks = "plane: [anonymous]\nadmin: [anonymous]\njobs: {own: ['**']}\n"

// namesStore counts the writes of names, and can lose the record.
type namesStore struct {
	store.Backend
	puts    atomic.Int64
	damaged atomic.Bool
}

func (s *namesStore) Names(ctx context.Context, job string) (store.Names, error) {
	if s.damaged.Load() {
		return store.Names{}, fmt.Errorf("%w names/%s: checksum", store.ErrCorrupt, job)
	}
	return s.Backend.Names(ctx, job)
}

func (s *namesStore) PutNames(ctx context.Context, job string, n store.Names) error {
	if s.damaged.Load() {
		return fmt.Errorf("%w names/%s: checksum", store.ErrCorrupt, job)
	}
	s.puts.Add(1)
	return s.Backend.PutNames(ctx, job, n)
}

// tasksOf reports tasks, each under its own identity.
func (d *raw) tasksOf(complete bool, tasks ...*slicerv1.Task) {
	d.t.Helper()
	m := &slicerv1.TaskReports{Job: "job", Complete: complete}
	for _, x := range tasks {
		d.seq[x.Name]++
		m.Reports = append(m.Reports, &slicerv1.TaskReport{Task: x, Identity: "spiffe://corp/" + x.Name, Report: &slicerv1.Report{Sequence: d.seq[x.Name], State: slicerv1.TaskState_TASK_STATE_RUNNING}})
	}
	d.say(&slicerv1.AttachRequest{Message: &slicerv1.AttachRequest_Reports{Reports: m}})
}

// begin reports tasks as a Distributor does: all, and again each second. The first report may
// come before it is read whose their names are.
func (d *raw) begin(tasks ...*slicerv1.Task) {
	d.t.Helper()
	d.tasksOf(true, tasks...)
	for range 3 {
		time.Sleep(time.Second)
		d.tasksOf(false, tasks...)
	}
}

// The one that takes over, another assigner or the same one after a restart, knows whose the names
// of tasks are: that of one that lives, though the first report of it is a stranger's with a
// copied incarnation, and that of one that has just gone. A minute later that one is free.
func TestNamesAcrossATakeover(t *testing.T) {
	for _, first := range []string{"a1", "a2"} {
		t.Run("from "+first+" to a2", func(t *testing.T) {
			virtually(t, func(t *testing.T, start func(Config) *node) {
				st := &namesStore{Backend: openPebble(t)}
				run := func(id string) *node {
					return start(Config{ID: id, Stores: []NamedStore{{Backend: st}}, Rights: accesstest.Rights(t, anybodysTasks, nil)})
				}
				n := run(first)
				n.put(&slicerv1.JobConfig{Name: "job"})
				d := n.attach("d1")
				d.preferred("job", first)
				d.want(&slicerv1.Want{Job: "job"})
				t1, t2 := task("t1", 1), task("t2", 1)
				d.begin(t1, t2)
				d.holds("job", "both", ownedBy("t1", "t2"))
				d.report("spiffe://corp/t2", 99, slicerv1.TaskState_TASK_STATE_DEAD, t2)
				d.holds("job", "t1", ownedBy("t1"))
				n.stop()

				n = run("a2")
				bad, good := n.attach("d2"), n.attach("d1")
				bad.tasksOf(true)
				for range 5 { // before and after the assigner knows that it is preferred
					bad.report(strangeID, 1, slicerv1.TaskState_TASK_STATE_RUNNING, t1)
					bad.report(strangeID, 1, slicerv1.TaskState_TASK_STATE_RUNNING, task("t2", 9))
					time.Sleep(time.Second)
				}
				synctest.Wait()
				bad.preferred("job", "a2")
				named := map[string]int{}
				bad.mu.Lock()
				for _, r := range bad.refused {
					if codes.Code(r.Code) != codes.AlreadyExists {
						t.Errorf("refused with %v", r)
					}
					named[fmt.Sprintf("%s/%d", r.Task, r.Incarnation)]++
				}
				bad.mu.Unlock()
				if named["t1/1"] == 0 || named["t2/9"] == 0 || len(named) != 2 {
					t.Errorf("refused to the stranger: %v", named)
				}
				good.want(&slicerv1.Want{Job: "job"})
				good.tasksOf(true, t1)
				for range 62 {
					time.Sleep(time.Second)
					good.tasksOf(false, t1)
				}
				a := good.holds("job", "t1", ownedBy("t1"))
				if pos, ok := a.Position("t2"); ok && a.Task(pos).State != assignment.TaskDead {
					t.Errorf("t2 is %s", a.Task(pos).State)
				}
				bad.report(strangeID, 2, slicerv1.TaskState_TASK_STATE_RUNNING, task("t2", 10))
				good.holds("job", "both", ownedBy("t1", "t2"))
				good.mu.Lock()
				defer good.mu.Unlock()
				if len(good.refused) > 0 {
					t.Errorf("refused to t1 itself: %v", good.refused)
				}
			})
		})
	}
}

// Tasks that restart under their identities, one after the other, cost no write; nor do any
// where the rights leave one identity for each name, or without a policy.
func TestNamesCostFewWrites(t *testing.T) {
	for _, x := range []struct {
		policy string
		want   int64
	}{
		{anybodysTasks, 1},
		{"plane: [anonymous]\nadmin: [anonymous]\njobs: {own: ['spiffe://corp/{task}']}\n", 0},
		{"", 0},
	} {
		virtually(t, func(t *testing.T, start func(Config) *node) {
			st := &namesStore{Backend: openPebble(t)}
			n := start(Config{Stores: []NamedStore{{Backend: st}}, Rights: accesstest.Rights(t, x.policy, nil)})
			n.put(&slicerv1.JobConfig{Name: "job"})
			d := n.attach("d1")
			d.preferred("job", "a1")
			d.want(&slicerv1.Want{Job: "job"})
			var all []*slicerv1.Task
			for i := range 8 {
				all = append(all, task(fmt.Sprint("t", i), 1))
			}
			d.begin(all...)
			for i := range all {
				d.holds("job", "all", func(a *assignment.Assignment) bool { return len(owners(a)) == len(all) })
				old := all[i]
				all[i] = task(old.Name, uint64(100+i))
				d.say(&slicerv1.AttachRequest{Message: &slicerv1.AttachRequest_Reports{Reports: &slicerv1.TaskReports{Job: "job", Reports: []*slicerv1.TaskReport{{Task: old, Disconnected: true, Identity: "spiffe://corp/" + old.Name}}}}})
				for range 5 {
					time.Sleep(time.Second)
					d.tasksOf(false, all...)
				}
			}
			d.holds("job", "all anew", func(a *assignment.Assignment) bool {
				pos, ok := a.Position("t7")
				return ok && a.Task(pos).Incarnation == 107
			})
			if got := st.puts.Load(); got != x.want {
				t.Errorf("with policy %q names were written %d times, want %d", x.policy, got, x.want)
			}
			if names, err := st.Names(t.Context(), "job"); err != nil || len(names.Held) != len(all)*int(x.want) {
				t.Errorf("with policy %q: %+v, %v", x.policy, names, err)
			}
		})
	}
}

// A record that is damaged keeps no task out, and is not overwritten.
func TestNamesDamaged(t *testing.T) {
	virtually(t, func(t *testing.T, start func(Config) *node) {
		st := &namesStore{Backend: openPebble(t)}
		st.damaged.Store(true)
		n := start(Config{Stores: []NamedStore{{Backend: st}}, Rights: accesstest.Rights(t, anybodysTasks, nil)})
		n.put(&slicerv1.JobConfig{Name: "job"})
		d := n.attach("d1")
		d.preferred("job", "a1")
		d.want(&slicerv1.Want{Job: "job"})
		t1 := task("t1", 1)
		d.begin(t1)
		d.holds("job", "t1", ownedBy("t1"))
		d.report(strangeID, 9, slicerv1.TaskState_TASK_STATE_RUNNING, t1)
		d.wait("a refusal", func() bool { return len(d.refused) > 0 })
		st.damaged.Store(false) // it was mended
		for range 40 {
			time.Sleep(time.Second)
			d.tasksOf(false, t1)
		}
		if names, err := st.Names(t.Context(), "job"); err != nil || names.Of("t1") != "spiffe://corp/t1" {
			t.Errorf("%+v, %v", names, err)
		}
	})
}

// A record that assigners which keep none have outlived keeps no task out: not when they have
// decided for half an hour. An outage of that length is none of it.
func TestNamesOutOfDate(t *testing.T) {
	for _, between := range []bool{true, false} {
		virtually(t, func(t *testing.T, start func(Config) *node) {
			st := openPebble(t)
			rights := accesstest.Rights(t, anybodysTasks, nil)
			n := start(Config{Stores: []NamedStore{{Backend: st}}, Rights: rights})
			n.put(&slicerv1.JobConfig{Name: "job"})
			d := n.attach("d1")
			d.preferred("job", "a1")
			d.want(&slicerv1.Want{Job: "job"})
			d.begin(task("t1", 1))
			d.holds("job", "t1", ownedBy("t1"))
			n.stop()
			if between {
				n = start(Config{Stores: []NamedStore{{Backend: st}}})
				d = n.attach("d1")
				d.preferred("job", "a1")
				d.want(&slicerv1.Want{Job: "job"})
				time.Sleep(40 * time.Minute)
				d.begin(task("t2", 1))
				d.holds("job", "t2", func(a *assignment.Assignment) bool { _, ok := a.Position("t2"); return ok })
				n.stop()
			}
			time.Sleep(40 * time.Minute)

			n = start(Config{Stores: []NamedStore{{Backend: st}}, Rights: rights})
			d = n.attach("d1")
			d.preferred("job", "a1")
			d.want(&slicerv1.Want{Job: "job"})
			d.tasksOf(true)
			for range 5 {
				d.report(strangeID, 1, slicerv1.TaskState_TASK_STATE_RUNNING, task("t1", 9))
				time.Sleep(time.Second)
			}
			synctest.Wait()
			d.mu.Lock()
			defer d.mu.Unlock()
			if (len(d.refused) == 0) != between {
				t.Errorf("others between: %v, refused: %v", between, d.refused)
			}
		})
	}
}

// An assigner that keeps names has written them of late whenever it decides, and empties the record
// when rights leave one identity for each name.
func TestNamesStayUpToDate(t *testing.T) {
	virtually(t, func(t *testing.T, start func(Config) *node) {
		st := &namesStore{Backend: openPebble(t)}
		n := start(Config{Stores: []NamedStore{{Backend: st}}, Rights: accesstest.Rights(t, anybodysTasks, nil)})
		n.put(&slicerv1.JobConfig{Name: "job"})
		d := n.attach("d1")
		d.preferred("job", "a1")
		d.want(&slicerv1.Want{Job: "job"})
		t1 := task("t1", 1)
		d.begin(t1)
		d.holds("job", "t1", ownedBy("t1"))
		for range 12 * 60 {
			time.Sleep(time.Second)
			d.tasksOf(false, t1)
		}
		if got := st.puts.Load(); got != 1 {
			t.Errorf("written %d times although nothing is decided", got)
		}
		d.tasksOf(false, t1, task("t2", 1))
		a := d.holds("job", "both", ownedBy("t1", "t2"))
		if names, err := st.Names(t.Context(), "job"); err != nil || len(names.Held) != 2 || a.Generation().Time().Sub(names.AsOf.Time()) > time.Minute {
			t.Errorf("generation %d, %+v, %v", a.Generation(), names, err)
		}
		n.put(&slicerv1.JobConfig{Name: "job", Access: &slicerv1.Access{Own: []string{"spiffe://corp/{task}"}}})
		for range 5 {
			time.Sleep(time.Second)
			d.tasksOf(false, t1)
		}
		if names, err := st.Names(t.Context(), "job"); err != nil || len(names.Held) != 0 {
			t.Errorf("kept although rights bind them: %+v, %v", names, err)
		}
	})
}
