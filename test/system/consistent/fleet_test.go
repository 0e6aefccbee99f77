package consistent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/slicer-project/slicer/assigner"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/cputest"
	assignmentstore "github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/store/etcdstore"
	"github.com/slicer-project/slicer/assignment/store/etcdstore/etcdtest"
	"github.com/slicer-project/slicer/assignment/waittest"
	"github.com/slicer-project/slicer/lease"
	etcdlease "github.com/slicer-project/slicer/lease/etcd"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"github.com/slicer-project/slicer/test/kit/bed"
)

const fleetSize = 2000

// fleet is an assigner on an etcd, and as many slicelets as fleetSize: each holds
// a lease of its own. Their streams are simulated: what they report goes to the
// assigner as one Distributor's stream, and generations are fetched from the
// store once for all of them.
type fleet struct {
	b          testing.TB
	backend    assignmentstore.Backend
	registry   *prometheus.Registry // the assigner's
	keepalives atomic.Int64
	sessions   atomic.Int64
	readers    []*lease.Reader
	jobs       []*lease.Job
	admin      slicerv1.AdminServiceClient

	mu      sync.Mutex
	tasks   []*slicerv1.Task
	seq     uint64
	fetched map[assignment.Generation]*assignment.Assignment
}

func newFleet(b testing.TB, size int, endpoints []string, leaseDuration time.Duration) *fleet {
	f := &fleet{b: b, registry: prometheus.NewRegistry(), fetched: map[assignment.Generation]*assignment.Assignment{}}
	const prefix = "/fleet"
	backend, err := etcdstore.Open(b.Context(), etcdstore.Config{Endpoints: endpoints, Prefix: prefix, RequestTimeout: waittest.Patience})
	if err != nil {
		b.Fatal(err)
	}
	bed.CloseAtEnd(b, backend.Close)
	f.backend = backend
	leases := f.leases(endpoints, prefix)
	conn := f.assigner(assigner.Config{ID: "a", Address: "127.0.0.1:1", Registerer: f.registry,
		Stores: []assigner.NamedStore{{Backend: backend, Leases: leases}}})
	f.admin = slicerv1.NewAdminServiceClient(conn)
	_, err = f.admin.PutJob(b.Context(), &slicerv1.PutJobRequest{Config: &slicerv1.JobConfig{
		Name: "job", Mode: slicerv1.Mode_MODE_CONSISTENT, LeaseDurationMs: leaseDuration.Milliseconds(), HeartbeatTimeoutMs: 60_000,
		Balance: &slicerv1.BalanceConfig{MinSlicesPerTask: 5, MaxSlicesPerTask: 20}}})
	if err != nil {
		b.Fatal(err)
	}
	for i := range size {
		f.tasks = append(f.tasks, &slicerv1.Task{Name: fmt.Sprint("task-", i), Incarnation: uint64(i + 1), Address: fmt.Sprintf("10.1.%d.%d:80", i/250, i%250), Weight: 1,
			State: slicerv1.TaskState_TASK_STATE_RUNNING})
	}
	f.report(conn)
	f.join(leases)
	return f
}

// leases opens the lease store: one connection for all.
func (f *fleet) leases(endpoints []string, prefix string) *etcdlease.Store {
	st, err := waittest.Answer(lease.ErrUnavailable, func() (*etcdlease.Store, error) {
		return etcdlease.Open(f.b.Context(), etcdlease.Config{Endpoints: endpoints, Prefix: prefix})
	})
	if err != nil {
		f.b.Fatal(err)
	}
	bed.CloseAtEnd(f.b, st.Close)
	return st
}

// assigner starts one and returns a connection to it.
func (f *fleet) assigner(cfg assigner.Config) *grpc.ClientConn {
	a, err := assigner.New(cfg)
	if err != nil {
		f.b.Fatal(err)
	}
	pipe := bufconn.Listen(1 << 20)
	bed.Serve(f.b, pipe, a.Register, a.Close, assigner.ServerOptions()...)
	conn, err := grpc.NewClient("passthrough:///assigner", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return pipe.DialContext(ctx) }))
	if err != nil {
		f.b.Fatal(err)
	}
	bed.CloseAtEnd(f.b, conn.Close)
	return conn
}

// report is the Distributor: it says each second what the slicelets do.
func (f *fleet) report(conn *grpc.ClientConn) {
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := slicerv1.NewAssignerServiceClient(conn).Attach(ctx)
	if err != nil {
		f.b.Fatal(err)
	}
	say := func(m *slicerv1.AttachRequest) { _ = stream.Send(m) }
	say(&slicerv1.AttachRequest{Message: &slicerv1.AttachRequest_Hello{Hello: &slicerv1.DistributorHello{DistributorId: "d"}}})
	say(&slicerv1.AttachRequest{Message: &slicerv1.AttachRequest_Want{Want: &slicerv1.Want{Job: "job"}}})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			if _, err := stream.Recv(); err != nil {
				return
			}
		}
	})
	wg.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for complete := true; ; complete = false {
			say(&slicerv1.AttachRequest{Message: &slicerv1.AttachRequest_Reports{Reports: f.reports(complete)}})
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	})
	f.b.Cleanup(func() { cancel(); wg.Wait() })
}

func (f *fleet) reports(complete bool) *slicerv1.TaskReports {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seq++
	m := &slicerv1.TaskReports{Job: "job", Complete: complete}
	for _, t := range f.tasks {
		m.Reports = append(m.Reports, &slicerv1.TaskReport{Task: t, Report: &slicerv1.Report{Sequence: f.seq, State: t.State}})
	}
	return m
}

