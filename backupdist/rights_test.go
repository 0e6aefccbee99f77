package backupdist

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/access/accesstest"
	"github.com/slicer-project/slicer/assignment/access/enforce"
	"github.com/slicer-project/slicer/assignment/store"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

const (
	bob   = "spiffe://corp/web/bob"
	ann   = "spiffe://corp/web/ann"
	eve   = "spiffe://corp/other/eve"
	edge  = "spiffe://corp/edge"
	plane = "spiffe://corp/slicer/d1"

	testPolicy = `
plane: ["spiffe://corp/slicer/*"]
proxies: [spiffe://corp/edge]
jobs: {own: ["spiffe://corp/web/*"], watch: [spiffe://corp/edge], read: [spiffe://corp/web/ann]}
`
	bobAlone = "jobs: {own: [spiffe://corp/web/bob]}\n"
)

// guarded is a Backup Distributor that peers reach with certificates.
type guarded struct {
	t      *testing.T
	m      *memStore
	a      *accesstest.Authority
	rights *enforce.Rights
	l      *bufconn.Listener
}

func newGuarded(t *testing.T) *guarded {
	g := &guarded{t: t, m: newMemStore(), a: accesstest.New(t), rights: accesstest.Rights(t, testPolicy, nil), l: bufconn.Listen(1 << 16)}
	s, err := New(Config{Store: g.m, Rights: g.rights})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	srv := grpc.NewServer(append(ServerOptions(), grpc.Creds(g.a.Server(plane)))...)
	s.Register(srv)
	done := make(chan struct{})
	go func() {
		defer close(done)
		srv.Serve(s.Admit(g.l))
	}()
	t.Cleanup(func() { srv.Stop(); <-done })
	return g
}

func (g *guarded) as(id string) *grpc.ClientConn {
	g.t.Helper()
	cc, err := grpc.NewClient("passthrough:///127.0.0.1:7300", grpc.WithTransportCredentials(g.a.Client(id)),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return g.l.DialContext(ctx) }))
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { cc.Close() })
	return cc
}

// put makes a job with rights, nil for none of its own.
func (g *guarded) put(job string, access map[assignment.Verb][]string) {
	g.t.Helper()
	g.m.put(job)
	g.m.mu.Lock()
	defer g.m.mu.Unlock()
	if access != nil {
		j := g.m.jobs[job]
		var err error
		if j.Config.Access, err = assignment.AccessOf(access); err != nil {
			g.t.Fatal(err)
		}
		g.m.jobs[job] = j
		g.m.name(job)
	}
}

func sliceletHello(job string) *slicerv1.Hello {
	return &slicerv1.Hello{Job: job, Role: slicerv1.Role_ROLE_SLICELET, ClientId: "c", Task: &slicerv1.Task{Name: "t1"}}
}

// asked is how a call of one kind ends, nil for a stream that goes on.
func (g *guarded) asked(id, how, job string) error {
	g.t.Helper()
	cc := g.as(id)
	switch how {
	case "fetch":
		s, err := slicerv1.NewSubscriberServiceClient(cc).Fetch(g.t.Context(), &slicerv1.FetchRequest{Job: job})
		if err == nil {
			_, err = s.Recv()
		}
		return err
	case "read":
		_, err := slicerv1.NewAdminServiceClient(cc).GetJob(g.t.Context(), &slicerv1.GetJobRequest{Name: job})
		return err
	}
	h := hello(job)
	if how == "own" {
		h = sliceletHello(job)
	}
	s := subscribe(g.t, cc, h, nil)
	time.Sleep(5 * time.Second)
	defer s.close()
	if s.code() == codes.OK {
		return nil
	}
	return s.err
}

func TestRights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuarded(t)
		g.put("web", nil)
		g.put("mail", map[assignment.Verb][]string{assignment.Own: {"spiffe://corp/other/eve"}, assignment.Read: {bob}})
		for i, job := range []string{"web", "mail"} {
			g.m.write(assigned(t, nil, job, 7, assignment.Generation(10+i), 1))
		}
		for id, may := range map[string]map[string][]string{ // by job
			bob: {"web": {"own", "watch", "fetch"}, "mail": {"read"}}, ann: {"web": {"own", "watch", "fetch", "read"}},
			eve: {"mail": {"own", "watch", "fetch"}}, edge: {"web": {"watch", "fetch"}},
			plane: {"web": {"watch", "fetch", "read"}, "mail": {"watch", "fetch", "read"}}, accesstest.Nobody: {},
		} {
			name := id
			if id == accesstest.Nobody {
				name = "anonymous"
			}
			var listed []string
			for _, job := range []string{"mail", "web", "nowhere"} {
				for _, how := range []string{"own", "watch", "fetch", "read"} {
					err := g.asked(id, how, job)
					verb, as := how, ""
					switch how {
					case "own":
						as = " as task t1"
					case "fetch":
						verb = "watch"
					}
					switch {
					case job == "nowhere" && slices.Contains(may["web"], how):
						if status.Code(err) != codes.NotFound {
							t.Errorf("%s, %s of %s: %v", id, how, job, err)
						}
					case slices.Contains(may[job], how):
						if err != nil {
							t.Errorf("%s, %s of %s: %v", id, how, job, err)
						}
						if how == "read" {
							listed = append(listed, job)
						}
					default:
						want := fmt.Sprintf("identity %s may not %s job %s%s", name, verb, job, as)
						said, _, _ := strings.Cut(status.Convert(err).Message(), ": ") // after which it is said what to do
						if status.Code(err) != codes.PermissionDenied || said != want {
							t.Errorf("%s, %s of %s: %v", id, how, job, err)
						}
					}
				}
			}
			resp, err := slicerv1.NewAdminServiceClient(g.as(id)).ListJobs(t.Context(), &slicerv1.ListJobsRequest{})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, j := range resp.Jobs {
				got = append(got, j.Config.Name)
			}
			if !slices.Equal(got, listed) {
				t.Errorf("%s is told of %v, and may read %v", id, got, listed)
			}
		}
	})
}

