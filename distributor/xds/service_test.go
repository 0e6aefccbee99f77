package xds

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/prometheus/client_golang/prometheus"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/distributor/internal/answers"
	xdsv3 "github.com/slicer-project/slicer/proto/xds/v3"
)

// fakeSource serves the job web from memory, and writes down what it hears.
type fakeSource struct {
	mu      sync.Mutex
	newest  *assignment.Assignment
	changed chan struct{}
	err     error // of Join and Newest
	terms   Terms
	heard   []string
}

func (f *fakeSource) set(a *assignment.Assignment, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.newest, f.err = a, err
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *fakeSource) note(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.heard = append(f.heard, fmt.Sprintf(format, args...))
}

func (f *fakeSource) hear() string {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	s := strings.Join(f.heard, "; ")
	f.heard = nil
	return s
}

func (f *fakeSource) Join(_ context.Context, job, name string) (Feed, error) {
	f.mu.Lock()
	err := f.err
	f.mu.Unlock()
	if job != "web" {
		err = status.Errorf(codes.NotFound, "job %q does not exist", job)
	}
	if err != nil {
		return nil, err
	}
	f.note("%s joins %s", name, job)
	return fakeFeed{f, name}, nil
}

type fakeFeed struct {
	*fakeSource
	name string
}

func (f fakeFeed) Newest(time.Time) (*assignment.Assignment, <-chan struct{}, time.Duration, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.newest, f.changed, 0, f.err
}

func (f fakeFeed) Terms() Terms {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.terms
}

func (f fakeFeed) Holds(_ time.Time, g assignment.Generation) {
	f.note("%s holds %d", f.name, max(g-baseGen, -1))
}
func (f fakeFeed) Refuses(time.Time)  { f.note("%s refuses", f.name) }
func (f fakeFeed) Observes(time.Time) { f.note("%s observes", f.name) }
func (f fakeFeed) Leave(time.Time)    { f.note("%s leaves", f.name) }

// stand is a Service behind a server in memory.
type stand struct {
	t   *testing.T
	f   *fakeSource
	s   *Service
	reg *prometheus.Registry
	log *strings.Builder
	cc  *grpc.ClientConn
}

func newStand(t *testing.T) *stand {
	t.Helper()
	st := &stand{t: t, f: &fakeSource{terms: usual, changed: make(chan struct{})}, reg: prometheus.NewRegistry(), log: new(strings.Builder)}
	var err error
	st.s, err = New(Config{Source: st.f, ID: "d0", Registerer: st.reg, Logger: slog.New(slog.NewTextHandler(st.log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	lis := bufconn.Listen(64 << 10)
	server := grpc.NewServer()
	st.s.Register(server)
	done := make(chan struct{})
	go func() {
		defer close(done)
		server.Serve(lis)
	}()
	st.cc, err = grpc.NewClient("passthrough:///server", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		st.s.Close()
		st.cc.Close()
		server.Stop()
		<-done
	})
	return st
}

// stock is a client that asks for what it is led to and accepts what it gets, as gRPC's does.
type stock struct {
	st     *stand
	s      discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient
	cancel context.CancelFunc
	id     string
	done   chan struct{}

	mu     sync.Mutex
	refuse string // of routes
	silent bool   // about routes
	// clusters are those that it has asked for.
	clusters []string
	got      []string
	last     *xdsv3.RouteConfiguration
	err      error
}

func (st *stand) client(id string) *stock {
	st.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(st.cc).StreamAggregatedResources(ctx)
	if err != nil {
		st.t.Fatal(err)
	}
	c := &stock{st: st, s: s, cancel: cancel, id: id, done: make(chan struct{})}
	go c.run()
	st.t.Cleanup(c.close)
	return c
}

func (c *stock) close() {
	c.cancel()
	<-c.done
}

func (c *stock) ask(k kind, version string, names ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k == clusters {
		c.clusters = names
	}
	c.s.Send(&discoveryv3.DiscoveryRequest{Node: &corev3.Node{Id: c.id}, TypeUrl: typeURLs[k], VersionInfo: version, ResourceNames: names})
}

func (c *stock) run() {
	defer close(c.done)
	for {
		m, err := c.s.Recv()
		c.mu.Lock()
		if err != nil {
			c.err = err
			c.mu.Unlock()
			return
		}
		k := kind(0)
		for typeURLs[k] != m.TypeUrl {
			k++
		}
		c.got = append(c.got, fmt.Sprintf("%c%d", "lrce"[k], len(m.Resources)))
		if k == routes && len(m.Resources) == 1 {
			c.last = new(xdsv3.RouteConfiguration)
			c.err = proto.Unmarshal(m.Resources[0].Value, c.last)
		}
		names := []string{"web"}
		if k == clusters {
			names = c.clusters
		}
		r := &discoveryv3.DiscoveryRequest{TypeUrl: m.TypeUrl, VersionInfo: m.VersionInfo, ResponseNonce: m.Nonce, ResourceNames: names}
		if k == routes && c.refuse != "" {
			r.ErrorDetail = &rpcstatus.Status{Code: 3, Message: c.refuse}
		}
		if k != routes || !c.silent {
			c.s.Send(r)
		}
		c.mu.Unlock()
	}
}

func (c *stock) gets() string {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	s := strings.Join(c.got, " ")
	c.got = nil
	return s
}

// uses are the clusters that the last routes name.
func (c *stock) uses() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return newRoutes("web", 0, c.last).uses
}

// table are the last routes.
func (c *stock) table(t *testing.T) table {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	return read(t, c.last)
}

func (c *stock) ended() error {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *stock) set(refuse string, silent bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuse, c.silent = refuse, silent
}

func wantSaid(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// inBubble runs a test on virtual time, in a year in which the tests' generations are not
// from the future.
func inBubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.UnixMilli(baseGen)))
		f(t)
	})
}

