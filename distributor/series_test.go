package distributor

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	autoshardingv1 "github.com/slicer-project/slicer/proto/autosharding/v1"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// jobsIn are the jobs that any series is labelled with.
func jobsIn(t *testing.T, g prometheus.Gatherer) (jobs []string) {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "job" && !slices.Contains(jobs, l.GetValue()) {
					jobs = append(jobs, l.GetValue())
				}
			}
		}
	}
	slices.Sort(jobs)
	return jobs
}

// A job has series from when a store is known to have it until it was not needed for a
// while. What others ask for has none at any time, whatever it is called by.
func TestSeriesAreOfKnownJobs(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		f := n.assigner(t, "a1", assigner1)
		reg := prometheus.NewRegistry()
		d, err := newDistributor(Config{ID: "d1", Assigners: []string{assigner1}, DialOptions: n.dialOptions(), Registerer: reg}, n.lookup)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		m := &node{reg: reg}
		n.serve(t, server, func(s *grpc.Server) { d.Register(s) }, ServerOptions()...)
		cc := n.connect(t, server)
		synctest.Wait()

		f.mu.Lock()
		f.mute = true // the names are asked for, and not known yet
		f.mu.Unlock()
		var subs []*fakeSub
		for i := range 3 {
			h := clerkHello(fmt.Sprint("c", i))
			h.Job = fmt.Sprint("unknown-", i)
			subs = append(subs, subscribe(t, cc, h, nil))
			h = sliceletHello(fmt.Sprint("s", i), 1)
			h.Job = fmt.Sprint("unknown-", i)
			subs = append(subs, subscribe(t, cc, h, nil))
		}
		client, err := autoshardingv1.NewAutoshardingServiceClient(cc).WatchShardingAssignment(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		client.Send(&autoshardingv1.WatchShardingAssignmentRequest{Message: &autoshardingv1.WatchShardingAssignmentRequest_InitialClientConfig{
			InitialClientConfig: &autoshardingv1.InitialClientConfig{Target: "unknown-by-client", ClientUuid: "01234567-89ab-cdef-0123-456789abcdef"}}})
		fetch, err := slicerv1.NewSubscriberServiceClient(cc).Fetch(t.Context(), &slicerv1.FetchRequest{Job: "unknown-by-fetch"})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if d.lookup("unknown-0") == nil || d.lookup("unknown-by-client") == nil || d.lookup("unknown-by-fetch") == nil {
			t.Fatal("the names have not come to the Distributor")
		}
		if jobs := jobsIn(t, reg); len(jobs) > 0 {
			t.Errorf("before they are known there are series of %v", jobs)
		}
		for _, s := range subs {
			s.report(&slicerv1.Report{Sequence: 2})
			s.ack(1, "no")
		}
		fetch.Recv()
		client.Recv()
		synctest.Wait()
		if jobs := jobsIn(t, reg); len(jobs) > 0 {
			t.Errorf("when their streams have ended there are series of %v", jobs)
		}
		f.mu.Lock()
		f.mute = false
		f.mu.Unlock()

		// The subscribers of a job that turns out to be known are counted from before that.
		f.mu.Lock()
		f.mute = true
		f.mu.Unlock()
		early := subscribe(t, cc, clerkHello("early"), nil)
		synctest.Wait()
		f.mu.Lock()
		f.mute = false
		f.mu.Unlock()
		f.know(testJob)
		f.set(firstOf(t, testJob, testStore, baseGen, 100))
		synctest.Wait()
		if got := m.metric(t, "subscribers", "job="+testJob, "role=clerk"); got != 1 {
			t.Errorf("%v subscribers are counted, not 1", got)
		}
		if jobs := jobsIn(t, reg); !slices.Equal(jobs, []string{testJob}) {
			t.Errorf("there are series of %v", jobs)
		}
		early.close()
		time.Sleep(idleFor + time.Second)
		if jobs := jobsIn(t, reg); len(jobs) > 0 {
			t.Errorf("after it was dropped there are series of %v", jobs)
		}
		late := subscribe(t, cc, clerkHello("late"), nil)
		synctest.Wait()
		if got := m.metric(t, "subscribers", "job="+testJob, "role=clerk"); got != 1 || late.ended() != codes.OK {
			t.Errorf("%v subscribers are counted when one has come again, not 1", got)
		}
	})
}

// A job that is dropped takes none of the series along of one that has come in its
// place meanwhile.
func TestSeriesOfANameThatComesAgain(t *testing.T) {
	reg := prometheus.NewRegistry()
	m, err := newMetrics("d1", reg)
	if err != nil {
		t.Fatal(err)
	}
	old, next := m.job("j"), m.job("j")
	old.Subscribers(slicerv1.Role_ROLE_CLERK, 1)
	old.show()
	old.Subscribers(slicerv1.Role_ROLE_CLERK, -1)
	next.Subscribers(slicerv1.Role_ROLE_CLERK, 1)
	next.show()
	old.drop()
	next.Subscribers(slicerv1.Role_ROLE_CLERK, 1)
	n := &node{reg: reg}
	if got := n.metric(t, "subscribers", "job=j"); got != 2 {
		t.Errorf("%v subscribers are counted, not 2", got)
	}
	next.drop()
	if jobs := jobsIn(t, reg); len(jobs) > 0 {
		t.Errorf("there are series of %v", jobs)
	}
}
