package assigner

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// virtually runs f on time that passes only while all wait. Assigners that f starts are
// reached through pipes.
func virtually(t *testing.T, f func(t *testing.T, start func(Config) *node)) {
	synctest.Test(t, func(t *testing.T) {
		f(t, func(cfg Config) *node {
			pipe := bufconn.Listen(1 << 20)
			return startOn(t, cfg, pipe, func(ctx context.Context, _ string) (net.Conn, error) { return pipe.DialContext(ctx) })
		})
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
	virtually(t, func(t *testing.T, start func(Config) *node) {
		n := start(Config{})
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
		// The Distributor goes: no task dies, however long it takes.
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
		again.beat(10, t2)
		again.holds("job", "both", ownedBy("t1", "t2"))
		again.beat(4, t2)
		again.holds("job", "t2", ownedBy("t2"))
	})
}

func TestFreezeAndReturn(t *testing.T) {
	virtually(t, func(t *testing.T, start func(Config) *node) {
		n := start(Config{})
		n.put(&slicerv1.JobConfig{Name: "job", Freeze: &slicerv1.FreezeConfig{ForMs: 30_000}})
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
	virtually(t, func(t *testing.T, start func(Config) *node) {
		n := start(Config{})
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

// An assigner without a Distributor is no candidate.
func TestCandidacyFollowsDistributors(t *testing.T) {
	virtually(t, func(t *testing.T, start func(Config) *node) {
		st := openPebble(t)
		stores := []NamedStore{{Backend: st}}
		x, y := start(Config{ID: "x", Stores: stores}), start(Config{ID: "y", Stores: stores})
		x.put(&slicerv1.JobConfig{Name: "job"})
		dy := y.attach("d")
		dy.preferred("job", "y")
		if i := x.inspect("job"); i.Preferred {
			t.Error("x is preferred without a Distributor")
		}
		dx := x.attach("d")
		has := func(d *raw, n int) {
			t.Helper()
			d.wait("candidates", func() bool { return len(d.prefs[st.ID()].GetCandidates()) == n })
		}
		has(dy, 2)
		dx.close()
		// It may come back at once.
		time.Sleep(vacantFor - time.Second)
		synctest.Wait()
		has(dy, 2)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		has(dy, 1)
		again := x.attach("d")
		has(dy, 2)
		has(again, 2)
		if again.prefs[st.ID()].Revision != dy.prefs[st.ID()].Revision {
			t.Error("two assigners that see the same number it differently")
		}
	})
}

// A store that fails stops decisions, says so, and is tried again.
func TestStoreFails(t *testing.T) {
	virtually(t, func(t *testing.T, start func(Config) *node) {
		f := newFaulty(openPebble(t))
		n := start(Config{Stores: []NamedStore{{Backend: f}}})
		n.put(&slicerv1.JobConfig{Name: "job"})
		d := n.attach("d")
		d.preferred("job", "a1")
		d.want(&slicerv1.Want{Job: "job"})
		t1, t2, t3 := task("t1", 1), task("t2", 1), task("t3", 1)
		d.reports("job", true, t1, t2)
		d.holds("job", "t1 and t2", ownedBy("t1", "t2"))
		f.fail(store.ErrUnavailable)
		d.beat(2, t1, t2, t3)
		drained := make(chan error)
		go func() {
			_, err := n.admin.DrainTask(t.Context(), &slicerv1.DrainTaskRequest{Job: "job", Task: "t1"})
			drained <- err
		}()
		d.beat(50, t1, t2, t3)
		if i := n.inspect("job"); !strings.Contains(i.Holding, "store failing for") || len(i.Tasks) != 3 {
			t.Errorf("holding %q, %d tasks", i.Holding, len(i.Tasks))
		}
		if err := <-drained; status.Code(err) != codes.Unavailable {
			t.Errorf("drain: %v", err)
		}
		f.fail(nil)
		d.beat(7, t1, t2, t3)
		// The drain that could not be stored is taken back.
		d.holds("job", "all three", ownedBy("t1", "t2", "t3"))
		if i := n.inspect("job"); i.Holding != "" {
			t.Errorf("holding %q", i.Holding)
		}
	})
}

func TestConvergence(t *testing.T) {
	virtually(t, func(t *testing.T, start func(Config) *node) {
		n := start(Config{})
		n.put(&slicerv1.JobConfig{Name: "job"})
		d := n.attach("d1")
		d.preferred("job", "a1")
		d.want(&slicerv1.Want{Job: "job"})
		d.reports("job", true, task("t1", 1))
		a := d.holds("job", "t1", ownedBy("t1"))
		d.acks(&slicerv1.Acks{Job: "job", MinGeneration: int64(a.Generation()) - 1, Stragglers: []string{"clerk 7"}, Clerks: 3, Slicelets: 1})
		d.wait("the straggler", func() bool { return len(d.statuses["job"].GetStragglers()) == 1 })
		d.beat(3, task("t1", 1))
		d.acks(&slicerv1.Acks{Job: "job", MinGeneration: int64(a.Generation()), Clerks: 3, Slicelets: 1})
		d.wait("convergence", func() bool { return d.statuses["job"].GetConvergedGeneration() == int64(a.Generation()) })
		if i := n.inspect("job"); i.ConvergedGeneration != i.Generation || i.Clerks != 3 || i.Slicelets != 1 {
			t.Errorf("inspect %v", i)
		}
	})
}

// Jobs that were made up leave nothing behind.
func TestMadeUpJobsAreForgotten(t *testing.T) {
	virtually(t, func(t *testing.T, start func(Config) *node) {
		n := start(Config{})
		d := n.attach("d1")
		for i := range 50 {
			job := fmt.Sprint("made-up-", i)
			d.want(&slicerv1.Want{Job: job})
			d.wait("word that there is no such job", func() bool { return d.statuses[job].GetUnknown() })
			d.want(&slicerv1.Want{Job: job, Stop: true})
		}
		synctest.Wait()
		if r := n.runners(); len(r) > 0 {
			t.Errorf("%d jobs are remembered", len(r))
		}
	})
}

// A Distributor that says nothing, and one that takes nothing, are let go, and
// harm no other.
func TestStreamsAreBounded(t *testing.T) {
	virtually(t, func(t *testing.T, start func(Config) *node) {
		n := start(Config{})
		mute := n.open()
		if err := mute.ended(); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("without a hello: %v", err)
		}
		n.put(&slicerv1.JobConfig{Name: "job"})
		d := n.attach("d1")
		d.preferred("job", "a1")
		d.want(&slicerv1.Want{Job: "job"})
		d.reports("job", true, task("t1", 1))
		d.holds("job", "t1", ownedBy("t1"))

		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		deaf, err := slicerv1.NewAssignerServiceClient(n.conn).Attach(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := deaf.Send(&slicerv1.AttachRequest{Message: &slicerv1.AttachRequest_Hello{Hello: &slicerv1.DistributorHello{DistributorId: "deaf"}}}); err != nil {
			t.Fatal(err)
		}
		for range 1000 {
			if err := deaf.Send(&slicerv1.AttachRequest{Message: &slicerv1.AttachRequest_Want{Want: &slicerv1.Want{Job: "job"}}}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if i := n.inspect("job"); i.Distributors != 2 {
			t.Fatalf("%d distributors", i.Distributors)
		}
		d.beat(40, task("t1", 1), task("t2", 1))
		d.holds("job", "t1 and t2", ownedBy("t1", "t2"))
		if i := n.inspect("job"); i.Distributors != 1 {
			t.Errorf("%d distributors", i.Distributors)
		}
	})
}
