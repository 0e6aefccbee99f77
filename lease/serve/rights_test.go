package serve_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/access"
	"github.com/slicer-project/slicer/assignment/access/enforce"
	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/lease/leasetest"
	"github.com/slicer-project/slicer/lease/remote"
	"github.com/slicer-project/slicer/lease/serve"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
)

// guarded is a store whose policy a test changes, served with TLS within a bubble.
type guarded struct {
	t *testing.T
	*exchange
	*authority
	*serve.Store
	rights *enforce.Rights
	clock  func() time.Duration
	looked atomic.Int64 // what jobs' configs say
}

const ownersPolicy = "admin: [spiffe://corp/sre]\njobs: {own: [\"spiffe://corp/{job}/task/{task}\", \"spiffe://corp/all\"], watch: [spiffe://corp/viewer]}\n"

func parsed(t *testing.T, text string) *access.Policy {
	t.Helper()
	p, err := access.Parse("policy", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// serveGuarded serves the jobs "job" and "other", of which the access may say more.
func serveGuarded(t *testing.T, clock func() time.Duration, own func(job string) (assignment.Access, error)) *guarded {
	t.Helper()
	r, err := enforce.New(enforce.Config{Policy: parsed(t, ownersPolicy)})
	if err != nil {
		t.Fatal(err)
	}
	d := &durations{jobs: map[string]time.Duration{"job": 5 * time.Second, "other": 5 * time.Second}}
	g := &guarded{t: t, exchange: &exchange{cut: map[string]chan struct{}{}}, authority: newAuthority(t), rights: r, clock: clock}
	g.Store, err = serve.Open(t.Context(), serve.Config{Storage: &memory{}, Fresh: true, Clock: clock, Rights: r,
		Terms: func(ctx context.Context, job string) (t serve.Terms, err error) {
			if t, err = d.look(ctx, job); err == nil {
				t.Access, err = own(job)
			}
			g.looked.Add(1)
			return t, err
		}})
	if err != nil {
		t.Fatal(err)
	}
	srv, lis, done := grpc.NewServer(grpc.Creds(credentials.NewTLS(g.config("", "slicer")))), g.listen(), make(chan struct{})
	g.Register(srv)
	go func() { defer close(done); _ = srv.Serve(lis) }()
	t.Cleanup(func() { srv.Stop(); <-done; g.Close() })
	return g
}

func (g *guarded) as(identity string) *grpc.ClientConn {
	g.t.Helper()
	conn, err := grpc.NewClient("passthrough:///store", grpc.WithTransportCredentials(credentials.NewTLS(g.config(identity))), grpc.WithContextDialer(g.dial("10.0.1.1")))
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { conn.Close() })
	return conn
}

// A session takes part in those jobs that its holder may own, as the task that it says it is.
func TestOwnersAlone(t *testing.T) {
	bubble(t, func(t *testing.T, clock func() time.Duration) {
		other, err := assignment.AccessOf(map[assignment.Verb][]string{assignment.Own: {"spiffe://corp/viewer"}})
		if err != nil {
			t.Fatal(err)
		}
		g := serveGuarded(t, clock, func(job string) (assignment.Access, error) {
			if job == "broken" {
				return assignment.Access{}, errors.New("the disk is gone")
			}
			if job == "other" {
				return other, nil
			}
			return assignment.Access{}, nil
		})
		lead(t, g.Store, "job")
		lead(t, g.Store, "other")
		both := []string{"job", "other"}
		for _, x := range []struct {
			name, identity string
			jobs           []string
			tasks          map[string]string
			granted        string // the jobs
			code           codes.Code
		}{
			{"its task", "spiffe://corp/job/task/a", both, map[string]string{"job": "a"}, "job", 0},
			{"another's task", "spiffe://corp/job/task/a", both, map[string]string{"job": "b"}, "", codes.PermissionDenied},
			{"a task that it does not name", "spiffe://corp/job/task/a", both, nil, "", codes.PermissionDenied},
			{"another job's task", "spiffe://corp/other/task/a", both, map[string]string{"job": "a", "other": "a"}, "", codes.PermissionDenied},
			{"any task", "spiffe://corp/all", both, nil, "job", 0},
			{"what the job itself says", "spiffe://corp/viewer", both, nil, "other", 0},
			{"watch is not own", "spiffe://corp/viewer", []string{"job"}, nil, "", codes.PermissionDenied},
			{"an administrator", "spiffe://corp/sre", both, nil, "job other", 0},
			{"a certificate without a name", "", both, map[string]string{"job": "a"}, "", codes.PermissionDenied},
			{"access that cannot be read", "spiffe://corp/all", []string{"broken"}, nil, "", codes.Unavailable},
			{"a name that is none", "spiffe://corp/all", both, map[string]string{"job": "a b"}, "", codes.InvalidArgument},
			{"a task of no job of the session", "spiffe://corp/all", both, map[string]string{"else": "a"}, "", codes.InvalidArgument},
		} {
			c := slicerv1.NewLeaseServiceClient(g.as(x.identity))
			resp, err := c.OpenSession(t.Context(), &slicerv1.OpenSessionRequest{TtlMs: 5000, Jobs: x.jobs, Tasks: x.tasks})
			if status.Code(err) != x.code || strings.Join(resp.GetJobs(), " ") != x.granted {
				t.Errorf("%s: %v, %v; want jobs %q, %s", x.name, resp.GetJobs(), err, x.granted, x.code)
			}
		}
		// Each call is asked about anew, and each refusal says who may not do what.
		c := slicerv1.NewLeaseServiceClient(g.as("spiffe://corp/job/task/a"))
		resp, err := c.OpenSession(t.Context(), &slicerv1.OpenSessionRequest{TtlMs: 5000, Jobs: []string{"job"}, Tasks: map[string]string{"job": "a"}})
		if err != nil {
			t.Fatal(err)
		}
		session := resp.GetSession()
		looked := g.looked.Load()
		if _, err := c.RenewSession(t.Context(), &slicerv1.RenewSessionRequest{Session: session}); err != nil || g.looked.Load() != looked+1 {
			t.Errorf("a renewal: %v, and it looks %d times for what the job's config says, not once", err, g.looked.Load()-looked)
		}
		if _, err := c.AcquireClaim(t.Context(), &slicerv1.AcquireClaimRequest{Session: session, Job: "job", Claim: &slicerv1.Claim{To: 1}}); err != nil {
			t.Error(err)
		}
		_, err = c.JoinJob(t.Context(), &slicerv1.JoinJobRequest{Session: session, Job: "job", Task: "b"})
		if want := "identity spiffe://corp/job/task/a may not own job job as task b"; status.Code(err) != codes.PermissionDenied || status.Convert(err).Message() != want {
			t.Errorf("another task in the same session: %v, want %s", err, want)
		}
		for call, err := range everyCall(t.Context(), c, session, "other") {
			switch call {
			case "JoinJob", "AcquireClaim", "WatchRecords":
				wantCode(t, call+" of another's job", err, codes.PermissionDenied)
			default: // what a session may always do: last, and let go
				wantCode(t, call, err, codes.OK)
			}
		}
	})
}

// A holder that may not own a job any more keeps what it holds until its lease has run
// out, and not longer; what it has in other jobs it has again at once.
func TestWithdrawnRight(t *testing.T) {
	bubble(t, func(t *testing.T, clock func() time.Duration) {
		nobody, err := assignment.AccessOf(map[assignment.Verb][]string{assignment.Own: {"spiffe://corp/nobody"}})
		if err != nil {
			t.Fatal(err)
		}
		var withdrawn atomic.Bool
		g := serveGuarded(t, clock, func(job string) (assignment.Access, error) {
			if job == "job" && withdrawn.Load() {
				return nobody, nil
			}
			return assignment.Access{}, nil
		})
		w, _ := lead(t, g.Store, "job")
		lead(t, g.Store, "other")
		r, err := lease.NewReader(lease.Config{Readers: remote.New(g.as("spiffe://corp/all")), Clock: clock})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		joined := map[string]*lease.Job{}
		for _, job := range []string{"job", "other"} {
			joined[job], err = r.Join(lease.JobConfig{Job: job, Task: leasetest.TaskName(0), Incarnation: leasetest.Incarnation(0),
				Fetch: func(_ context.Context, g assignment.Generation) (*assignment.Assignment, error) {
					return leasetest.Assignment(job, g, 1)
				}})
			if err != nil {
				t.Fatal(err)
			}
		}
		owns := func(job string) bool { return joined[job].Owns(assignment.Equal(64)[7]) }
		readers := func() int {
			st, err := w.State(t.Context(), "job")
			if err != nil {
				t.Fatal(err)
			}
			return st.GuardReaders
		}
		time.Sleep(time.Second)
		if !owns("job") || !owns("other") || readers() != 1 {
			t.Fatalf("at first: owns %v and %v, %d readers", owns("job"), owns("other"), readers())
		}
		// One that never lets go is renewed no more.
		stays := slicerv1.NewLeaseServiceClient(g.as("spiffe://corp/all"))
		held := openSession(t, stays, 5*time.Second, "job", "other").GetSession()
		if resp, err := stays.AcquireClaim(t.Context(), &slicerv1.AcquireClaimRequest{Session: held, Job: "job", Claim: &slicerv1.Claim{To: 1}}); err != nil || !resp.GetAcquired() {
			t.Fatal(resp, err)
		}
		// Who holds nothing in the job is renewed as ever.
		idle := slicerv1.NewLeaseServiceClient(g.as("spiffe://corp/all"))
		session := openSession(t, idle, 5*time.Second, "job", "other").GetSession()
		stream, err := idle.WatchRecords(t.Context(), &slicerv1.WatchRecordsRequest{Session: session, Job: "job"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
		withdrawn.Store(true)
		began := clock()
		if _, err := idle.RenewSession(t.Context(), &slicerv1.RenewSessionRequest{Session: session}); err != nil {
			t.Errorf("a session that holds nothing: %v", err)
		}
		for err == nil {
			_, err = stream.Recv()
		}
		wantCode(t, "the watch", err, codes.PermissionDenied)
		for owns("job") {
			if since := clock() - began; readers() != 2 || since > 5*time.Second {
				t.Fatalf("%s after the right went its holder owns on, with %d readers in the store", since, readers())
			}
			time.Sleep(5 * time.Millisecond)
		}
		over := clock()
		for !owns("other") {
			if clock()-over > 100*time.Millisecond {
				t.Fatal("the other job has no owner")
			}
			time.Sleep(5 * time.Millisecond)
		}
		t.Logf("owned for another %s, and the other job again %s later", over-began, clock()-over)
		for clock()-began < 5*time.Second-10*time.Millisecond {
			if n := readers(); n != 1 {
				t.Fatalf("%s after the right went %d sessions hold the guard", clock()-began, n)
			}
			_, err := stays.RenewSession(t.Context(), &slicerv1.RenewSessionRequest{Session: held})
			wantCode(t, "renewal", err, codes.PermissionDenied)
			time.Sleep(5 * time.Millisecond)
		}
		time.Sleep(20 * time.Millisecond)
		if n := readers(); n != 0 || owns("job") || !owns("other") {
			t.Errorf("%d readers hold the guard; owned: %v, and the other job %v", n, owns("job"), owns("other"))
		}
		withdrawn.Store(false)
		time.Sleep(7 * time.Second)
		if readers() != 1 || !owns("job") || !owns("other") {
			t.Errorf("with the right again: %d readers; owned: %v, and the other job %v", readers(), owns("job"), owns("other"))
		}
	})
}
