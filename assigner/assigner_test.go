package assigner

import (
	"fmt"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store/etcdstore/etcdtest"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

func TestMain(m *testing.M) { etcdtest.Main(m) }

// running starts an assigner with a job and a Distributor that has brought tasks
// and holds the first assignment.
func running(t *testing.T, tasks ...*slicerv1.Task) (*node, *raw, *assignment.Assignment) {
	t.Helper()
	n := start(t, Config{})
	n.put(&slicerv1.JobConfig{Name: "job"})
	d := n.attach("d1")
	d.preferred("job", "a1")
	d.want(&slicerv1.Want{Job: "job"})
	d.reports("job", true, tasks...)
	return n, d, d.holds("job", "owners", func(a *assignment.Assignment) bool { return len(owners(a)) == len(tasks) })
}

func TestFirstAssignment(t *testing.T) {
	n, d, a := running(t, task("t1", 1), task("t2", 2))
	if a.NumSlices() != 100 || a.NumTasks() != 2 {
		t.Errorf("%d slices, %d tasks", a.NumSlices(), a.NumTasks())
	}
	d.wait("the job's status", func() bool { return d.statuses["job"] != nil })
	if st := d.statuses["job"]; st.Unknown || st.HeartbeatTimeoutMs != 5000 || st.LoadMetric != "requests" {
		t.Errorf("status %v", st)
	}
	i := n.inspect("job")
	if !i.Preferred || i.AssignerId != "a1" || i.Generation != int64(a.Generation()) || len(i.Tasks) != 2 || i.Distributors != 1 {
		t.Errorf("inspect %v", i)
	}
	if r := i.LastRound; r.GetGeneration() != i.Generation || len(r.Decisions) != 100 || r.Decisions[0].Reason != "first assignment" || r.Skipped != "" {
		t.Errorf("last round of generation %d with %d decisions, skipped %q", r.GetGeneration(), len(r.GetDecisions()), r.GetSkipped())
	}
}

// A Distributor gets deltas on what it holds, and the whole when it names what is not
// known.
func TestDeltas(t *testing.T) {
	t.Parallel()
	_, d, first := running(t, task("t1", 1), task("t2", 1))
	d.mu.Lock()
	d.past = map[int64]*assignment.Assignment{int64(first.Generation()): first}
	d.mu.Unlock()
	d.reports("job", false, task("t3", 1))
	second := d.holds("job", "t3", ownedBy("t1", "t2", "t3"))
	d.mu.Lock()
	tr := d.trailers["job"][len(d.trailers["job"])-1]
	d.mu.Unlock()
	if tr.Base == 0 || tr.Generation < int64(second.Generation()) { // more may have come
		t.Errorf("not a delta: %v", tr)
	}
	// Asked on the older one, the answer is a delta on exactly that. A newer generation
	// may be on its way already when it is asked for, on what was held until then.
	got := func(w *slicerv1.Want, base assignment.Generation) {
		t.Helper()
		d.mu.Lock()
		n := len(d.trailers["job"])
		d.mu.Unlock()
		d.want(w)
		d.wait(fmt.Sprintf("an answer to %v on %d", w, base), func() bool {
			return slices.ContainsFunc(d.trailers["job"][n:], func(tr *slicerv1.Trailer) bool {
				return tr.Base == int64(base) && tr.Generation >= int64(second.Generation())
			})
		})
	}
	got(&slicerv1.Want{Job: "job", Generation: int64(first.Generation()), StoreId: first.StoreID(), Checksum: first.Checksum()}, first.Generation())
	for _, w := range []*slicerv1.Want{
		{Job: "job"},
		{Job: "job", Generation: int64(first.Generation()), StoreId: first.StoreID(), Checksum: 1},
		{Job: "job", Generation: int64(first.Generation()), StoreId: 1, Checksum: first.Checksum()},
		{Job: "job", Generation: 5, StoreId: first.StoreID(), Checksum: 5},
		{Job: "job", NewestReported: int64(second.Generation())},
	} {
		got(w, 0)
	}
}

// A Distributor is sent the whole compressed if its last Want says that it reads such.
func TestCompressed(t *testing.T) {
	t.Parallel()
	_, d, first := running(t, task("t1", 1), task("t2", 1))
	for _, compressed := range []bool{true, false, true} {
		d.mu.Lock()
		n := len(d.trailers["job"])
		d.mu.Unlock()
		d.want(&slicerv1.Want{Job: "job", Compressed: compressed})
		d.wait(fmt.Sprintf("a whole, compressed %v", compressed), func() bool {
			return slices.ContainsFunc(d.trailers["job"][n:], func(tr *slicerv1.Trailer) bool {
				return tr.Base == 0 && tr.WholeSize != 0 == compressed && tr.Generation >= int64(first.Generation())
			})
		})
	}
}

func TestNewestReported(t *testing.T) {
	_, d, first := running(t, task("t1", 1))
	// A subscriber holds something newer than is stored: nothing older is sent, and a
	// newer one is made.
	far := int64(first.Generation()) + 40_000
	d.mu.Lock()
	n := len(d.trailers["job"])
	d.mu.Unlock()
	for _, claim := range []*slicerv1.Want{
		{Job: "job", NewestReported: far},
		{Job: "job", NewestReported: far, NewestReportedStoreId: first.StoreID() + 1},
		{Job: "job", NewestReported: far + 23*3600*1000, NewestReportedStoreId: first.StoreID()},
	} {
		d.want(claim)
		d.wait("what is stored", func() bool { return len(d.trailers["job"]) > n })
		d.mu.Lock()
		if g := d.trailers["job"][n].Generation; g > far {
			t.Errorf("generation %d follows upon %v", g, claim)
		}
		n = len(d.trailers["job"])
		d.mu.Unlock()
	}
	d.want(&slicerv1.Want{Job: "job", NewestReported: far, NewestReportedStoreId: first.StoreID()})
	d.wait("a newer generation", func() bool { return len(d.trailers["job"]) > n })
	d.mu.Lock()
	defer d.mu.Unlock()
	if g := d.trailers["job"][n].Generation; g <= far {
		t.Errorf("generation %d was sent to a Distributor that holds %d", g, far)
	}
}

func TestUnknownJob(t *testing.T) {
	n := start(t, Config{})
	d := n.attach("d1")
	d.want(&slicerv1.Want{Job: "later"})
	d.wait("word that there is no such job", func() bool { return d.statuses["later"].GetUnknown() })
	before := d.counts["later"]
	d.want(&slicerv1.Want{Job: "later"})
	d.wait("the same again", func() bool { return d.counts["later"] > before && d.statuses["later"].GetUnknown() })
	n.put(&slicerv1.JobConfig{Name: "later", LoadMetric: "cpu"})
	d.wait("word that there is", func() bool { return !d.statuses["later"].GetUnknown() && d.statuses["later"].GetLoadMetric() == "cpu" })
	if _, err := n.admin.DeleteJob(t.Context(), &slicerv1.DeleteJobRequest{Name: "later"}); err != nil {
		t.Fatal(err)
	}
	d.wait("word that there is none again", func() bool { return d.statuses["later"].GetUnknown() })
}

func TestSecondIncarnation(t *testing.T) {
	_, d, _ := running(t, task("t1", 1), task("t2", 1))
	d.reports("job", false, task("t1", 9))
	d.reports("job", false, task("t1", 1))
	d.wait("a refusal", func() bool { return len(d.refused) > 0 })
	if r := d.refused[0]; r.Task != "t1" || r.Incarnation != 9 || codes.Code(r.Code) != codes.AlreadyExists || r.Message == "" {
		t.Errorf("refusal %v", r)
	}
	// When the first's stream has ended another takes its place, and its slices.
	d.gone("job", task("t1", 1))
	d.reports("job", false, task("t1", 10))
	d.holds("job", "the new incarnation", func(a *assignment.Assignment) bool {
		pos, ok := a.Position("t1")
		return ok && a.Task(pos).Incarnation == 10 && ownedBy("t1", "t2")(a)
	})
}

func TestDrain(t *testing.T) {
	t.Parallel()
	n, d, _ := running(t, task("t1", 1), task("t2", 1))
	drain := func(task string, undo bool) (int64, error) {
		resp, err := n.admin.DrainTask(t.Context(), &slicerv1.DrainTaskRequest{Job: "job", Task: task, Undo: undo})
		return resp.GetGeneration(), err
	}
	g, err := drain("t1", false)
	if err != nil {
		t.Fatal(err)
	}
	a := d.holds("job", "t2 alone", ownedBy("t2"))
	pos, _ := a.Position("t1")
	if a.Generation() < assignment.Generation(g) || a.Task(pos).State != assignment.TaskDraining {
		t.Errorf("generation %d, t1 is %s; the drain says %d", a.Generation(), a.Task(pos).State, g)
	}
	if again, err := drain("t1", false); err != nil || again < g {
		t.Errorf("once more: %d, %v", again, err)
	}
	for task, want := range map[string]codes.Code{"t2": codes.FailedPrecondition, "nobody": codes.NotFound} {
		if _, err := drain(task, false); status.Code(err) != want {
			t.Errorf("drain %s: %v, want %s", task, err, want)
		}
	}
	if _, err := drain("t1", true); err != nil {
		t.Fatal(err)
	}
	d.holds("job", "both", ownedBy("t1", "t2"))
}

// A newer stream of a Distributor takes the place of the older one.
func TestSuperseded(t *testing.T) {
	n, d, _ := running(t, task("t1", 1))
	again := n.attach("d1")
	if err := d.ended(); status.Code(err) != codes.Aborted {
		t.Errorf("the older stream ended with %v", err)
	}
	again.want(&slicerv1.Want{Job: "job"})
	again.holds("job", "t1", ownedBy("t1"))
	if i := n.inspect("job"); i.Distributors != 1 {
		t.Errorf("%d distributors", i.Distributors)
	}
}

func TestBadMessages(t *testing.T) {
	n, d, _ := running(t, task("t1", 1))
	for _, m := range []*slicerv1.AttachRequest{
		{},
		{Message: &slicerv1.AttachRequest_Want{Want: &slicerv1.Want{Job: "no/job"}}},
		{Message: &slicerv1.AttachRequest_Acks{Acks: &slicerv1.Acks{Job: ""}}},
		{Message: &slicerv1.AttachRequest_Reports{Reports: &slicerv1.TaskReports{}}},
		{Message: &slicerv1.AttachRequest_Reports{Reports: &slicerv1.TaskReports{Job: "job", Reports: []*slicerv1.TaskReport{
			{}, {Task: &slicerv1.Task{Name: "x"}}, {Task: task("a b", 1)},
			{Task: task("bad-load", 1), Report: &slicerv1.Report{Load: &slicerv1.LoadReport{RangeSkip: []uint64{1}}}},
			{Task: task("bad-state", 1), Report: &slicerv1.Report{State: 99}},
			{Task: task("good", 1), Report: &slicerv1.Report{AgeMs: -5}},
		}}}},
	} {
		d.say(m)
	}
	d.holds("job", "the good one of them", ownedBy("good", "t1"))
	if i := n.inspect("job"); len(i.Tasks) != 2 {
		t.Errorf("tasks %v", i.Tasks)
	}
	// A stream that does not begin with a good hello ends with a reason.
	for _, m := range []*slicerv1.AttachRequest{
		{Message: &slicerv1.AttachRequest_Want{Want: &slicerv1.Want{Job: "job"}}},
		{Message: &slicerv1.AttachRequest_Hello{Hello: &slicerv1.DistributorHello{}}},
		{Message: &slicerv1.AttachRequest_Hello{Hello: &slicerv1.DistributorHello{DistributorId: "a/b"}}},
	} {
		bad := n.open()
		bad.say(m)
		if err := bad.ended(); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v: %v", m, err)
		}
	}
}