// What a store says of a record that it cannot read is not for those who may not know that
// it is there.
func TestRightsOfAnUnreadJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuarded(t)
		g.m.fail(fmt.Errorf("%w: mail", store.ErrCorrupt))
		for id, want := range map[string]codes.Code{ann: codes.DataLoss, eve: codes.PermissionDenied} {
			for _, how := range []string{"watch", "fetch", "read"} {
				begun := time.Now()
				err := g.asked(id, how, "mail")
				if status.Code(err) != want {
					t.Errorf("%s of %s: %v", how, id, err)
				}
				// Neither by the words nor by the time they take.
				if took := time.Since(begun); want == codes.PermissionDenied && (took != 0 && how != "watch" || // asked waits for what comes of a stream
					strings.Contains(err.Error(), "damage") || strings.Contains(err.Error(), "corrupt")) {
					t.Errorf("%s of %s: %v after %s", how, id, err, took)
				}
			}
		}
		g.m.fail(errors.New("away"))
	})
}

// A change of the policy, or of the job, ends the streams of those who may not go on, and no
// others.
func TestRightsChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuarded(t)
		g.put("web", nil)
		a := assigned(t, nil, "web", 7, 10, 1)
		g.m.write(a)
		begin := func(id string, h *slicerv1.Hello) *sub {
			s := subscribe(t, g.as(id), h, nil)
			synctest.Wait()
			return s
		}
		owner, watcher := begin(bob, sliceletHello("web")), begin(bob, hello("web"))
		for _, tc := range []struct {
			what       string
			take, give func()
		}{
			{"the policy", func() { g.rights.SetPolicy(accesstest.Policy(t, bobAlone)) }, func() { g.rights.SetPolicy(accesstest.Policy(t, testPolicy)) }},
			{"no policy", func() { g.rights.SetPolicy(accesstest.Policy(t, bobAlone)) }, func() { g.rights.SetPolicy(nil) }},
			{"the job", func() { g.put("web", map[assignment.Verb][]string{assignment.Own: {bob}}) }, func() { g.put("web", nil) }},
		} {
			g.rights.SetPolicy(accesstest.Policy(t, testPolicy))
			tc.give()
			time.Sleep(time.Minute)
			annOwns, annWatches := begin(ann, sliceletHello("web")), begin(ann, hello("web"))
			if annOwns.code() != codes.OK || annWatches.code() != codes.OK {
				t.Fatal(tc.what, annOwns.err, annWatches.err)
			}
			tc.take()
			time.Sleep(time.Second)
			if annOwns.code() != codes.PermissionDenied || annWatches.code() != codes.PermissionDenied {
				t.Errorf("%s: %v, %v", tc.what, annOwns.err, annWatches.err)
			}
			if err := g.asked(ann, "fetch", "web"); status.Code(err) != codes.PermissionDenied {
				t.Errorf("%s, fetched: %v", tc.what, err)
			}
		}
		owner.expect(a, "whole")
		watcher.expect(a, "whole")
		if owner.code() != codes.OK || watcher.code() != codes.OK {
			t.Error(owner.err, watcher.err)
		}
	})
}

// On the connection of a proxy that the policy names there are the streams of many.
func TestStreamsOfAProxy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuarded(t)
		g.put("web", nil)
		g.m.write(assigned(t, nil, "web", 7, 10, 1))
		for id, want := range map[string]int{edge: 0, bob: 10} {
			cc, refused := g.as(id), 0
			var subs []*sub
			for range 1010 {
				subs = append(subs, subscribe(t, cc, hello("web"), nil))
			}
			for _, s := range subs {
				if c := s.code(); c == codes.ResourceExhausted {
					refused++
				} else if c != codes.OK {
					t.Fatal(s.err)
				}
			}
			if refused != want {
				t.Errorf("%s: %d of 1010 are refused, not %d", id, refused, want)
			}
		}
	})
}
