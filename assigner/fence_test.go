package assigner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/store/etcdstore"
	"github.com/slicer-project/slicer/assignment/store/etcdstore/etcdtest"
	"github.com/slicer-project/slicer/assignment/waittest"
	"github.com/slicer-project/slicer/lease"
	etcdlease "github.com/slicer-project/slicer/lease/etcd"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// onEtcd opens a store and its leases, side by side in one etcd.
func onEtcd(t testing.TB) (store.Backend, *etcdlease.Store) {
	t.Helper()
	prefix := etcdtest.Prefix(t)
	st, err := etcdstore.Open(t.Context(), etcdstore.Config{Endpoints: etcdtest.Start(t), Prefix: prefix, RequestTimeout: waittest.Patience})
	if err != nil {
		t.Fatal(err)
	}
	leases, err := waittest.Answer(lease.ErrUnavailable, func() (*etcdlease.Store, error) {
		return etcdlease.Open(t.Context(), etcdlease.Config{Endpoints: etcdtest.Start(t), Prefix: prefix})
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(leases.Close(), st.Close()); err != nil {
			t.Error(err)
		}
	})
	return st, leases
}

// tokened is a store that remembers which tokens it was to compare.
type tokened struct {
	*etcdstore.Store
	mu     sync.Mutex
	tokens []int64
}

func (s *tokened) Commit(ctx context.Context, c store.Commit) error {
	s.mu.Lock()
	s.tokens = append(s.tokens, c.Token)
	s.mu.Unlock()
	return s.Store.Commit(ctx, c)
}

// An assigner that was deposed, and does not know it yet, stores nothing and
// changes nothing. It goes on when it leads again.
func TestDeposedWritesNothing(t *testing.T) {
	t.Parallel()
	backend, leases := onEtcd(t)
	st := &tokened{Store: backend.(*etcdstore.Store)}
	s := newSpy(t, leases)
	n := start(t, Config{Stores: []NamedStore{{Backend: st, Leases: s}}})
	cfg := consistentJob()
	cfg.LeaseDurationMs = 20_000 // it loses the job lease by what follows alone
	n.put(cfg)
	d := n.attach("d1")
	d.preferred("job", "a1")
	d.want(&slicerv1.Want{Job: "job"})
	d.reports("job", true, task("t1", 1), task("t2", 1))
	first := d.holds("job", "t1 and t2", ownedBy("t1", "t2"))
	eventually(t, "the first generation in force", func() bool { return s.inForce() == first.Generation() })

	// Another takes its place, as if this one had been stopped for a while.
	other, err := waittest.Answer(lease.ErrUnavailable, func() (lease.WriteSession, error) { return leases.OpenWriter(t.Context(), lease.MaxTTL) })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Lead(t.Context(), "job"); !errors.Is(err, lease.ErrHeld) {
		t.Fatalf("the job lease is not held: %v", err)
	}
	if err := s.newest().WriteSession.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	token, err := other.Lead(t.Context(), "job")
	if err != nil {
		t.Fatal(err)
	}
	d.reports("job", false, task("t1", 1), task("t2", 1), task("t3", 1))
	eventually(t, "it hears that it is deposed", func() bool { return strings.Contains(n.inspect("job").Holding, "job lease") })
	if a, err := st.Read(t.Context(), "job"); err != nil || a.Generation() != first.Generation() {
		t.Errorf("stored is %v, %v", a, err)
	}
	state, err := other.State(t.Context(), "job")
	if want := (lease.Records{Head: first.Generation(), Guard: lease.Guard{Generation: first.Generation(), Open: true}}); err != nil || state.Records != want {
		t.Errorf("records %+v, %v", state, err)
	}
	if err := other.Resign(t.Context(), "job", token); err != nil {
		t.Fatal(err)
	}
	a := d.holds("job", "t3", ownedBy("t1", "t2", "t3"))
	eventually(t, "that in force", func() bool { return s.inForce() >= a.Generation() })
	if err := other.Close(t.Context()); err != nil {
		t.Error(err)
	}
	// It may have heard of it before it wrote: then nothing above shows that the store compares.
	st.mu.Lock()
	defer st.mu.Unlock()
	if len(st.tokens) < 2 || slices.Contains(st.tokens, 0) || slices.Contains(st.tokens, int64(token)) {
		t.Errorf("written under the tokens %d; the other one's is %d", st.tokens, token)
	}
}