func TestServiceFollows(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStand(t)
		c := st.client("u 1")
		c.ask(listeners, "", "web")
		if err := c.ended(); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), `node: id: "u 1"`) {
			t.Errorf("a bad node id: %v", err)
		}
		c = st.client("u/1")
		c.ask(listeners, "", "web")
		time.Sleep(time.Second)
		wantSaid(t, "heard", st.f.hear(), "xds-clerk u_1 joins web")
		wantSaid(t, "before there is an assignment", c.gets(), "")
		st.f.set(dealt(t, baseGen, 3, 9), nil)
		wantSaid(t, "sent", c.gets(), "l1")
		wantSaid(t, "a client that has not asked for routes", st.f.hear(), "")
		c.ask(routes, "", "web")
		wantSaid(t, "heard of one that has asked and has none yet", st.f.hear(), "")
		time.Sleep(time.Second)
		wantSaid(t, "sent", c.gets(), "r1")
		wantSaid(t, "heard", st.f.hear(), "xds-clerk u_1 holds 0")
		// A generation with the same routes is held without being sent.
		st.f.set(dealt(t, baseGen+1, 3, 9), nil)
		wantSaid(t, "heard", st.f.hear(), "xds-clerk u_1 holds 1")
		wantSaid(t, "sent", c.gets(), "")
		// One that does not answer holds the old one.
		c.set("", true)
		st.f.set(dealt(t, baseGen+2, 3, 10), nil)
		time.Sleep(time.Second)
		wantSaid(t, "sent", c.gets(), "r1")
		wantSaid(t, "heard", st.f.hear(), "")
		st.f.set(dealt(t, baseGen+3, 3, 11), nil)
		time.Sleep(answerWithin)
		if err := c.ended(); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("a silent client's stream: %v", err)
		}
		wantSaid(t, "heard", st.f.hear(), "xds-clerk u_1 leaves")
		// It comes back with what it has.
		c = st.client("u/1")
		c.ask(routes, fmt.Sprint(baseGen), "web")
		wantSaid(t, "heard", st.f.hear(), "xds-clerk u_1 joins web; xds-clerk u_1 holds 0")
		c.ask(clusters, "", "web/any", "web/own:web-0.a0", "web/own:web-1.a1", "web/own:web-2.a2")
		time.Sleep(time.Second)
		wantSaid(t, "heard", st.f.hear(), "xds-clerk u_1 holds 3")
	})
}

