package assigner

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"github.com/slicer-project/slicer/assignment"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// virtually runs f with an assigner, on time that passes only while everybody waits.
func virtually(t *testing.T, f func(t *testing.T, n *node)) {
	synctest.Test(t, func(t *testing.T) {
		pipe := bufconn.Listen(1 << 20)
		n := startOn(t, Config{}, pipe, func(ctx context.Context, _ string) (net.Conn, error) { return pipe.DialContext(ctx) })
		f(t, n)
	})
}

// beat has tasks report each second.
func (d *raw) beat(seconds int, tasks ...*slicerv1.Task) {
	for range seconds {
		time.Sleep(time.Second)
		d.reports("job", false, tasks...)
	}
	synctest.Wait()
}

func TestDeath(t *testing.T) {
	virtually(t, func(t *testing.T, n *node) {
		n.put(&slicerv1.JobConfig{Name: "job"})
		d := n.attach("d1")
		d.preferred("job", "a1")
		d.want(&slicerv1.Want{Job: "job"})
		t1, t2, t3 := task("t1", 1), task("t2", 1), task("t3", 1)
		d.reports("job", true, t1, t2, t3)
		d.beat(5, t1, t2, t3)
		// t3 falls silent.
		d.beat(4, t1, t2)
		d.holds("job", "t3 still", ownedBy("t1", "t2", "t3"))
		d.beat(3, t1, t2)
		a := d.holds("job", "t3 dead", ownedBy("t1", "t2"))
		if pos, ok := a.Position("t3"); !ok || a.Task(pos).State != assignment.TaskDead {
			t.Error("t3 is not dead in the task table")
		}
		// The Distributor goes: nobody dies, however long it takes.
		d.close()
		time.Sleep(time.Hour)
		synctest.Wait()
		if i := n.inspect("job"); i.Distributors != 0 || i.Preferred || i.Tasks[0].Task.State != slicerv1.TaskState_TASK_STATE_RUNNING {
			t.Errorf("without a Distributor: %v", i)
		}
		// It returns, and t2 with it: t1 has its time again.
		again := n.attach("d1")
		again.preferred("job", "a1")
		again.want(&slicerv1.Want{Job: "job"})
		again.reports("job", true, t2)
		again.beat(5, t2)
		again.holds("job", "both", ownedBy("t1", "t2"))
		again.beat(4, t2)
		again.holds("job", "t2", ownedBy("t2"))
	})
}

func TestFreezeAndReturn(t *testing.T) {
	virtually(t, func(t *testing.T, n *node) {
		n.put(&slicerv1.JobConfig{Name: "job"})
		d := n.attach("d1")
		d.preferred("job", "a1")
		d.want(&slicerv1.Want{Job: "job"})
		var all []*slicerv1.Task
		for _, name := range []string{"t1", "t2", "t3", "t4", "t5", "t6"} {
			all = append(all, task(name, 1))
		}
		d.reports("job", true, all...)
		d.beat(5, all...)
		d.beat(8, all[:2]...)
		d.holds("job", "all of them", func(a *assignment.Assignment) bool { return len(owners(a)) == 6 })
		if i := n.inspect("job"); i.Holding == "" {
			t.Error("it does not say that it is frozen")
		}
		d.beat(3, all...)
		if i := n.inspect("job"); i.Holding != "" {
			t.Errorf("still holding: %s", i.Holding)
		}
		d.beat(8, all[:2]...)
		d.beat(40, all[:2]...)
		d.holds("job", "the living", ownedBy("t1", "t2"))
	})
}

// Load moves keys at the balancing interval, and no sooner.
func TestLoadIsBalanced(t *testing.T) {
	virtually(t, func(t *testing.T, n *node) {
		n.put(&slicerv1.JobConfig{Name: "job", MaxReplicas: 1})
		d := n.attach("d1")
		d.preferred("job", "a1")
		d.want(&slicerv1.Want{Job: "job"})
		names := []string{"t1", "t2", "t3", "t4"}
		hot := func(s assignment.Slice) float64 { // all load in the first tenth of the keys
			both, _ := s.Intersect(assignment.Slice{End: assignment.KeyspaceEnd / 10})
			if both.Start >= both.End {
				return 0
			}
			return 1000 * both.Fraction()
		}
		report := func(complete bool) {
			d.mu.Lock()
			a := d.held["job"]
			d.mu.Unlock()
			m := &slicerv1.TaskReports{Job: "job", Complete: complete}
			for _, name := range names {
				d.seq[name]++
				r := &slicerv1.Report{Sequence: d.seq[name], State: slicerv1.TaskState_TASK_STATE_RUNNING}
				if a != nil {
					r.Load = loadOf(a, name, hot)
				}
				m.Reports = append(m.Reports, &slicerv1.TaskReport{Task: task(name, 1), Report: r})
			}
			d.say(&slicerv1.AttachRequest{Message: &slicerv1.AttachRequest_Reports{Reports: m}})
		}
		report(true)
		time.Sleep(time.Second)
		first := n.inspect("job").Generation
		for i := range 60 {
			report(false)
			time.Sleep(time.Second)
			synctest.Wait()
			if g := n.inspect("job").Generation; i < 4 && g != first {
				t.Fatalf("after %d s there is generation %d", i+1, g)
			}
		}
		i := n.inspect("job")
		if i.Imbalance > 1.2 || i.Imbalance < 1 || i.Floor < 1 {
			t.Errorf("after a minute imbalance is %.2f, floor %.2f", i.Imbalance, i.Floor)
		}
		for _, x := range i.Tasks {
			if x.Load < 15 || x.LastReportAgeMs > 2000 || !x.Connected {
				t.Errorf("task %v", x)
			}
		}
	})
}