// A store without leases refuses jobs in consistent mode, and says why one that is
// stored already is held.
func TestWithoutLeases(t *testing.T) {
	st := openPebble(t)
	n := start(t, Config{Stores: []NamedStore{{Backend: st}}})
	_, err := n.admin.PutJob(t.Context(), &slicerv1.PutJobRequest{Config: consistentJob()})
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), errNoLeases.Error()) {
		t.Errorf("put: %v", err)
	}
	cfg := assignment.JobConfig{Name: "job", Mode: assignment.Consistent}
	if _, err := st.PutJob(t.Context(), cfg, store.NoVersion); err != nil {
		t.Fatal(err)
	}
	d := n.attach("d1")
	d.preferred("job", "a1")
	d.want(&slicerv1.Want{Job: "job"})
	d.reports("job", true, task("t1", 1))
	eventually(t, "it says why it holds", func() bool { return strings.Contains(n.inspect("job").Holding, errNoLeases.Error()) })
	if c := n.inspect("job").Consistency; c.GetError() == "" || c.GetLeading() {
		t.Errorf("consistency %v", c)
	}
	if _, err := st.Read(t.Context(), "job"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("something is stored: %v", err)
	}
	n.put(&slicerv1.JobConfig{Name: "other"}) // affinity
}

// Jobs in consistent mode have exactly one replica a key.
func TestConsistentHasOneReplica(t *testing.T) {
	n := start(t, Config{})
	cfg := consistentJob()
	cfg.MaxReplicas = 2
	_, err := n.admin.PutJob(t.Context(), &slicerv1.PutJobRequest{Config: cfg})
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "consistent mode, where at most one task owns a key") {
		t.Errorf("two replicas: %v", err)
	}
}

// A job that was deleted and made anew goes on above the numbers that were in
// force; a job without tasks may change its mode, and back.
func TestConsistentAnew(t *testing.T) {
	virtually(t, func(t *testing.T, start func(Config) *node) {
		c := newConsistent(t, start, "x")
		n, d := c.nodes[0], c.ds[0]
		c.add("t1")
		c.add("t2")
		d.reports("job", true, c.tasks...)
		c.settled()
		before := c.spy.inForce()
		stop := func() {
			for _, x := range c.tasks {
				c.parts[x.Name].leave()
				x.State = slicerv1.TaskState_TASK_STATE_DEAD
				delete(c.parts, x.Name)
			}
			d.reports("job", false, c.tasks...)
			c.tasks = nil
			time.Sleep(time.Second)
		}
		stop()
		if _, err := n.admin.DeleteJob(t.Context(), &slicerv1.DeleteJobRequest{Name: "job"}); err != nil {
			t.Fatal(err)
		}
		d.wait("word that it is gone", func() bool { return d.statuses["job"].GetUnknown() })
		n.put(consistentJob())
		c.add("t3")
		c.settled()
		if g := c.spy.inForce(); g <= before {
			t.Errorf("generation %d in force after %d", g, before)
		}
		// Into affinity mode, where keys have several owners, and back.
		stop()
		n.put(&slicerv1.JobConfig{Name: "job", MinReplicas: 2, MaxReplicas: 2, Balance: consistentJob().Balance})
		d.reports("job", false, task("u1", 1), task("u2", 1))
		d.beat(1, task("u1", 1), task("u2", 1))
		d.holds("job", "two owners a key", func(a *assignment.Assignment) bool { return a.NumOwners() == 2*a.NumSlices() })
		if n.inspect("job").Consistency != nil {
			t.Error("leases in affinity mode")
		}
		for _, name := range []string{"u1", "u2"} {
			x := task(name, 1)
			x.State = slicerv1.TaskState_TASK_STATE_DEAD
			d.reports("job", false, x)
		}
		time.Sleep(time.Second)
		n.put(consistentJob())
		d.reports("job", true, c.tasks...)
		c.add("t4")
		c.add("t5")
		c.settled()
	})
}