// Clients hear of clusters before calls go there: grpc-go fails calls that a route sends to a
// cluster that it has only just heard of.
func TestServiceAnnouncesClusters(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStand(t)
		st.f.set(dealt(t, baseGen, 2, 8), nil)
		c := st.client("c")
		ask := func(names ...string) {
			all := []string{"web/any"}
			for _, n := range names {
				all = append(all, "web/own:"+n)
			}
			c.ask(clusters, "", all...)
		}
		c.ask(routes, "", "web")
		ask("web-0.a0", "web-1.a1")
		time.Sleep(time.Minute)
		wantSaid(t, "sent", c.gets(), "c3 r1")
		st.f.hear()
		// One that asks for the new cluster is sent to it as soon as it has it.
		st.f.set(dealt(t, baseGen+1, 3, 9), nil)
		time.Sleep(10 * time.Millisecond)
		wantSaid(t, "sent of a new task", c.gets(), "r1")
		if uses := c.uses(); len(uses) != 4 || uses[2] != "web/own:web-1.a1" || uses[3] != "web/own:web-2.a2" {
			t.Errorf("the new task's cluster is not announced: %q", uses)
		}
		time.Sleep(2 * time.Second)
		wantSaid(t, "sent before the client has asked for the cluster", c.gets(), "")
		wantSaid(t, "heard", st.f.hear(), "")
		ask("web-0.a0", "web-1.a1", "web-2.a2")
		time.Sleep(replyAfter)
		wantSaid(t, "sent when it has", c.gets(), "c4 r1")
		wantSaid(t, "heard", st.f.hear(), "xds-clerk c holds 1")
		// One that never asks is sent there after a while; of several that come one after the
		// other only the last count.
		time.Sleep(changeGap)
		for i := range 3 {
			st.f.set(dealt(t, baseGen+2+assignment.Generation(i), 4+i, 30), nil)
			time.Sleep(changeGap)
		}
		wantSaid(t, "sent of three new tasks", c.gets(), "r1 r1 r1")
		time.Sleep(announcedFor - changeGap - 10*time.Millisecond)
		wantSaid(t, "sent before the end of it", c.gets(), "")
		time.Sleep(20 * time.Millisecond)
		wantSaid(t, "sent at the end of it", c.gets(), "r1")
		wantSaid(t, "heard", st.f.hear(), "xds-clerk c holds 4")
	})
}

// A client that comes with the routes of an earlier stream is sent to no cluster of which it
// has not heard.
func TestServiceAnnouncesClustersToThoseThatReturn(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStand(t)
		st.f.set(dealt(t, baseGen+1, 3, 9), nil)
		had := []string{"web/any", "web/own:web-0.a0", "web/own:web-1.a1"}
		c := st.client("c")
		c.ask(routes, fmt.Sprint(baseGen), "web")
		time.Sleep(time.Second)
		wantSaid(t, "sent before it has asked for clusters", c.gets(), "")
		c.ask(clusters, fmt.Sprint(baseGen), had...)
		time.Sleep(replyAfter)
		wantSaid(t, "sent when it has", c.gets(), "c3 r1")
		tab := c.table(t)
		for i, want := range []string{"web/own:web-0.a0", "web/own:web-1.a1", "web/any"} {
			if got := tab.lookup(assignment.Equal(9)[i].String()); len(got) != 1 || got[0] != want {
				t.Errorf("slice %d leads to %q, want %s", i, got, want)
			}
		}
		if uses := c.uses(); len(uses) != 4 || uses[3] != "web/own:web-2.a2" {
			t.Errorf("the new task's cluster is not announced: %q", uses)
		}
		c.ask(clusters, fmt.Sprint(baseGen), append(had, "web/own:web-2.a2")...)
		time.Sleep(changeGap)
		wantSaid(t, "sent when it asks for the new one", c.gets(), "c4 r1")
		if got := c.table(t).lookup(assignment.Equal(9)[2].String()); len(got) != 1 || got[0] != "web/own:web-2.a2" {
			t.Errorf("the new task's slice leads to %q", got)
		}
		// One that has all, one that has none of the job's, one that never asks.
		for _, x := range []struct {
			what  string
			names []string
			after time.Duration
			want  string
		}{
			{"all", append(had, "web/own:web-2.a2"), replyAfter, "c4 r1"},
			{"one that has gone", []string{"web/own:gone.1"}, replyAfter, "c1 r1"},
			{"asks for none", nil, announcedFor, "r1"},
		} {
			c := st.client("d")
			c.ask(routes, fmt.Sprint(baseGen), "web")
			if x.names != nil {
				c.ask(clusters, fmt.Sprint(baseGen), x.names...)
			}
			time.Sleep(x.after)
			wantSaid(t, x.what, c.gets(), x.want)
			if got := c.table(t).lookup(assignment.Equal(9)[2].String()); len(got) != 1 || got[0] != "web/own:web-2.a2" {
				t.Errorf("%s: the new task's slice leads to %q", x.what, got)
			}
		}
	})
}

