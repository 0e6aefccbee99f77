package access

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// falsely is what a process does that plays the Distributor without being one of the control
// plane's.
type falsely struct {
	what  string
	where string
	verb  string // that it takes
	job   string // that the refusal names, none for plane
	code  codes.Code
	call  func(ctx context.Context, c *caller) error
}

// attachAs plays a Distributor, to an assigner or as one of the second tier: it says that none
// of the job's tasks is connected and that another one is, and wants assignments.
func attachAs(s grpc.BidiStreamingClient[slicerv1.AttachRequest, slicerv1.AttachResponse], err error) error {
	if err != nil {
		return err
	}
	task := &slicerv1.Task{Name: "false", Incarnation: 1, Address: "127.0.0.1:9", Weight: 100, State: slicerv1.TaskState_TASK_STATE_RUNNING}
	for _, m := range []*slicerv1.AttachRequest{
		{Message: &slicerv1.AttachRequest_Hello{Hello: &slicerv1.DistributorHello{DistributorId: "false"}}},
		{Message: &slicerv1.AttachRequest_Want{Want: &slicerv1.Want{Job: cacheJob}}},
		{Message: &slicerv1.AttachRequest_Reports{Reports: &slicerv1.TaskReports{Job: cacheJob, Complete: true, Reports: []*slicerv1.TaskReport{
			{Task: task, Report: &slicerv1.Report{Sequence: 1, State: task.State}, Identity: cacheTask("false")},
		}}}},
	} {
		if err := sent(s.Send(m)); err != nil {
			return err
		}
	}
	return begun(func() error { _, err := s.Recv(); return err })
}

// asAdministrator passes a call on as a Distributor does.
func asAdministrator(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "slicer-identity", admin)
}

func freeze(ctx context.Context, c *caller) error {
	_, err := c.adminService().GiveOrder(asAdministrator(ctx), &slicerv1.GiveOrderRequest{Job: cacheJob, Who: "x", Order: &slicerv1.GiveOrderRequest_Freeze{Freeze: &slicerv1.FreezeOrder{}}})
	return err
}

func fetch(ctx context.Context, c *caller) error {
	s, err := slicerv1.NewSubscriberServiceClient(c).Fetch(asAdministrator(ctx), &slicerv1.FetchRequest{Job: cacheJob})
	if err == nil {
		_, err = s.Recv()
	}
	return err
}

func clerkHello(ctx context.Context, c *caller) error {
	return watch(slicerv1.Role_ROLE_CLERK)(asAdministrator(ctx), c)
}

// deeds are all of it. A session's ticket is of no use to another identity, which learns no
// more than that there is no such session.
var deeds = []falsely{
	{"attaches", atAssigner, asPlane, "", codes.PermissionDenied, func(ctx context.Context, c *caller) error {
		return attachAs(slicerv1.NewAssignerServiceClient(c).Attach(ctx))
	}},
	{"relays", atFirst, asPlane, "", codes.PermissionDenied, func(ctx context.Context, c *caller) error {
		return attachAs(slicerv1.NewRelayServiceClient(c).Attach(ctx))
	}},
	{"passes an order on", atAssigner, "order", cacheJob, codes.PermissionDenied, freeze},
	{"passes an order on", atFirst, "order", cacheJob, codes.PermissionDenied, freeze},
	{"fetches", atFirst, "watch", cacheJob, codes.PermissionDenied, fetch},
	{"fetches", atBackup, "watch", cacheJob, codes.PermissionDenied, fetch},
	{"watches", atFirst, "watch", cacheJob, codes.PermissionDenied, clerkHello},
	{"opens a session", atAssigner, "own", ledgerJob, codes.PermissionDenied, func(ctx context.Context, c *caller) error {
		_, err := c.leases().OpenSession(asAdministrator(ctx), &slicerv1.OpenSessionRequest{TtlMs: 1000, Jobs: []string{ledgerJob}, Tasks: map[string]string{ledgerJob: "t1"}})
		return err
	}},
	{"renews", atAssigner, asForeign, "", codes.NotFound, func(ctx context.Context, c *caller) error {
		_, err := c.leases().RenewSession(asAdministrator(ctx), &slicerv1.RenewSessionRequest{Session: c.foreign, Revision: c.revision})
		return err
	}},
	{"renews over a stream", atAssigner, asForeign, "", codes.NotFound, func(ctx context.Context, c *caller) error {
		return renews(asAdministrator(ctx), c, c.foreign)
	}},
	{"gives up", atAssigner, asForeign, "", codes.NotFound, func(ctx context.Context, c *caller) error {
		_, err := c.leases().CloseSession(asAdministrator(ctx), &slicerv1.CloseSessionRequest{Session: c.foreign})
		return err
	}},
}