func TestCloseEndsStreams(t *testing.T) {
	n, d, _ := running(t, task("t1", 1))
	if err := n.Ready(); err != nil {
		t.Error(err)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	if err := d.ended(); status.Code(err) != codes.Unavailable {
		t.Errorf("the stream ended with %v", err)
	}
	if err := n.Ready(); err == nil {
		t.Error("ready though closed")
	}
	if _, err := n.admin.ListJobs(t.Context(), &slicerv1.ListJobsRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("a call after Close: %v", err)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
}

func TestConfig(t *testing.T) {
	st := openPebble(t)
	good := Config{ID: "a", Address: "h:1", Stores: []NamedStore{{Backend: st}}}
	for name, f := range map[string]func(*Config){
		"no id":           func(c *Config) { c.ID = "" },
		"id with a slash": func(c *Config) { c.ID = "a/b" },
		"no address":      func(c *Config) { c.Address = "" },
		"no store":        func(c *Config) { c.Stores = nil },
		"nil store":       func(c *Config) { c.Stores = []NamedStore{{Name: "x"}} },
		"two of one name": func(c *Config) { c.Stores = []NamedStore{{Backend: st}, {Backend: st}} },
	} {
		c := good
		f(&c)
		if a, err := New(c); err == nil {
			t.Errorf("%s is accepted", name)
			a.Close()
		} else {
			fmt.Fprintln(t.Output(), err)
		}
	}
}
