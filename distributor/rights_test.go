package distributor

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment/access/accesstest"
	"github.com/slicer-project/slicer/assignment/access/enforce"
	"github.com/slicer-project/slicer/distributor/fanout"
	"github.com/slicer-project/slicer/distributor/relay"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// Identities of tests. The default of testPolicy is that bob's team may watch and own.
const (
	plane1 = "spiffe://corp/slicer/d1"
	plane2 = "spiffe://corp/slicer/d2"
	proxy  = "spiffe://corp/edge"
	root   = "spiffe://corp/root"
	bob    = "spiffe://corp/web/bob"
	ann    = "spiffe://corp/web/ann"
	eve    = "spiffe://corp/other/eve"

	testPolicy = `
plane: ["spiffe://corp/slicer/*"]
proxies: [spiffe://corp/edge]
admin: [spiffe://corp/root]
jobs: {own: ["spiffe://corp/web/*"], watch: [spiffe://corp/edge]}
bounds: {default: {tasks: 3}}
`
	bobAlone = `
plane: ["spiffe://corp/slicer/*"]
jobs: {own: [spiffe://corp/web/bob]}
`
)

// guarded is an assigner and Distributors, which peers reach with certificates.
type guarded struct {
	t      *testing.T
	n      *network
	f      *fakeAssigner
	a      *accesstest.Authority
	rights *enforce.Rights // of d1
	d      *Distributor    // d1, of the first tier
	as     map[string]credentials.TransportCredentials
}

const (
	guarded1 = "127.0.0.1:7201"
	guarded2 = "127.0.0.1:7202"
)

func newGuarded(t *testing.T, policy string) *guarded {
	g := &guarded{
		t: t, n: newNetwork(), f: newFakeAssigner(t, "a1"), a: accesstest.New(t),
		rights: accesstest.Rights(t, policy, nil), as: make(map[string]credentials.TransportCredentials),
	}
	g.f.set(firstOf(t, testJob, testStore, baseGen, 10))
	g.f.prefer(1, "a1", candidateAt("a1", assigner1))
	g.f.start(g.n, assigner1)
	g.d = g.serve(guarded1, plane1, Config{ID: "d1", Assigners: []string{assigner1}, DialOptions: g.n.dialOptions(), ServeDistributors: true, Rights: g.rights})
	synctest.Wait()
	return g
}

func (g *guarded) serve(address, id string, cfg Config) *Distributor {
	g.t.Helper()
	d, err := newDistributor(cfg, g.n.lookup)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { d.Close() })
	g.n.serveOn(g.t, address, d.Admit(g.n.listen(address)), func(s *grpc.Server) { d.Register(s) }, append(ServerOptions(), grpc.Creds(g.a.Server(id)))...)
	return d
}

// second starts a Distributor of the second tier below d1.
func (g *guarded) second(id string, r *enforce.Rights) *Distributor {
	opts := append(g.n.dialOptions(), grpc.WithTransportCredentials(g.creds(id)))
	d := g.serve(guarded2, id, Config{ID: "d2", Upstreams: []string{guarded1}, DialOptions: opts, Rights: r})
	time.Sleep(10 * time.Second)
	return d
}

func (g *guarded) creds(id string) credentials.TransportCredentials {
	if g.as[id] == nil {
		g.as[id] = g.a.Client(id)
	}
	return g.as[id]
}

// at is a client's connection to a Distributor.
func (g *guarded) at(address, id string) *grpc.ClientConn {
	g.t.Helper()
	cc, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(g.creds(id)), grpc.WithContextDialer(g.n.dial))
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { cc.Close() })
	return cc
}

// asked is how a stream or call stands a while after it has begun: OK if it goes on.
func asked(t *testing.T, cc *grpc.ClientConn, how, job string) error {
	t.Helper()
	var h *slicerv1.Hello
	switch how {
	case "fetch":
		return fetchErr(cc, job)
	case "a119":
		u := (&world{t: t, cc: cc}).foreignOf(job, "u1", 0)
		time.Sleep(5 * time.Second)
		defer u.close()
		u.mu.Lock()
		defer u.mu.Unlock()
		return u.err
	case "own":
		h = sliceletHello("t1", 1)
	case "clerk":
		h = clerkHello("c1")
	case "observer":
		h = &slicerv1.Hello{Role: slicerv1.Role_ROLE_OBSERVER, ClientId: "o1"}
	}
	h.Job = job
	s := subscribe(t, cc, h, nil)
	time.Sleep(5 * time.Second)
	defer s.close()
	if s.ended() == codes.OK {
		return nil
	}
	return s.err
}