// join opens all sessions.
func (f *fleet) join(st lease.Readers) {
	for _, t := range f.tasks {
		r, err := lease.NewReader(lease.Config{Readers: counted{st, f}})
		if err != nil {
			f.b.Fatal(err)
		}
		j, err := r.Join(lease.JobConfig{Job: "job", Task: t.Name, Incarnation: t.Incarnation, Fetch: f.fetch})
		if err != nil {
			f.b.Fatal(err)
		}
		f.readers, f.jobs = append(f.readers, r), append(f.jobs, j)
	}
	f.b.Cleanup(func() {
		var wg sync.WaitGroup
		errs := make([]error, len(f.readers))
		for i, r := range f.readers {
			wg.Go(func() { errs[i] = r.Close() })
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			f.b.Error(err)
		}
	})
}

func (f *fleet) fetch(ctx context.Context, g assignment.Generation) (*assignment.Assignment, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if a := f.fetched[g]; a != nil {
		return a, nil
	}
	a, err := f.backend.ReadGeneration(ctx, "job", g)
	if err == nil {
		f.fetched[g] = a
	}
	return a, err
}

// counted counts sessions and keepalives.
type counted struct {
	lease.Readers
	f *fleet
}

func (c counted) OpenReader(ctx context.Context, ttl time.Duration, jobs ...string) (lease.ReadSession, error) {
	s, err := c.Readers.OpenReader(ctx, ttl, jobs...)
	if err == nil {
		c.f.sessions.Add(1)
	}
	return countedSession{s, c.f}, err
}

type countedSession struct {
	lease.ReadSession
	f *fleet
}

func (s countedSession) KeepAlive(ctx context.Context) error {
	s.f.keepalives.Add(1)
	return s.ReadSession.KeepAlive(ctx)
}

// settled waits until a task has no keys, if one is named, and all slicelets
// believe in one stored assignment.
func (f *fleet) settled(without string) {
	f.b.Helper()
	last := "nothing is stored"
	for began := time.Now(); time.Since(began) < waittest.Patience; time.Sleep(2 * time.Millisecond) {
		a, err := f.backend.Read(f.b.Context(), "job")
		switch {
		case err != nil:
			last = err.Error()
			continue
		case a.NumOwners() == 0 || without != "" && owns(a, without):
			last = "it has keys yet"
			continue
		}
		behind := 0
		for _, j := range f.jobs {
			if before, after := j.Belief().Assignments(); before == nil || after != nil || before.Generation() != a.Generation() {
				behind++
			}
		}
		if behind == 0 {
			return
		}
		last = fmt.Sprintf("%d slicelets are not in generation %d", behind, a.Generation())
	}
	f.b.Fatalf("%s are over: %s", waittest.Patience, last)
}

func owns(a *assignment.Assignment, task string) bool {
	for _, r := range a.All() {
		if r.At(0).Name == task {
			return true
		}
	}
	return false
}

// drain has a slicelet give up its keys, and waits until all are in the
// generation that follows.
func (f *fleet) drain(i int) {
	f.settled(f.draining(i))
}

// draining has a slicelet report that it is to be drained, and returns its name.
func (f *fleet) draining(i int) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.tasks[i]
	f.tasks[i] = &slicerv1.Task{Name: t.Name, Incarnation: t.Incarnation, Address: t.Address, Weight: 1, State: slicerv1.TaskState_TASK_STATE_DRAINING}
	return t.Name
}

// mean is that of a histogram of the assigner, by the value of its label if it
// has one.
func (f *fleet) mean(name, label string) time.Duration {
	families, err := f.registry.Gather()
	if err != nil {
		f.b.Fatal(err)
	}
	for _, m := range families {
		for _, x := range m.GetMetric() {
			named := label == ""
			for _, l := range x.GetLabel() {
				named = named || l.GetValue() == label
			}
			if h := x.GetHistogram(); m.GetName() == name && named && h.GetSampleCount() > 0 {
				return time.Duration(h.GetSampleSum() / float64(h.GetSampleCount()) * float64(time.Second))
			}
		}
	}
	return 0
}

// BenchmarkTwoThousandSlicelets is changes of a job with two thousand slicelets,
// each with an etcd lease of its own, on one etcd and by the assigner's own hand:
//
//	go test ./test/system/consistent -run '^$' -bench TwoThousand -benchtime 10x
//
// Everything is in this process, so CPU is that of etcd, the assigner and all
// slicelets together. keepalives/s and idle-cores are while nothing changes.
func BenchmarkTwoThousandSlicelets(b *testing.B) {
	f := newFleet(b, fleetSize, etcdtest.NewCluster(b, 1).Endpoints(), 30*time.Second)
	f.settled("")
	time.Sleep(2 * time.Second)
	const idle = 10 * time.Second
	n, used := f.keepalives.Load(), cputest.Own()
	time.Sleep(idle)
	n, used = f.keepalives.Load()-n, cputest.Own()-used
	i, busy := 0, cputest.Own()
	for b.Loop() {
		f.drain(i)
		i++
	}
	busy = cputest.Own() - busy
	if s := f.sessions.Load(); s != fleetSize {
		b.Errorf("%d sessions were opened by %d slicelets: leases were lost", s, fleetSize)
	}
	b.ReportMetric(float64(n)/idle.Seconds(), "keepalives/s")
	b.ReportMetric(used.Seconds()/idle.Seconds(), "idle-cores")
	b.ReportMetric(busy.Seconds()/float64(i), "cpu-s/change")
	b.ReportMetric(f.mean("slicer_assigner_lease_change_seconds", "").Seconds(), "change-s")
	b.ReportMetric(f.mean("slicer_assigner_lease_step_seconds", "rewrite").Seconds(), "recall-s")
}