// Real readers on etcd follow changes while the assigner's session is taken from it
// between and in the middle of them.
func TestConsistentOnEtcd(t *testing.T) {
	t.Parallel()
	st, leases := onEtcd(t)
	s := newSpy(t, leases)
	n := start(t, Config{Stores: []NamedStore{{Backend: st, Leases: s}}})
	n.put(consistentJob())
	d := n.attach("d1")
	d.preferred("job", "a1")
	d.want(&slicerv1.Want{Job: "job"})
	tasks := []*slicerv1.Task{task("t1", 1), task("t2", 1), task("t3", 1)}
	var parts []*part
	for _, x := range tasks {
		parts = append(parts, joinAs(t, st, leases, x, 2*time.Second, nil))
	}
	j := newJudge(t)
	j.add(parts...)
	j.begin(time.Millisecond)
	settled := func() {
		t.Helper()
		eventually(t, "all believe in what is stored", func() bool {
			d.reports("job", false, tasks...)
			a, err := st.Read(t.Context(), "job")
			return err == nil && s.inForce() == a.Generation() && together(a.Generation(), parts...)()
		})
	}
	d.reports("job", true, tasks...)
	settled()
	for i := range 6 {
		drained := make(chan error, 1)
		go func() {
			for {
				// An assigner without a session takes no decisions until it has a new one.
				_, err := n.admin.DrainTask(t.Context(), &slicerv1.DrainTaskRequest{Job: "job", Task: "t1", Undo: i%2 == 1})
				if status.Code(err) != codes.Unavailable {
					drained <- err
					return
				}
				time.Sleep(50 * time.Millisecond)
			}
		}()
		if i%3 == 1 {
			if err := s.newest().WriteSession.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if err := <-drained; err != nil {
			t.Errorf("drain %d: %v", i, err)
		}
		settled()
	}
	if steps, _ := s.did(); steps[lease.Span] < 6 {
		t.Errorf("steps %v", steps)
	}
}

// BenchmarkRecall measures how long a recall takes when all readers live, by an
// assigner and readers on one etcd in this process.
func BenchmarkRecall(b *testing.B) {
	st, leases := onEtcd(b)
	s := newSpy(b, leases)
	n := start(b, Config{Stores: []NamedStore{{Backend: st, Leases: s}}})
	n.put(consistentJob())
	d := n.attach("d1")
	d.preferred("job", "a1")
	d.want(&slicerv1.Want{Job: "job"})
	var tasks []*slicerv1.Task
	var parts []*part
	for i := range 20 {
		tasks = append(tasks, task(fmt.Sprint("t", i), 1))
		parts = append(parts, joinAs(b, st, leases, tasks[i], 5*time.Second, nil))
	}
	settled := func() {
		b.Helper()
		eventually(b, "all believe in what is stored", func() bool {
			d.reports("job", false, tasks...)
			a, err := st.Read(b.Context(), "job")
			return err == nil && s.inForce() == a.Generation() && together(a.Generation(), parts...)()
		})
	}
	d.reports("job", true, tasks...)
	settled()
	s.mu.Lock()
	s.recalls = nil
	s.mu.Unlock()
	undo := false
	for b.Loop() {
		if _, err := n.admin.DrainTask(b.Context(), &slicerv1.DrainTaskRequest{Job: "job", Task: "t0", Undo: undo}); err != nil {
			b.Fatal(err)
		}
		settled()
		undo = !undo
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.Sort(s.recalls)
	if k := len(s.recalls); k > 0 {
		b.ReportMetric(float64(s.recalls[k/2].Microseconds())/1000, "recall-ms-p50")
		b.ReportMetric(float64(s.recalls[min(k-1, k*99/100)].Microseconds())/1000, "recall-ms-p99")
		b.ReportMetric(float64(k), "recalls")
	}
}