func denied(err error, says string) bool {
	said, _, _ := strings.Cut(status.Convert(err).Message(), ": ") // after which it is said what to do
	return status.Code(err) == codes.PermissionDenied && said == says
}

// Who may, may; who may not learns that, and not whether there is such a job, nor the rule.
func TestRightsAtHello(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		g := newGuarded(t, testPolicy)
		g.f.set(firstOf(t, "mail", testStore, baseGen, 10))
		g.f.allow("mail", &slicerv1.Access{Own: []string{"spiffe://corp/other/{task}", eve}, Watch: []string{bob}})
		for id, want := range map[string]map[string]string{ // by job: those of own and watch that are allowed
			bob: {testJob: "own watch", "mail": "watch"}, ann: {testJob: "own watch"}, eve: {"mail": "own watch"}, proxy: {testJob: "watch"},
			root: {testJob: "own watch", "mail": "own watch"}, plane1: {testJob: "watch", "mail": "watch"}, accesstest.Nobody: {},
		} {
			name := id
			if id == accesstest.Nobody {
				name = "anonymous"
			}
			cc := g.at(guarded1, id)
			for _, job := range []string{testJob, "mail", "nowhere"} {
				for _, how := range []string{"own", "clerk", "observer", "fetch", "a119"} {
					verb, as := "watch", ""
					if how == "own" {
						verb, as = "own", " as task t1"
					}
					err := asked(t, cc, how, job)
					// What is allowed of a job without access is allowed of one that there is not.
					if job == "nowhere" && strings.Contains(want[testJob], verb) {
						if status.Code(err) != codes.NotFound {
							t.Errorf("%s, %s of %s: %v", id, how, job, err)
						}
					} else if strings.Contains(want[job], verb) {
						if err != nil {
							t.Errorf("%s, %s of %s: %v", id, how, job, err)
						}
					} else if !denied(err, fmt.Sprintf("identity %s may not %s job %s%s", name, verb, job, as)) {
						t.Errorf("%s, %s of %s: %v", id, how, job, err)
					}
				}
			}
		}
	})
}

// One that has asked for too many names does not learn either which of them are jobs.
func TestRightsAndUnknownNames(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		g := newGuarded(t, testPolicy)
		evil, cc := g.at(guarded1, eve), g.at(guarded1, bob)
		if err := fetchErr(cc, testJob); err != nil {
			t.Fatal(err)
		}
		for i := range 200 {
			if err := fetchErr(evil, fmt.Sprint("unknown-", i)); status.Code(err) != codes.PermissionDenied {
				t.Fatal(i, err)
			}
		}
		if err := fetchErr(evil, testJob); status.Code(err) != codes.PermissionDenied {
			t.Error(err)
		}
		// The limit is of the identity, wherever it connects from, and of no other.
		last := error(nil)
		for i := range 200 {
			last = fetchErr(g.at(guarded1, bob), fmt.Sprint("other-", i))
		}
		if status.Code(last) != codes.ResourceExhausted || !strings.Contains(last.Error(), "identity "+bob) {
			t.Error(last)
		}
		if err := fetchErr(g.at(guarded1, ann), "another"); status.Code(err) != codes.NotFound {
			t.Error(err)
		}
	})
}

