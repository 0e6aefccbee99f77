package front_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/access/accesstest"
	"github.com/slicer-project/slicer/assignment/store/etcdstore/etcdtest"
	"github.com/slicer-project/slicer/assignment/waittest"
	"github.com/slicer-project/slicer/lease"
	etcdlease "github.com/slicer-project/slicer/lease/etcd"
	"github.com/slicer-project/slicer/lease/front"
	"github.com/slicer-project/slicer/lease/remote"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

const ownersPolicy = "admin: [spiffe://corp/sre]\njobs: {own: [\"spiffe://corp/{job}/task/{task}\", \"spiffe://corp/all\"], watch: [spiffe://corp/viewer]}\n"

// withdrawnPolicy lets no identity but the administrator own the job.
const withdrawnPolicy = "admin: [spiffe://corp/sre]\njobs: {own: [\"spiffe://corp/none\"]}\n"

// guarded are two fronts of one etcd, with TLS and a policy that a test changes.
type guarded struct {
	*accesstest.Authority
	t      *testing.T
	direct *etcdlease.Store
	addrs  []string
	policy func(text string)
	reads  atomic.Int64 // of a job's access
	silent atomic.Bool  // the second front gets no answer about the lease time of "job"
	asked  atomic.Int64 // for that, while it gets none
}

func newGuarded(t *testing.T) *guarded { return newGuardedFor(t, 10*time.Second) }

// newGuardedFor is for jobs of this lease_duration.
func newGuardedFor(t *testing.T, limit time.Duration, change ...func(front.Config) front.Config) *guarded {
	t.Helper()
	cfg := etcdlease.Config{Endpoints: etcdtest.Start(t), Prefix: etcdtest.Prefix(t)}
	g := &guarded{Authority: accesstest.New(t), t: t}
	rights := accesstest.Rights(t, ownersPolicy, nil)
	g.policy = func(text string) { rights.SetPolicy(accesstest.Policy(t, text)) }
	open := func() *etcdlease.Store {
		st, err := waittest.Answer(lease.ErrUnavailable, func() (*etcdlease.Store, error) { return etcdlease.Open(t.Context(), cfg) })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { st.Close() })
		return st
	}
	g.direct = open()
	for i := range 2 {
		st := open()
		cfg := front.Config{
			Store: func(context.Context) (*etcdlease.Store, error) { return st, nil },
			LeaseTime: func(ctx context.Context, job string) (time.Duration, error) {
				if i == 1 && job == "job" && g.silent.Load() {
					g.asked.Add(1)
					<-ctx.Done()
				}
				return limit, ctx.Err()
			},
			Rights: rights,
			Access: func(_ context.Context, job string) (a assignment.Access, err error) {
				g.reads.Add(1)
				if job == "broken" {
					err = errors.New("the disk is gone")
				}
				return a, err
			},
		}
		cfg = cfg.LookEvery(time.Second)
		for _, c := range change {
			cfg = c(cfg)
		}
		f, err := front.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		lis, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		g.addrs = append(g.addrs, lis.Addr().String())
		srv, done := grpc.NewServer(grpc.Creds(g.Server("spiffe://corp/slicer"))), make(chan struct{})
		f.Register(srv)
		go func() { defer close(done); _ = srv.Serve(lis) }()
		t.Cleanup(func() { srv.Stop(); <-done; f.Close() })
	}
	return g
}

func (g *guarded) conn(identity string, at int) *grpc.ClientConn {
	g.t.Helper()
	conn, err := grpc.NewClient(g.addrs[at], grpc.WithTransportCredentials(g.Client(identity)))
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { conn.Close() })
	return conn
}

func (g *guarded) as(identity string, at int) slicerv1.LeaseServiceClient {
	return slicerv1.NewLeaseServiceClient(g.conn(identity, at))
}

// inTime calls again when etcd was too slow, as it is on a machine that is starved.
func inTime(call func() error) error {
	_, err := waittest.Answer(errLate, func() (struct{}, error) {
		err := call()
		for _, late := range []string{"stream of keepalives", "no answer in time", "request timed out", "does not tell its version", "cannot be looked up", "deadline exceeded"} {
			if status.Code(err) == codes.Unavailable && strings.Contains(err.Error(), late) {
				err = fmt.Errorf("%w: %w", errLate, err)
			}
		}
		return struct{}{}, err
	})
	return err
}

var errLate = errors.New("etcd was too slow")

