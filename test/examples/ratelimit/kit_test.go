package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/slicelet/sliceletgrpc"
	"github.com/slicer-project/slicer/test/examples/ratelimit/quota"
	"github.com/slicer-project/slicer/test/examples/ratelimit/wire"
	"github.com/slicer-project/slicer/test/slicertest"
)

// warm is how long it takes until what a start leaves behind has gone: servers that have just
// come to own a limit lend little until they know that no frontend has a part.
const warm = 6 * time.Second

// unit is servers and frontends in one process and without Slicer, in virtual time.
type unit struct {
	*testing.T
	env       *slicertest.Env
	frontends []*Client
}

func newUnit(t *testing.T, frontends int) *unit {
	u := &unit{T: t, env: slicertest.New(t)}
	for i := range frontends {
		c, err := NewClient(ClientConfig{
			Clerk: u.env.Clerk(clerk.Config{Job: Job, ClientID: fmt.Sprint("frontend-", i)}), DialOptions: u.env.DialOptions(), Frontends: frontends,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
		u.frontends = append(u.frontends, c)
	}
	return u
}

// unitServer is one server as its program makes it.
type unitServer struct {
	*Server
	slicelet *slicelet.Slicelet
	lis      net.Listener
	server   *grpc.Server
}

func (u *unit) server(task string) *unitServer {
	s := &unitServer{lis: u.env.Listen(task), slicelet: u.env.Slicelet(slicelet.Config{Job: Job, Task: task})}
	var err error
	if s.Server, err = NewServer(ServerConfig{Slicelet: s.slicelet, DialOptions: u.env.DialOptions()}); err != nil {
		u.Fatal(err)
	}
	s.server = grpc.NewServer(append(sliceletgrpc.ServerOptions(s.slicelet, sliceletgrpc.Config{}), grpc.WaitForHandlers(true))...)
	wire.RegisterLimiterServer(s.server, s.Server)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = s.server.Serve(s.lis) // until it is stopped
	}()
	u.Cleanup(func() {
		s.server.Stop()
		<-served
		s.Close()
	})
	return s
}

// ask asks all frontends for each of the keys so often a second altogether, for so long, and
// returns how many requests of each were let in.
func (u *unit) ask(d time.Duration, perSecond int, l quota.Limit, keys ...string) map[string]int {
	u.Helper()
	let := make(map[string]int)
	gap := time.Second / time.Duration(perSecond)
	for i := range int(d / gap) {
		for _, key := range keys {
			ok, err := u.frontends[i%len(u.frontends)].Allow(key, l, 1)
			if err != nil {
				u.Fatal(err)
			}
			if ok {
				let[key]++
			}
		}
		time.Sleep(gap)
	}
	return let
}

func within(t *testing.T, what string, n int, least, most float64) {
	t.Helper()
	if float64(n) < least || float64(n) > most {
		t.Errorf("%s: %d let in, want %g to %g", what, n, least, most)
	}
}

// A limit holds over all frontends, and where less is asked for all is let in.
func TestUnitLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUnit(t, 4)
		u.server("limits-0")
		u.server("limits-1")
		l := quota.Limit{Rate: 100, Burst: 10}
		u.ask(warm, 400, l, "ada", "bob")
		for key, n := range u.ask(10*time.Second, 400, l, "ada", "bob") {
			within(t, key, n, 980, 1020)
		}
		within(t, "eve", u.ask(10*time.Second, 50, l, "eve")["eve"], 480, 500)
	})
}

// A limit goes with its key, and with a server that drains.
func TestUnitMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUnit(t, 4)
		servers := map[string]*unitServer{"limits-0": u.server("limits-0"), "limits-1": u.server("limits-1")}
		u.env.Assign(Job, slicertest.Key("ada", "limits-0"))
		l := quota.Limit{Rate: 100, Burst: 10}
		u.ask(warm, 400, l, "ada")
		for _, task := range []string{"limits-1", "limits-0"} {
			u.env.Assign(Job, slicertest.Key("ada", task))
			if n := servers[task].Limits(); n != 1 {
				t.Errorf("%s has %d limits, want 1", task, n)
			}
			within(t, "moved to "+task, u.ask(10*time.Second, 400, l, "ada")["ada"], 970, 1020)
		}
		if err := servers["limits-0"].slicelet.Drain(t.Context()); err != nil {
			t.Error(err)
		}
		if there, here := servers["limits-0"].Limits(), servers["limits-1"].Limits(); there != 0 || here != 1 {
			t.Errorf("%d and %d limits after a drain, want 0 and 1", there, here)
		}
		// Nothing was asked for while it drained, so there is half a second's worth more.
		within(t, "drained", u.ask(10*time.Second, 400, l, "ada")["ada"], 970, 1060)
	})
}