// A Distributor that has lost its assigners knows what the job's config said last; one that
// has not heard it says neither yes nor no.
func TestRightsWithoutAssigners(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		g := newGuarded(t, testPolicy)
		g.f.allow(testJob, &slicerv1.Access{Watch: []string{eve}})
		held := subscribe(t, g.at(guarded1, eve), clerkHello("c1"), nil)
		held.holds()
		g.f.stop()
		time.Sleep(time.Minute)
		for id, want := range map[string]codes.Code{eve: codes.OK, bob: codes.PermissionDenied} {
			for _, how := range []string{"clerk", "fetch", "a119"} {
				if err := asked(t, g.at(guarded1, id), how, testJob); status.Code(err) != want {
					t.Errorf("%s of %s: %v", how, id, err)
				}
				if err := asked(t, g.at(guarded1, id), how, "mail"); status.Code(err) != codes.Unavailable {
					t.Errorf("%s of %s, of a job that no assigner was asked about: %v", how, id, err)
				}
			}
		}
		if c := held.ended(); c != codes.OK {
			t.Error(held.err)
		}
	})
}

// live are streams of two that may do the same at first.
type live struct {
	g       *guarded
	subs    map[string]*fakeSub
	clients map[string]*foreign
	next    uint64
}

func (g *guarded) live() *live {
	l := &live{g: g, subs: make(map[string]*fakeSub), clients: make(map[string]*foreign)}
	for _, id := range []string{bob, ann} {
		l.begin(id)
	}
	return l
}

func (l *live) begin(id string) {
	l.next++
	name := id[strings.LastIndexByte(id, '/')+1:]
	l.subs[id+" own"] = subscribe(l.g.t, l.g.at(guarded1, id), sliceletHello(name, l.next), nil)
	l.subs[id+" watch"] = subscribe(l.g.t, l.g.at(guarded1, id), clerkHello(name), nil)
	l.clients[id] = (&world{t: l.g.t, cc: l.g.at(guarded1, id)}).foreign(name, 0)
	synctest.Wait()
}

// check compares with which code the streams of one have ended.
func (l *live) check(when, id string, want codes.Code) {
	l.g.t.Helper()
	got := map[string]codes.Code{"own": l.subs[id+" own"].ended(), "watch": l.subs[id+" watch"].ended(), "a119": l.clients[id].ended()}
	for how, c := range got {
		if c != want {
			l.g.t.Errorf("%s: %s of %s: %s, want %s", when, how, id, c, want)
		}
	}
}

// When the policy or what the job's config says changes, the streams of those who may not go
// on end, and no others.
func TestRightsChange(t *testing.T) {
	for _, tc := range []struct {
		what       string
		take, give func(*guarded)
	}{
		{"the policy", func(g *guarded) { g.rights.SetPolicy(accesstest.Policy(t, bobAlone)) }, func(g *guarded) { g.rights.SetPolicy(accesstest.Policy(t, testPolicy)) }},
		{"no policy before", func(g *guarded) { g.rights.SetPolicy(accesstest.Policy(t, bobAlone)) }, func(g *guarded) { g.rights.SetPolicy(nil) }},
		{"the job", func(g *guarded) { g.f.allow(testJob, &slicerv1.Access{Own: []string{bob}}) }, func(g *guarded) { g.f.allow(testJob, nil) }},
		{"the job's patterns", func(g *guarded) {
			g.f.allow(testJob, &slicerv1.Access{Own: []string{"spiffe://corp/web/b{task}", bob}})
		},
			func(g *guarded) { g.f.allow(testJob, &slicerv1.Access{Own: []string{bob, ann}}) }},
	} {
		t.Run(tc.what, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				g := newGuarded(t, testPolicy)
				tc.give(g)
				synctest.Wait()
				l := g.live()
				for i := range 3 {
					when := fmt.Sprintf("%s, round %d", tc.what, i)
					l.check(when, bob, codes.OK)
					l.check(when, ann, codes.OK)
					tc.take(g)
					synctest.Wait()
					l.check(when+", taken", bob, codes.OK)
					l.check(when+", taken", ann, codes.PermissionDenied)
					if err := fetchErr(g.at(guarded1, ann), testJob); status.Code(err) != codes.PermissionDenied {
						t.Errorf("%s, fetched: %v", when, err)
					}
					tc.give(g)
					synctest.Wait() // until the Distributor has heard it
					l.begin(ann)
				}
				if n := len(l.subs[bob+" watch"].kinds()); n != 1 {
					t.Errorf("bob has been sent %d assignments, not the first one alone", n)
				}
				if n := len(l.clients[bob].generations()); n != 1 {
					t.Errorf("bob's auto-sharding client has been sent %d assignments", n)
				}
			})
		})
	}
}