// TestFalseDistributor: a process that is not of the control plane, one of another team and a
// task of the job, does what a Distributor does, again and again, beside a service and a
// session that run. All of it is refused and none of those notices.
func TestFalseDistributor(t *testing.T) {
	b := everything(t)
	h := b.serve(b.at[atSecond])
	defer h.end()
	now := make(chan struct{})
	close(now)
	before := b.look(atSecond, now)
	session, renewals, end := b.renewed()
	defer end()
	for _, identity := range []string{other, owner} {
		over, result := make(chan struct{}), make(chan seen, 1)
		go func() { result <- b.look(atSecond, over) }()
		n := 0
		for _, d := range deeds {
			if !slices.Contains(rights[identity], d.verb) {
				b.falsely(identity, d, session)
				n++
			}
		}
		close(over)
		during, after := <-result, b.look(atSecond, now)
		for _, s := range []seen{during, after} {
			if s.last == nil {
				t.Fatalf("%s: no assignment", identity)
			}
			if n := moved(before.last, s.last); n > 0 || s.last.NumTasks() != honestTasks {
				t.Errorf("%s: %d of 1000 keys have another owner, of %d tasks", identity, n, s.last.NumTasks())
			}
		}
		h.unharmed(identity)
		t.Logf("%d deeds as %s: slowest join before %d ms, of %d during them %d ms, after them %d ms", n, identity,
			before.slowest.Milliseconds(), during.joins, during.slowest.Milliseconds(), after.slowest.Milliseconds())
	}
	end()
	t.Logf("%d calls and %d renewals, none failed", h.calls.Load(), renewals.Load())
}

// falsely does something many times, and wants it refused each time.
func (b *bed) falsely(identity string, d falsely, foreign *slicerv1.OpenSessionResponse) {
	const times, atOnce = 200, 8
	want := ""
	switch {
	case d.verb == asPlane:
		want = fmt.Sprintf("identity %s may not be part of the control plane", identity)
	case d.code == codes.PermissionDenied:
		want = fmt.Sprintf("identity %s may not %s job %s", identity, d.verb, d.job)
	}
	c := &caller{ClientConn: b.dial(d.where, identity), identity: identity, job: d.job, foreign: foreign.GetSession(), revision: foreign.GetRevision()}
	var wg sync.WaitGroup
	var once sync.Once
	for range atOnce {
		wg.Go(func() {
			for range times / atOnce {
				ctx, cancel := context.WithTimeout(b.t.Context(), limit)
				err := d.call(ctx, c)
				cancel()
				if status.Code(err) != d.code || !strings.HasPrefix(status.Convert(err).Message(), want) {
					once.Do(func() { b.t.Errorf("%s %s at %s: %v, want %s %s", identity, d.what, d.where, err, d.code, want) })
				}
			}
		})
	}
	wg.Wait()
}

// renewed opens a session of a job in consistent mode as its task, and renews it until end.
func (b *bed) renewed() (session *slicerv1.OpenSessionResponse, renewals *atomic.Int64, end func()) {
	b.t.Helper()
	renewals = new(atomic.Int64)
	c := slicerv1.NewLeaseServiceClient(b.dial(atAssigner, cacheTask("t2")))
	ctx, cancel := context.WithCancel(b.t.Context())
	session, err := c.OpenSession(ctx, &slicerv1.OpenSessionRequest{TtlMs: limit.Milliseconds(), Jobs: []string{ledgerJob}, Tasks: map[string]string{ledgerJob: "t2"}})
	if err != nil {
		b.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for tick := time.NewTicker(50 * time.Millisecond); ; renewals.Add(1) {
			select {
			case <-tick.C:
			case <-ctx.Done():
				tick.Stop()
				return
			}
			if _, err := c.RenewSession(context.WithoutCancel(ctx), &slicerv1.RenewSessionRequest{Session: session.GetSession(), Revision: session.GetRevision()}); err != nil {
				b.t.Errorf("an honest renewal: %v", err)
				return
			}
		}
	}()
	return session, renewals, func() { cancel(); <-done }
}