// When the owner dies the frontends go on with what they have, and the next owner learns it.
func TestUnitCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUnit(t, 4)
		a := u.server("limits-0")
		u.server("limits-1")
		u.env.Assign(Job, slicertest.Key("ada", "limits-0"))
		l := quota.Limit{Rate: 100, Burst: 10}
		u.ask(warm, 400, l, "ada")
		a.server.Stop() // it is gone, and none but its clients knows it
		within(t, "dead", u.ask(5*time.Second, 400, l, "ada")["ada"], 480, 510)
		u.env.Expire(Job, "limits-0")
		// For LearnFor the next owner lends what it is told of alone: 964 on average, with a standard
		// deviation of 9.
		within(t, "replaced", u.ask(10*time.Second, 400, l, "ada")["ada"], 880, 1030)
	})
}

// Without any owner a frontend goes on with its part for Hold, and then as one of many.
func TestUnitNoOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUnit(t, 4)
		s := u.server("limits-0")
		u.frontends = u.frontends[:1] // the others are asked nothing
		l := quota.Limit{Rate: 100, Burst: 10}
		u.ask(warm, 400, l, "ada")
		s.server.Stop()
		within(t, "held", u.ask(10*time.Second, 400, l, "ada")["ada"], 980, 1010)
		u.ask(6*time.Second, 400, l, "ada")
		within(t, "alone", u.ask(10*time.Second, 400, l, "ada")["ada"], 240, 260)
	})
}

// A frontend that ends gives its part back at once.
func TestUnitClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUnit(t, 2)
		u.server("limits-0")
		l := quota.Limit{Rate: 100, Burst: 10}
		u.ask(warm, 400, l, "ada")
		gone := u.frontends[1]
		u.frontends = u.frontends[:1]
		if err := gone.Close(); err != nil {
			t.Error(err)
		}
		within(t, "alone", u.ask(time.Second, 400, l, "ada")["ada"], 70, 110)
	})
}

// What is not in use takes no memory, here or there.
func TestUnitForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUnit(t, 1)
		s := u.server("limits-0")
		l := quota.Limit{Rate: 10, Burst: 10}
		for i := range 1000 {
			if ok, err := u.frontends[0].Allow(fmt.Sprint(i), l, 1); !ok || err != nil {
				t.Fatal(ok, err)
			}
		}
		time.Sleep(time.Second)
		if n, m := u.frontends[0].Limits(), s.Limits(); n != 1000 || m != 1000 {
			t.Errorf("%d and %d limits in use, want 1000", n, m)
		}
		time.Sleep(15 * time.Second)
		if n, m := u.frontends[0].Limits(), s.Limits(); n != 0 || m != 0 {
			t.Errorf("%d and %d limits after a while, want none", n, m)
		}
	})
}

func TestNotAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUnit(t, 1)
		for _, c := range []struct {
			key   string
			limit quota.Limit
			n     int
			field string
		}{
			{string(make([]byte, assignment.MaxKeyLen+1)), quota.Limit{Rate: 1, Burst: 1}, 1, "key"},
			{"ada", quota.Limit{Rate: 0, Burst: 1}, 1, "rate"},
			{"ada", quota.Limit{Rate: 1}, 1, "burst"},
			{"ada", quota.Limit{Rate: 1, Burst: 1e10}, 1, "burst"},
			{"ada", quota.Limit{Rate: 1, Burst: 5}, 6, "n"},
			{"ada", quota.Limit{Rate: 1, Burst: 5}, 0, "n"},
		} {
			ok, err := u.frontends[0].Allow(c.key, c.limit, c.n)
			if field := (*assignment.FieldError)(nil); ok || !errors.As(err, &field) || field.Field != c.field {
				t.Errorf("%v, %d: %t, %v, want an error of %s", c.limit, c.n, ok, err, c.field)
			}
		}
		for _, cfg := range []ClientConfig{{}, {Frontends: -1}, {Hold: time.Millisecond}, {MaxLimits: -1}} {
			if _, err := NewClient(cfg); err == nil {
				t.Errorf("%+v is allowed", cfg)
			}
		}
		for _, cfg := range []ServerConfig{{}, {MaxLimits: -1}} {
			if _, err := NewServer(cfg); err == nil {
				t.Errorf("%+v is allowed", cfg)
			}
		}
	})
}