// The streams of those who may watch whatever the job says go on.
func TestRightsMalformed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		g := newGuarded(t, testPolicy)
		l := g.live()
		g.f.allow(testJob, &slicerv1.Access{Own: []string{"{nonsense"}})
		l.check("malformed", bob, codes.OK)
		g.f.allow(testJob, &slicerv1.Access{Own: []string{eve}})
		l.check("then well formed", bob, codes.PermissionDenied)
	})
}

func attachErr(t *testing.T, cc *grpc.ClientConn, assigner string) error {
	t.Helper()
	ctx := t.Context()
	if assigner != "" {
		ctx = relay.Through(ctx, assigner)
	}
	s, err := slicerv1.NewRelayServiceClient(cc).Attach(ctx)
	if err != nil {
		t.Fatal(err)
	}
	s.Send(&slicerv1.AttachRequest{Message: &slicerv1.AttachRequest_Hello{Hello: &slicerv1.DistributorHello{DistributorId: "false"}}})
	for {
		if _, err := s.Recv(); err != nil {
			return err
		}
	}
}

// Only what is of the control plane may be a Distributor of the second tier: not even a word
// of any other reaches an assigner.
func TestRightsOfDistributors(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		g := newGuarded(t, testPolicy)
		for _, id := range []string{bob, eve, root, proxy, accesstest.Nobody} {
			cc := g.at(guarded1, id)
			for _, assigner := range []string{"", "a1"} {
				if err := attachErr(t, cc, assigner); status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "may not be part of the control plane (RelayService.Attach)") {
					t.Errorf("%s through %q: %v", id, assigner, err)
				}
			}
			// Its tier it tells every caller that has an identity, as inspect asks for it.
			want := codes.OK
			if id == accesstest.Nobody {
				want = codes.PermissionDenied
			}
			if _, err := slicerv1.NewRelayServiceClient(cc).Describe(t.Context(), &slicerv1.DescribeRequest{}); status.Code(err) != want {
				t.Errorf("%s asks for the tier: %v", id, err)
			}
		}
		for _, line := range g.f.told() {
			if strings.Contains(line, "false") {
				t.Errorf("the assigner has heard %s", line)
			}
		}
		if _, err := slicerv1.NewRelayServiceClient(g.at(guarded1, plane2)).Describe(t.Context(), &slicerv1.DescribeRequest{}); err != nil {
			t.Error(err)
		}
	})
}

// At a Distributor of the second tier subscribers are checked there, by what passes through
// the first; and when it is no longer of the control plane it is attached to nothing.
func TestRightsThroughTheFirstTier(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		g := newGuarded(t, testPolicy)
		d2 := g.second(plane2, accesstest.Rights(t, testPolicy, nil))
		own := subscribe(t, g.at(guarded2, bob), sliceletHello("t1", 1), nil)
		watch := subscribe(t, g.at(guarded2, bob), clerkHello("c1"), nil)
		if own.holds() == nil || watch.holds() == nil {
			t.Fatal(own.err, watch.err)
		}
		if err := asked(t, g.at(guarded2, eve), "clerk", testJob); status.Code(err) != codes.PermissionDenied {
			t.Error(err)
		}
		if id := g.identityOf("t1"); id != bob {
			t.Errorf("the assigner is told that t1 is of %q", id)
		}
		g.f.allow(testJob, &slicerv1.Access{Own: []string{eve}, Watch: []string{bob}})
		if own.ended() != codes.PermissionDenied || watch.ended() != codes.OK {
			t.Errorf("own %v, watch %v", own.err, watch.err)
		}
		if err := asked(t, g.at(guarded2, eve), "own", testJob); err != nil {
			t.Error(err)
		}
		attached := func() (n int) {
			synctest.Wait()
			d2.mu.Lock()
			defer d2.mu.Unlock()
			return len(d2.upstreams) + len(d2.attachments)
		}
		if attached() != 2 {
			t.Fatalf("%d streams upwards, not 2", attached())
		}
		// Its id is its own, not that of whatever it is passed on by.
		if whose := g.f.attachedAs(d2.cfg.ID); whose != plane2 {
			t.Errorf("the assigner is told that the second Distributor is of %q", whose)
		}
		g.rights.SetPolicy(accesstest.Policy(t, strings.ReplaceAll(testPolicy, "slicer/*", "slicer/d1")))
		time.Sleep(10 * time.Second)
		if n := attached(); n != 0 {
			t.Errorf("%d streams upwards of what is not of the control plane any more", n)
		}
		g.rights.SetPolicy(accesstest.Policy(t, testPolicy))
		time.Sleep(20 * time.Second)
		if n := attached(); n != 2 {
			t.Errorf("%d streams upwards after the right has been given again", n)
		}
	})
}

