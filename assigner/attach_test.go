package assigner

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/access/accesstest"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

func hello(name string) *slicerv1.AttachRequest {
	return &slicerv1.AttachRequest{Message: &slicerv1.AttachRequest_Hello{Hello: &slicerv1.DistributorHello{DistributorId: name}}}
}

// A false Distributor is refused before anything is taken from it, and the honest one goes on.
func TestAttachIsForThePlane(t *testing.T) {
	t.Parallel()
	g := startGuarded(t, testPolicy)
	honest := g.attach("d1")
	for _, id := range []string{strangeID, adminID, accesstest.Nobody} {
		d := g.openOn(g.dial(id))
		d.say(hello("d1"))
		name := id
		if id == accesstest.Nobody {
			name = "anonymous"
		}
		refused(t, d.ended(), "identity "+name+" may not be part of the control plane (Attach)")
	}
	honest.want(&slicerv1.Want{Job: "later"})
	honest.wait("an answer", func() bool { return honest.statuses["later"].GetUnknown() })
}

// A Distributor's id is the identity's whose stream lives.
func TestDistributorsNames(t *testing.T) {
	t.Parallel()
	g := startGuarded(t, testPolicy)
	first := g.attach("d1")
	other := g.dial("spiffe://corp/plane/d2")
	d := g.openOn(other)
	d.say(hello("d1"))
	refused(t, d.ended(), "identity spiffe://corp/plane/d2 may not be distributor d1 (Attach): another identity is")
	if n := len(g.log.with("audit=refused", "identity=spiffe://corp/plane/d2", `rule="distributor d1 is spiffe://corp/plane/d1"`, "peer=127.0.0.1:")); n != 1 {
		t.Errorf("%d lines about both identities:\n%s", n, strings.Join(g.log.with("audit=refused"), ""))
	}
	again := g.attach("d1") // has reconnected
	if err := first.ended(); status.Code(err) != codes.Aborted {
		t.Errorf("the older stream ended with %v", err)
	}
	again.close()
	for { // until the assigner has heard that the stream has ended
		d := g.openOn(other)
		d.say(hello("d1"))
		d.mu.Lock()
		change, attached := d.change, d.id != ""
		d.mu.Unlock()
		if !attached {
			<-change // its hello, or the end
		}
		d.mu.Lock()
		err := d.err
		d.mu.Unlock()
		if err == nil {
			break
		}
		if status.Code(err) != codes.PermissionDenied {
			t.Fatal(err)
		}
	}
	// Without a policy the newer stream counts, as ever.
	g.rights.SetPolicy(nil)
	g.attach("d1")
}

// When the policy changes, the streams of peers that are not the control plane's any more end.
func TestAttachEndsWithThePolicy(t *testing.T) {
	t.Parallel()
	g := startGuarded(t, testPolicy)
	stays, ends := g.attachOn(g.dial("spiffe://corp/plane/d2"), "d2"), g.attach("d1")
	g.rights.SetPolicy(accesstest.Policy(t, "plane: [spiffe://corp/plane/d1, spiffe://corp/plane/d2]\n"))
	g.rights.SetPolicy(accesstest.Policy(t, "plane: [spiffe://corp/plane/d2]\n"))
	refused(t, ends.ended(), "identity spiffe://corp/plane/d1 may not be part of the control plane (Attach)")
	stays.want(&slicerv1.Want{Job: "later"})
	stays.wait("an answer", func() bool { return stays.statuses["later"].GetUnknown() })
}

// Distributors are told of a job's access, also when nothing else changes.
func TestAccessIsTold(t *testing.T) {
	t.Parallel()
	g := startGuarded(t, testPolicy)
	put := func(cfg *slicerv1.JobConfig) {
		t.Helper()
		if _, err := g.as(adminID).PutJob(t.Context(), &slicerv1.PutJobRequest{Config: cfg}); err != nil {
			t.Fatal(err)
		}
	}
	put(&slicerv1.JobConfig{Name: "cache"})
	d := g.attach("d1")
	d.want(&slicerv1.Want{Job: "cache"})
	own := func() string {
		if o := d.statuses["cache"].GetAccess().GetOwn(); len(o) == 1 {
			return o[0]
		}
		return ""
	}
	d.wait("a status without access", func() bool { return d.statuses["cache"] != nil && d.statuses["cache"].Access == nil })
	cfg := private("cache")
	put(cfg)
	d.wait("the access", func() bool { return own() == ownerID })
	cfg.Access.Own = []string{strangeID}
	put(cfg)
	d.wait("another access", func() bool { return own() == strangeID })
	put(&slicerv1.JobConfig{Name: "cache"})
	d.wait("none again", func() bool { return d.statuses["cache"].Access == nil })
}