// A session takes part in those jobs that its holder may own, as the task that it says it is.
func TestOwnersAlone(t *testing.T) {
	t.Parallel()
	g := newGuardedFor(t, time.Minute) // nothing is to run out however slow the machine is
	for _, x := range []struct {
		name, identity, job, task string
		code                      codes.Code
	}{
		{"its task", "spiffe://corp/job/task/a", "job", "a", codes.OK},
		{"another's task", "spiffe://corp/job/task/a", "job", "b", codes.PermissionDenied},
		{"a task that it does not name", "spiffe://corp/job/task/a", "job", "", codes.PermissionDenied},
		{"another job's task", "spiffe://corp/other/task/a", "job", "a", codes.PermissionDenied},
		{"watch is not own", "spiffe://corp/viewer", "job", "", codes.PermissionDenied},
		{"no certificate", accesstest.Nobody, "job", "a", codes.PermissionDenied},
		{"an administrator", "spiffe://corp/sre", "job", "", codes.OK},
		{"access that cannot be read", "spiffe://corp/all", "broken", "", codes.Unavailable},
		{"a name that is none", "spiffe://corp/all", "job", "a b", codes.InvalidArgument},
	} {
		err := inTime(func() error {
			_, err := g.as(x.identity, 0).OpenSession(t.Context(), &slicerv1.OpenSessionRequest{TtlMs: 60_000, Jobs: []string{x.job}, Tasks: map[string]string{x.job: x.task}})
			return err
		})
		wantCode(t, x.name, err, x.code)
	}
	// The name of the task goes with the session from front to front.
	var conns []grpc.ClientConnInterface
	for i := range g.addrs {
		conns = append(conns, g.conn("spiffe://corp/job/task/a", i))
	}
	var s lease.ReadSession
	err := inTime(func() (err error) {
		s, err = remote.New(conns[0]).OpenReaderAs(t.Context(), time.Minute, map[string]string{"job": "a"})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.(lease.TaskSession).JoinAs(t.Context(), "job", "b"); !errors.Is(err, lease.ErrRefused) {
		t.Errorf("another task in the same session: %v", err)
	}
	for at := range g.addrs {
		own := open(t, g.as("spiffe://corp/all", 0), "job")
		for what, thief := range map[string]string{"another task": "spiffe://corp/job/task/a", "no certificate": accesstest.Nobody} {
			c := g.as(thief, at)
			_, err := c.RenewSession(t.Context(), &slicerv1.RenewSessionRequest{Session: own.GetSession(), Revision: own.GetRevision(), Jobs: []*slicerv1.SessionMemory{{Job: "job", Task: "a"}}})
			wantCode(t, "renewal by "+what, err, codes.NotFound)
			for call, err := range calls(t.Context(), c, own.GetSession()) {
				want := codes.NotFound
				if at == 1 { // where it is not known yet
					want = codes.Aborted
				}
				wantCode(t, call+" by "+what, err, want)
			}
		}
		err := inTime(func() error {
			_, err := g.as("spiffe://corp/all", at).RenewSession(t.Context(), &slicerv1.RenewSessionRequest{Session: own.GetSession(), Revision: own.GetRevision(), Jobs: []*slicerv1.SessionMemory{{Job: "job"}}})
			return err
		})
		if err != nil {
			t.Errorf("renewal by its holder at front %d: %v", at, err)
		}
	}
	named := open(t, g.as("spiffe://corp/sre", 0), "job")
	renew := &slicerv1.RenewSessionRequest{Session: named.GetSession(), Revision: named.GetRevision(), Jobs: []*slicerv1.SessionMemory{{Job: "job"}}}
	before, began := g.reads.Load(), time.Now()
	for range 50 {
		if err := inTime(func() error { _, err := g.as("spiffe://corp/sre", 0).RenewSession(t.Context(), renew); return err }); err != nil {
			t.Fatal(err)
		}
	}
	if n := g.reads.Load() - before; n > 10+int64(time.Since(began)/time.Second) { // once a second
		t.Errorf("50 renewals have read the access of jobs %d times", n)
	}
}

// A holder that may not own a job any more keeps what it holds until its lease has run out,
// and not longer, at whichever front it asks. Who holds nothing is renewed as ever.
func TestWithdrawnRight(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	f := newFleet(t, g.direct, lease.MaxTTL)
	f.advance(1)
	const holder = "spiffe://corp/job/task/a"
	c := g.as(holder, 0)
	opened := map[string]*slicerv1.OpenSessionResponse{}
	for _, name := range []string{"holds", "idle"} {
		var err error
		opened[name], err = c.OpenSession(t.Context(), &slicerv1.OpenSessionRequest{TtlMs: 10_000, Jobs: []string{"job"}, Tasks: map[string]string{"job": "a"}})
		if err != nil {
			t.Fatal(err)
		}
	}
	got, err := c.AcquireClaim(t.Context(), &slicerv1.AcquireClaimRequest{Session: opened["holds"].GetSession(), Job: "job", Claim: &slicerv1.Claim{To: 1}})
	if err != nil || !got.GetAcquired() {
		t.Fatal(got, err)
	}
	stream, err := c.WatchRecords(t.Context(), &slicerv1.WatchRecordsRequest{Session: opened["idle"].GetSession(), Job: "job"})
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	renew := func(name string, at int) error {
		o := opened[name]
		return inTime(func() error {
			_, err := g.as(holder, at).RenewSession(t.Context(), &slicerv1.RenewSessionRequest{Session: o.GetSession(), Revision: o.GetRevision(), Jobs: []*slicerv1.SessionMemory{{Job: "job", Task: "a"}}})
			return err
		})
	}
	if err := renew("holds", 0); err != nil {
		t.Fatal(err)
	}
	readers := func() int {
		st, err := f.w.State(t.Context(), "job")
		if err != nil {
			t.Fatal(err)
		}
		return st.GuardReaders
	}
	g.policy(withdrawnPolicy)
	if n := readers(); n != 1 {
		t.Errorf("%d readers hold the guard just after the right went", n)
	}
	for at := range g.addrs {
		wantCode(t, "renewal of what holds something", renew("holds", at), codes.PermissionDenied)
		wantCode(t, "renewal of what holds nothing", renew("idle", at), codes.OK)
	}
	for err == nil {
		_, err = stream.Recv()
	}
	wantCode(t, "the watch", err, codes.PermissionDenied)
	f.eventually("the session that held the guard is over", func() bool {
		wantCode(t, "renewal of what holds nothing", renew("idle", 1), codes.OK)
		switch err := renew("holds", 1); {
		case err == nil:
			t.Fatal("it was renewed")
		case readers() > 0:
			return false
		}
		return true
	})
	g.policy(ownersPolicy)
	if got, err := g.as(holder, 1).AcquireClaim(t.Context(), &slicerv1.AcquireClaimRequest{Session: opened["idle"].GetSession(), Job: "job", Claim: &slicerv1.Claim{To: 1}}); err != nil || !got.GetAcquired() {
		t.Errorf("with the right again: %v, %v", got, err)
	}
}

// A holder that leaves a job out of its memory where it renews is asked for the right to it all
// the same: when it comes to another front, and when it has got its claim at one while it is
// known at the other. Then it holds up no change of that job for longer than its lease time.
func TestHiddenClaim(t *testing.T) {
	t.Parallel()
	for _, before := range []bool{true, false} {
		t.Run(map[bool]string{true: "claimed, then moved", false: "moved, then claimed"}[before], func(t *testing.T) {
			t.Parallel()
			g := newGuardedFor(t, 20*time.Second)
			f := newFleet(t, g.direct, lease.MaxTTL)
			f.advance(1)
			const holder = "spiffe://corp/all"
			jobs := []string{"job", "another"}
			opened, err := g.as(holder, 0).OpenSession(t.Context(), &slicerv1.OpenSessionRequest{TtlMs: 20_000, Jobs: jobs})
			if err != nil {
				t.Fatal(err)
			}
			renew := func(at int, jobs ...string) error {
				m := &slicerv1.RenewSessionRequest{Session: opened.GetSession(), Revision: opened.GetRevision()}
				for _, name := range jobs {
					m.Jobs = append(m.Jobs, &slicerv1.SessionMemory{Job: name})
				}
				return inTime(func() error { _, err := g.as(holder, at).RenewSession(t.Context(), m); return err })
			}
			claim := func() {
				t.Helper()
				wantCode(t, "renewal where it was opened", renew(0, jobs...), codes.OK)
				got, err := g.as(holder, 0).AcquireClaim(t.Context(), &slicerv1.AcquireClaimRequest{Session: opened.GetSession(), Job: "job", Claim: &slicerv1.Claim{To: 1}})
				if err != nil || !got.GetAcquired() {
					t.Fatal(got, err)
				}
			}
			if before {
				claim()
			}
			wantCode(t, "renewal at the other front without the job", renew(1, "another"), codes.OK)
			if !before {
				claim()
			}
			g.policy("jobs: {own: [\"spiffe://corp/all-but-{job}\"]}\n") // of no job
			f.eventually("the session that held the guard is over", func() bool {
				_ = renew(1, "another") // as often as it may
				st, err := f.w.State(t.Context(), "job")
				if err != nil {
					t.Fatal(err)
				}
				return st.GuardReaders == 0
			})
		})
	}
}

// Where it cannot be found out in which jobs a session holds something, since nothing answers,
// it is renewed as it was, while there is time.
func TestNoAnswerAboutHiddenClaims(t *testing.T) {
	t.Parallel()
	g := newGuardedFor(t, 20*time.Second)
	f := newFleet(t, g.direct, lease.MaxTTL)
	f.advance(1)
	const holder = "spiffe://corp/all"
	opened, err := g.as(holder, 0).OpenSession(t.Context(), &slicerv1.OpenSessionRequest{TtlMs: 20_000, Jobs: []string{"job", "another"}})
	if err != nil {
		t.Fatal(err)
	}
	here := g.as(holder, 1)
	renew := func() error {
		return inTime(func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			_, err := here.RenewSession(ctx, &slicerv1.RenewSessionRequest{Session: opened.GetSession(), Revision: opened.GetRevision(), Jobs: []*slicerv1.SessionMemory{{Job: "another"}}})
			return err
		})
	}
	wantCode(t, "renewal at the other front", renew(), codes.OK)
	got, err := g.as(holder, 0).AcquireClaim(t.Context(), &slicerv1.AcquireClaimRequest{Session: opened.GetSession(), Job: "job", Claim: &slicerv1.Claim{To: 1}})
	if err != nil || !got.GetAcquired() {
		t.Fatal(got, err)
	}
	g.silent.Store(true)
	for g.asked.Load() == 0 { // until it looks
		wantCode(t, "renewal while nothing answers", renew(), codes.OK)
	}
}

// A job that is deleted takes nothing from a session that holds a claim in it: its access, which
// let the holder own it, is gone with it, and the session goes on in other jobs.
func TestDeletedJobWithdrawsNoRight(t *testing.T) {
	t.Parallel()
	const holder = "spiffe://corp/job/task/a"
	var deleted atomic.Bool
	var lookUps atomic.Int64 // since then
	own, err := assignment.AccessOf(map[assignment.Verb][]string{assignment.Own: {holder}})
	if err != nil {
		t.Fatal(err)
	}
	g := newGuardedFor(t, 20*time.Second, func(c front.Config) front.Config {
		limit := c.LeaseTime
		c.LeaseTime = func(ctx context.Context, job string) (time.Duration, error) {
			if job == "another" && deleted.Load() {
				lookUps.Add(1)
				return 0, nil
			}
			return limit(ctx, job)
		}
		c.Access = func(_ context.Context, job string) (assignment.Access, error) {
			if job == "another" && !deleted.Load() {
				return own, nil
			}
			return assignment.Access{}, nil
		}
		return c.LookUpEvery(20 * time.Millisecond)
	})
	w, err := g.direct.OpenWriter(t.Context(), lease.MaxTTL)
	if err != nil {
		t.Fatal(err)
	}
	token, err := w.Lead(t.Context(), "another")
	if err == nil {
		_, err = lease.Advance(t.Context(), w, lease.Change{Job: "another", Token: token, Wanted: 1})
	}
	if err != nil {
		t.Fatal(err)
	}
	c := g.as(holder, 0)
	s, err := c.OpenSession(t.Context(), &slicerv1.OpenSessionRequest{TtlMs: 20_000, Jobs: []string{"job", "another"}, Tasks: map[string]string{"job": "a", "another": "a"}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.AcquireClaim(t.Context(), &slicerv1.AcquireClaimRequest{Session: s.GetSession(), Job: "another", Claim: &slicerv1.Claim{To: 1}})
	if err != nil || !got.GetAcquired() {
		t.Fatal(got, err)
	}
	deleted.Store(true)
	for lookUps.Load() < 3 {
		_, err := c.RenewSession(t.Context(), &slicerv1.RenewSessionRequest{Session: s.GetSession(), Revision: s.GetRevision()})
		if wantCode(t, "renewal", err, codes.OK); err != nil {
			return
		}
	}
	_, err = g.as(holder, 1).RenewSession(t.Context(), &slicerv1.RenewSessionRequest{Session: s.GetSession(), Revision: s.GetRevision(), Jobs: []*slicerv1.SessionMemory{{Job: "job", Task: "a"}, {Job: "another", Task: "a"}}})
	wantCode(t, "renewal at a front that does not know it", err, codes.OK)
}