// A change of a policy leaves the streams of Distributors alone that may go on.
func TestRightsOfDistributorsStay(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		g := newGuarded(t, testPolicy)
		d2 := g.second(plane2, nil)
		before := d2.sessionsBegun()
		for range 3 {
			g.rights.SetPolicy(accesstest.Policy(t, bobAlone))
			time.Sleep(10 * time.Second)
		}
		if n := d2.sessionsBegun() - before; n != 0 {
			t.Errorf("%d streams have begun anew", n)
		}
	})
}

func (d *Distributor) sessionsBegun() fanout.Session {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sessions
}

// identityOf is whose the task is, as the assigner has been told last.
func (g *guarded) identityOf(task string) (id string) {
	for _, m := range g.f.hear() {
		for _, r := range m.GetReports().GetReports() {
			if r.GetTask().GetName() == task {
				id = r.Identity
			}
		}
	}
	return id
}

func TestIdentityIsReported(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		g := newGuarded(t, testPolicy)
		s := subscribe(t, g.at(guarded1, bob), sliceletHello("t1", 1), nil)
		time.Sleep(time.Second)
		if id := g.identityOf("t1"); id != bob {
			t.Errorf("t1 is of %q", id)
		}
		// A name that lives is its own, whatever another one knows.
		if err := asked(t, g.at(guarded1, ann), "own", testJob); status.Code(err) != codes.AlreadyExists {
			t.Error(err)
		}
		again := subscribe(t, g.at(guarded1, bob), sliceletHello("t1", 1), nil)
		if again.ended() != codes.OK || s.ended() != codes.Aborted {
			t.Error(again.err, s.err)
		}
		// Without a policy nothing is said.
		g.rights.SetPolicy(nil)
		subscribe(t, g.at(guarded1, ann), sliceletHello("t2", 1), nil)
		time.Sleep(time.Second)
		if id := g.identityOf("t2"); id != "" {
			t.Errorf("t2 is of %q", id)
		}
	})
}

// The refusal of a name that another identity holds tells the log whose it is, and its caller
// neither that nor where the task is.
func TestRefusedNamesAreAudited(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		g := newGuarded(t, testPolicy)
		var log bytes.Buffer
		g.serve(guarded2, plane1, Config{ID: "d3", Assigners: []string{assigner1}, DialOptions: g.n.dialOptions(), Rights: g.rights, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		synctest.Wait()
		hello := sliceletHello("t1", 1)
		subscribe(t, g.at(guarded2, bob), hello, nil)
		synctest.Wait()
		s := subscribe(t, g.at(guarded2, ann), sliceletHello("t1", 1), nil)
		if s.ended() != codes.AlreadyExists || !strings.Contains(s.err.Error(), `task "t1"`) || strings.Contains(s.err.Error(), hello.Task.Address) || strings.Contains(s.err.Error(), bob) {
			t.Error(s.err)
		}
		want := 0
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, "audit=refused") && strings.Contains(line, "task=t1") && strings.Contains(line, " identity="+ann) && strings.Contains(line, "first_identity="+bob) {
				want++
			}
		}
		if want != 1 {
			t.Errorf("%d lines of the audit log in\n%s", want, log.String())
		}
	})
}