// report is what a Distributor says of a task that has joined under an identity.
func (d *raw) report(identity string, sequence uint64, state slicerv1.TaskState, x *slicerv1.Task) {
	d.t.Helper()
	d.say(&slicerv1.AttachRequest{Message: &slicerv1.AttachRequest_Reports{Reports: &slicerv1.TaskReports{Job: "job", Reports: []*slicerv1.TaskReport{
		{Task: x, Identity: identity, Report: &slicerv1.Report{Sequence: sequence, State: state}},
	}}}})
}

// A copied incarnation that says it is dead, by way of another Distributor, is refused, and
// harms nothing; nor does one that is beyond max_tasks.
func TestCopiedIncarnation(t *testing.T) {
	t.Parallel()
	n := start(t, Config{})
	n.put(&slicerv1.JobConfig{Name: "job", MaxTasks: 1})
	d1, d2 := n.attach("d1"), n.attach("d2")
	d1.preferred("job", "a1")
	d2.preferred("job", "a1")
	d1.want(&slicerv1.Want{Job: "job"})
	d2.reports("job", true)
	d1.reports("job", true)
	d1.report(ownerID, 1, slicerv1.TaskState_TASK_STATE_RUNNING, task("t1", 1))
	before := d1.holds("job", "t1", ownedBy("t1"))
	d2.report(strangeID, 99, slicerv1.TaskState_TASK_STATE_DEAD, task("t1", 1))
	d2.wait("a refusal", func() bool { return len(d2.refused) > 0 })
	if r := d2.refused[0]; r.Task != "t1" || r.Incarnation != 1 || codes.Code(r.Code) != codes.AlreadyExists || r.Message == "" {
		t.Errorf("refusal %v", r)
	}
	d2.report(strangeID, 1, slicerv1.TaskState_TASK_STATE_RUNNING, task("t2", 7))
	d2.wait("another refusal", func() bool { return len(d2.refused) > 1 })
	if r := d2.refused[1]; r.Task != "t2" || codes.Code(r.Code) != codes.ResourceExhausted || r.Message != "the job has 1 tasks, and its max_tasks is 1" {
		t.Errorf("refusal %v", r)
	}
	// Nothing else that it says in the name counts either: no load, and no drain.
	d2.say(&slicerv1.AttachRequest{Message: &slicerv1.AttachRequest_Reports{Reports: &slicerv1.TaskReports{Job: "job", Reports: []*slicerv1.TaskReport{
		{Task: task("t1", 1), Identity: strangeID, Report: &slicerv1.Report{Sequence: 100, State: slicerv1.TaskState_TASK_STATE_DRAINING,
			Load: loadOf(before, "t1", func(assignment.Slice) float64 { return 1e6 })}},
	}}}})
	d2.wait("a third refusal", func() bool { return len(d2.refused) > 2 })
	d2.report("not one", 1, slicerv1.TaskState_TASK_STATE_RUNNING, task("t1", 1)) // is left out
	// The honest one goes on: its drain is heard, so it was not taken for dead.
	i := n.inspect("job")
	if len(i.Tasks) != 1 || i.Tasks[0].Task.State != slicerv1.TaskState_TASK_STATE_RUNNING || !i.Tasks[0].Connected || i.Tasks[0].Load != 0 || i.Generation != int64(before.Generation()) {
		t.Errorf("after the attack: %v", i)
	}
	d1.mu.Lock()
	defer d1.mu.Unlock()
	if len(d1.refused) > 0 || len(d1.statuses["job"].GetConditions()) > 0 {
		t.Errorf("the honest one is refused: %v; told is %v", d1.refused, d1.statuses["job"])
	}
}