// Routes that do without some clusters lead to the other owners, and to any task if none is left.
func TestDetour(t *testing.T) {
	owners := [][]uint32{{0}, {1, 2}, {2}, {1}}
	a := makeAssignment(t, baseGen, makeTasks(3), assignment.Equal(4), func(i int) []uint32 { return owners[i] })
	c, _ := routesOf(a, byExpression, usual.Config)
	to := newRoutes("web", baseGen, c)
	for _, x := range []struct {
		missing []string
		want    [4]string
	}{
		{[]string{"web/own:web-2.a2"}, [4]string{"[web/own:web-0.a0]", "[web/own:web-1.a1]", "[web/any]", "[web/own:web-1.a1]"}},
		{[]string{"web/own:web-1.a1", "web/own:web-2.a2"}, [4]string{"[web/own:web-0.a0]", "[web/any]", "[web/any]", "[web/any]"}},
		{[]string{"web/any", "web/own:web-2.a2"}, [4]string{"[web/own:web-0.a0]", "[web/own:web-1.a1]", "[web/own:web-0.a0 web/own:web-1.a1]", "[web/own:web-1.a1]"}},
	} {
		d := detour(to, x.missing)
		if missing := d.lacks(&resource{uses: to.uses}); len(missing) > 0 || d.gen != to.gen {
			t.Errorf("without %q: it uses %q", x.missing, d.uses)
		}
		for _, name := range x.missing {
			if slices.Contains(d.uses, name) {
				t.Errorf("without %q: it uses %s", x.missing, name)
			}
		}
		got := new(routev3.RouteConfiguration)
		if err := d.body.UnmarshalTo(got); err != nil {
			t.Fatal(err)
		}
		tab := read(t, got)
		for i, k := range assignment.Equal(4) {
			if got := fmt.Sprint(tab.lookup(k.String())); got != x.want[i] {
				t.Errorf("without %q: slice %d leads to %s, want %s", x.missing, i, got, x.want[i])
			}
		}
	}
	if d := detour(to, to.uses); d != nil {
		t.Errorf("without any: %q", d.uses)
	}
}

func TestServiceCountsRefusals(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStand(t)
		st.f.set(dealt(t, baseGen, 3, 9), nil)
		c, d := st.client("c"), st.client("d")
		c.set("no such thing", false)
		for _, x := range []*stock{c, d} {
			x.ask(listeners, "", "web")
			x.ask(routes, "", "web")
		}
		time.Sleep(time.Hour)
		wantSaid(t, "sent to one that refuses", c.gets(), "l1 r1")
		if heard := st.f.hear(); !strings.Contains(heard, "xds-clerk c refuses") || !strings.Contains(heard, "xds-clerk d holds 0") {
			t.Errorf("heard %q", heard)
		}
		want := Counts{Counts: answers.Counts{Clients: 2, Refusing: 1, Acks: 3, Nacks: 1, LastNack: "no such thing", LastNackAge: time.Hour}}
		got := st.s.Counts(time.Now(), "web")
		got.LastNackAge = got.LastNackAge.Round(time.Second)
		if got != want {
			t.Errorf("counts are %+v, want %+v", got, want)
		}
		if !strings.Contains(st.log.String(), "no such thing") {
			t.Errorf("it is not logged: %s", st.log)
		}
		c.set("", false)
		st.f.set(dealt(t, baseGen+1, 3, 10), nil)
		time.Sleep(time.Second)
		if heard := st.f.hear(); !strings.Contains(heard, "xds-clerk c holds 1") {
			t.Errorf("heard %q", heard)
		}
		if got := st.s.Counts(time.Now(), "web"); got.Refusing != 0 || got.Nacks != 1 {
			t.Errorf("counts are %+v", got)
		}
		c.close()
		d.close()
		synctest.Wait()
		st.s.Forget("web")
		if got := st.s.Counts(time.Now(), "web"); got != (Counts{}) {
			t.Errorf("counts are %+v", got)
		}
	})
}