// An identity has so many tasks at a Distributor; a reconnection is none more.
func TestTasksOfAnIdentity(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		g := newGuarded(t, testPolicy)
		var subs []*fakeSub
		for i := range 3 {
			subs = append(subs, subscribe(t, g.at(guarded1, bob), sliceletHello(fmt.Sprint("t", i), 1), nil))
			synctest.Wait()
		}
		more := subscribe(t, g.at(guarded1, bob), sliceletHello("t3", 1), nil)
		if more.ended() != codes.ResourceExhausted || !strings.Contains(more.err.Error(), "3 tasks of identity "+bob) || !strings.Contains(more.err.Error(), "bounds.tasks of the policy allows 3") {
			t.Error(more.err)
		}
		again := subscribe(t, g.at(guarded1, bob), sliceletHello("t0", 1), nil)
		if again.ended() != codes.OK {
			t.Errorf("a reconnection: %v", again.err)
		}
		for _, s := range []*fakeSub{subscribe(t, g.at(guarded1, ann), sliceletHello("a0", 1), nil), subscribe(t, g.at(guarded1, bob), clerkHello("c"), nil)} {
			if s.ended() != codes.OK {
				t.Errorf("another identity, or a clerk: %v", s.err)
			}
		}
		subs[1].close()
		synctest.Wait()
		if s := subscribe(t, g.at(guarded1, bob), sliceletHello("t3", 1), nil); s.ended() != codes.OK {
			t.Errorf("in the place of one that has gone: %v", s.err)
		}
	})
}

// One that goes on asking for more tasks than it may have, over any number of connections, is
// refused all that it asks for, for a while; others are not.
func TestRefusalsOfAnIdentity(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		g := newGuarded(t, testPolicy)
		var cc *grpc.ClientConn
		for i := range 1004 {
			if i%400 == 0 {
				cc = g.at(guarded1, bob)
			}
			s := subscribe(t, cc, sliceletHello(fmt.Sprint("t", i), 1), nil)
			if synctest.Wait(); i >= 3 && s.ended() != codes.ResourceExhausted {
				t.Fatalf("task %d: %v", i, s.err)
			}
		}
		clerk := subscribe(t, g.at(guarded1, bob), clerkHello("c"), nil)
		if clerk.ended() != codes.ResourceExhausted || !strings.Contains(clerk.err.Error(), "identity "+bob+" asks too often") {
			t.Error(clerk.err)
		}
		if s := subscribe(t, g.at(guarded1, ann), sliceletHello("a0", 1), nil); s.ended() != codes.OK {
			t.Errorf("another identity: %v", s.err)
		}
		time.Sleep(time.Second)
		if s := subscribe(t, g.at(guarded1, bob), clerkHello("c"), nil); s.ended() != codes.OK {
			t.Errorf("a second later: %v", s.err)
		}
	})
}

// What is to be refused to an identity that asks too often costs next to nothing, however many
// calls come at once: those that may be looked at are let in, and of the others gRPC starts none.
func TestRefusalsBeforeAGoroutine(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		g := newGuarded(t, testPolicy)
		d, err := newDistributor(Config{ID: "d3", Assigners: []string{assigner1}, DialOptions: g.n.dialOptions(), Rights: g.rights}, g.n.lookup)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		var begun atomic.Int64
		count := grpc.ChainStreamInterceptor(func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) error {
			begun.Add(1)
			return h(srv, s)
		})
		g.n.serveOn(t, guarded2, d.Admit(g.n.listen(guarded2)), func(s *grpc.Server) { d.Register(s) },
			append([]grpc.ServerOption{count, grpc.Creds(g.a.Server(plane1))}, ServerOptions()...)...)
		synctest.Wait()
		var cc *grpc.ClientConn
		for i := range 903 {
			if i%400 == 0 {
				cc = g.at(guarded2, bob)
			}
			s := subscribe(t, cc, sliceletHello(fmt.Sprint("t", i), 1), nil)
			if synctest.Wait(); i >= 3 && s.ended() != codes.ResourceExhausted {
				t.Fatalf("task %d: %v", i, s.err)
			}
		}
		// So many are left: one for each call, whether it will be refused or not.
		const left, more = 100, 60
		flood := func(ctx context.Context, n int) (streams []slicerv1.SubscriberService_WatchClient) {
			cc := g.at(guarded2, bob)
			for range n {
				s, err := slicerv1.NewSubscriberServiceClient(cc).Watch(ctx)
				if err != nil {
					t.Fatal(err)
				}
				streams = append(streams, s)
			}
			synctest.Wait()
			return streams
		}
		refused := func(s slicerv1.SubscriberService_WatchClient) {
			t.Helper()
			if _, err := s.Recv(); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "identity "+bob+" asks too often") {
				t.Fatal(err)
			}
		}
		begun.Store(0)
		streams := flood(t.Context(), left+more)
		if n := begun.Load(); n != left {
			t.Errorf("%d calls of %d at once were begun, not %d", n, left+more, left)
		}
		for _, s := range streams[left:] {
			refused(s)
		}
		for _, s := range streams[:left] {
			if err := s.Send(&slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Hello{Hello: clerkHello("c")}}); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Recv(); err != nil {
				t.Fatalf("one that was let in: %v", err)
			}
		}
		// gRPC holds on to a call that is refused earlier until its deadline.
		begun.Store(0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		for _, s := range flood(ctx, more) {
			refused(s)
		}
		if n := begun.Load(); n != more {
			t.Errorf("%d calls of %d with a deadline were begun", n, more)
		}
		if s := subscribe(t, g.at(guarded2, ann), sliceletHello("a0", 1), nil); s.ended() != codes.OK {
			t.Errorf("another identity: %v", s.err)
		}
	})
}