// A server believes nothing that no frontend or server says.
func TestServerRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUnit(t, 1)
		s := u.server("limits-0")
		good := func() *wire.Report { return &wire.Report{Key: "ada", Rate: 1, Burst: 1, Demand: 1} }
		for what, break_ := range map[string]func(*wire.Report){
			"key": func(r *wire.Report) { r.Key = string(make([]byte, assignment.MaxKeyLen+1)) }, "rate": func(r *wire.Report) { r.Rate = 0 },
			"burst": func(r *wire.Report) { r.Burst = -1 }, "demand": func(r *wire.Report) { r.Demand = -1 }, "lent": func(r *wire.Report) { r.Lent = 1e300 },
			"tokens": func(r *wire.Report) { r.Tokens = nan() },
		} {
			r := good()
			if break_(r); call(u.Context(), s, r) == nil {
				t.Errorf("a report with a bad %s is taken", what)
			}
		}
		if err := call(u.Context(), s, good()); err != nil {
			t.Error(err)
		}
		if _, err := s.Report(u.Context(), &wire.ReportRequest{Reports: make([]*wire.Report, batch+1)}); err == nil {
			t.Error("too many reports are taken")
		}
		if _, err := s.Move(u.Context(), &wire.MoveRequest{States: make([]*wire.State, batch+1)}); err == nil {
			t.Error("too many states are taken")
		}
		share := &wire.Share{Session: 1, Rate: 1, Demand: 1}
		for what, state := range map[string]*wire.State{
			"level": {Key: "ada", Rate: 1, Burst: 1, Level: nan()}, "two of a session": {Key: "ada", Rate: 1, Burst: 1, Shares: []*wire.Share{share, share}},
			"age": {Key: "ada", Rate: 1, Burst: 1, Shares: []*wire.Share{{Age: -1}}}, "rate": {Key: "ada", Burst: 1},
			"shares": {Key: "ada", Rate: 1, Burst: 1, Shares: make([]*wire.Share, maxShares+1)},
		} {
			if _, err := s.Move(u.Context(), &wire.MoveRequest{States: []*wire.State{state}}); err == nil {
				t.Errorf("a state with a bad %s is taken", what)
			}
		}
	})
}

func call(ctx context.Context, s *unitServer, r *wire.Report) error {
	_, err := s.Report(ctx, &wire.ReportRequest{Session: 1, Reports: []*wire.Report{r}})
	return err
}

func nan() float64 {
	zero := 0.
	return zero / zero
}

// unconnected is a client of a job whose servers do not answer.
func unconnected(tb testing.TB) *Client {
	k, err := clerk.New(clerk.Config{Job: Job, Static: slicertest.Assignment(Job, slicertest.Spread("limits-0"))})
	if err != nil {
		tb.Fatal(err)
	}
	refuse := grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return nil, errors.New("refused") })
	c, err := NewClient(ClientConfig{Clerk: k, DialOptions: []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials()), refuse}})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := errors.Join(c.Close(), k.Close()); err != nil {
			tb.Error(err)
		}
	})
	return c
}

// A decision allocates nothing.
func TestAllowDoesNotAllocate(t *testing.T) {
	c := unconnected(t)
	l := quota.Limit{Rate: 1000, Burst: 100}
	if n := testing.AllocsPerRun(1000, func() { _, _ = c.Allow("ada", l, 1) }); n > 0 {
		t.Errorf("%g allocations", n)
	}
}