func TestServiceRefusesJobs(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStand(t)
		st.f.set(dealt(t, baseGen, 2, 9), nil)
		old := st.client("old")
		old.ask(listeners, "", "web")
		time.Sleep(time.Second)
		wantSaid(t, "sent", old.gets(), "l1")
		st.f.set(dealt(t, baseGen+1, 2, MaxSlices+2), nil)
		c := st.client("new")
		c.ask(listeners, "", "web")
		time.Sleep(time.Minute)
		wantSaid(t, "a client that comes is told that there is no listener", c.gets(), "l0")
		wantSaid(t, "one that was there is told nothing", old.gets(), "")
		if got := st.s.Counts(time.Now(), "web").Refused; !strings.Contains(got, "5002 slices") || !strings.Contains(st.log.String(), got) {
			t.Errorf("refused for %q, and logged is %s", got, st.log)
		}
		st.f.set(dealt(t, baseGen+2, 2, 10), nil)
		time.Sleep(time.Second)
		wantSaid(t, "sent when it is served again", c.gets(), "l1")
	})
}

func TestServiceUnknownJobs(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStand(t)
		st.f.set(nil, status.Error(codes.NotFound, "no such job"))
		c := st.client("c")
		c.ask(listeners, "", "web", "nobody", "My.Service:8080")
		time.Sleep(time.Second)
		wantSaid(t, "sent", c.gets(), "l0")
		st.f.set(dealt(t, baseGen, 2, 9), nil)
		time.Sleep(2 * askAgain)
		wantSaid(t, "sent when it has come to be", c.gets(), "l1")
		st.f.set(nil, status.Error(codes.NotFound, "no such job"))
		time.Sleep(2 * time.Second)
		wantSaid(t, "sent when it has gone", c.gets(), "l0")
		st.f.set(nil, status.Error(codes.PermissionDenied, "not you"))
		time.Sleep(2 * askAgain)
		if err := c.ended(); status.Code(err) != codes.PermissionDenied {
			t.Errorf("a client that may not: %v", err)
		}
	})
}

func TestServiceBounds(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStand(t)
		st.f.set(dealt(t, baseGen, 2, 9), nil)
		many := make([]string, maxJobs+1)
		for i := range many {
			many[i] = fmt.Sprintf("job-%d", i)
		}
		for _, x := range []struct {
			r    *discoveryv3.DiscoveryRequest
			want codes.Code
			says string
		}{
			{&discoveryv3.DiscoveryRequest{}, codes.InvalidArgument, "node: id"},
			{&discoveryv3.DiscoveryRequest{Node: &corev3.Node{Id: strings.Repeat("x", 1<<20)}}, codes.InvalidArgument, "1048576 bytes"},
			{&discoveryv3.DiscoveryRequest{Node: &corev3.Node{Id: "x"}, TypeUrl: "y"}, codes.InvalidArgument, `type_url: "y"`},
			{&discoveryv3.DiscoveryRequest{Node: &corev3.Node{Id: "x"}, TypeUrl: typeURLs[0], ResourceNames: make([]string, maxNames+1)}, codes.InvalidArgument, "4097 names"},
			{&discoveryv3.DiscoveryRequest{Node: &corev3.Node{Id: "x"}, TypeUrl: typeURLs[0], ResourceNames: []string{strings.Repeat("x", maxName+1)}}, codes.InvalidArgument, "513 bytes"},
			{&discoveryv3.DiscoveryRequest{Node: &corev3.Node{Id: "x"}, TypeUrl: typeURLs[0], ResourceNames: many}, codes.ResourceExhausted, "33 jobs"},
		} {
			c := st.client("x")
			c.s.Send(x.r)
			if err := c.ended(); status.Code(err) != x.want || !strings.Contains(err.Error(), x.says) {
				t.Errorf("%.60s: %v, want %s and %q", x.r, err, x.want, x.says)
			}
		}
		c := st.client("x")
		time.Sleep(2 * firstWithin)
		if err := c.ended(); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("a client that says nothing: %v", err)
		}
		// A client whose channel is closed holds up nothing any more.
		c = st.client("x")
		c.ask(routes, "", "web")
		time.Sleep(time.Second)
		c.s.Send(&discoveryv3.DiscoveryRequest{TypeUrl: typeURLs[routes]})
		if heard := st.f.hear(); !strings.HasSuffix(heard, "xds-clerk x leaves") {
			t.Errorf("heard %q", heard)
		}
	})
}