// On the connection of a proxy that the policy names there are the streams of many.
func TestStreamsOfAProxy(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		g := newGuarded(t, testPolicy)
		for id, refused := range map[string]int{proxy: 0, bob: 10} {
			cc := g.at(guarded1, id)
			var subs []*fakeSub
			for i := range 1010 {
				subs = append(subs, subscribe(t, cc, clerkHello(fmt.Sprint("c", i)), nil))
			}
			synctest.Wait()
			got := 0
			for _, s := range subs {
				if c := s.ended(); c == codes.ResourceExhausted {
					got++
				} else if c != codes.OK {
					t.Fatal(s.err)
				}
			}
			if got != refused {
				t.Errorf("%s: %d of 1010 streams are refused, not %d", id, got, refused)
			}
		}
	})
}

// The assigner is told who asks: what the certificate says, or a peer of the control plane.
func TestCallsArePassedOnForTheirCaller(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		g := newGuarded(t, testPolicy)
		var from string
		call := func(address, id string, md ...string) string {
			t.Helper()
			ctx := metadata.AppendToOutgoingContext(t.Context(), md...)
			if _, err := slicerv1.NewAdminServiceClient(g.at(address, id)).InspectJob(ctx, &slicerv1.InspectJobRequest{Job: testJob}); err != nil {
				t.Fatal(err)
			}
			g.f.mu.Lock()
			defer g.f.mu.Unlock()
			from = g.f.from
			return g.f.caller
		}
		for _, tc := range []struct{ id, says, want string }{
			{bob, "", bob}, {bob, root, bob}, {accesstest.Nobody, root, "anonymous"}, {plane2, bob, bob}, {plane2, "", plane2},
		} {
			var md []string
			if tc.says != "" {
				md = []string{"slicer-identity", tc.says}
			}
			if got := call(guarded1, tc.id, md...); got != tc.want {
				t.Errorf("%s for %q: passed on for %q, want %q", tc.id, tc.says, got, tc.want)
			}
			if from == "" || strings.Contains(from, "via") {
				t.Errorf("%s for %q: passed on from %q", tc.id, tc.says, from)
			}
		}
		g.second(plane2, accesstest.Rights(t, testPolicy, nil))
		if got := call(guarded2, eve); got != eve {
			t.Errorf("through two tiers: passed on for %q", got)
		}
		if strings.Count(from, " via ") != 1 {
			t.Errorf("through two tiers: passed on from %q, want the client's address via the second tier's", from)
		}
		// Without a policy no peer is known to be of the control plane.
		g.rights.SetPolicy(nil)
		if got := call(guarded1, bob, "slicer-identity", root); got != bob {
			t.Errorf("without a policy: passed on for %q", got)
		}
	})
}
