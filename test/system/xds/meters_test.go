package xds

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/waittest"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/clerkgrpc"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"github.com/slicer-project/slicer/test/examples/greeter/hello"
	"github.com/slicer-project/slicer/test/kit/process"
)

// counted is what a server's metrics say of the requests that it has had.
type counted struct{ owned, misrouted, refusals float64 }

func (s *server) counted(t testing.TB) (n counted) {
	t.Helper()
	all, err := s.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range all {
		for _, m := range family.Metric {
			kind := ""
			for _, l := range m.Label {
				if l.GetName() == "kind" {
					kind = l.GetValue()
				}
			}
			switch v := m.GetCounter().GetValue(); {
			case family.GetName() == "slicer_slicelet_requests_total" && kind == "owned":
				n.owned += v
			case family.GetName() == "slicer_slicelet_requests_total" && kind == "misrouted":
				n.misrouted += v
			case family.GetName() == "slicer_sliceletgrpc_misrouted_total":
				n.refusals += v
			}
		}
	}
	return n
}

// counted are those of all servers, by task, as soon as all calls are in them.
func (f *fleet) counted() (by map[string]counted) {
	f.t.Helper()
	process.Eventually(f.t, waittest.Patience, "all calls are counted", func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		by = make(map[string]counted)
		for task, s := range f.servers {
			n := s.counted(f.t)
			if calls := float64(s.calls.Load()); n.owned+n.misrouted != calls {
				return fmt.Errorf("%s has counted %+v of %v", task, n, calls)
			}
			by[task] = n
		}
		return nil
	})
	return by
}

// Of the same calls, those of an xDS client and those of a clerk are metered alike, by task,
// slice and key; and of calls for keys that a task does not own as many count as misrouted.
func TestMetersAgree(t *testing.T) {
	t.Parallel()
	still := quick
	still.HeartbeatTimeout = time.Minute // nothing dies here, however busy the machine is
	f := newFleet(t, still, 3)
	still.Name = job
	// From now on nothing moves.
	still.Balance = assignment.BalanceConfig{Interval: 200 * time.Millisecond, MoveBudget: -1, MergeBudget: -1, BandStart: 100, BandStop: 100, Smoothing: 1}
	still.MaxReplicas = 1
	if err := f.plane.PutJob(t.Context(), still); err != nil {
		t.Fatal(err)
	}
	stock := f.dial("go-0")
	f.agree(map[string]caller{"go": &inGo{t: t, cc: stock}}, 50)
	time.Sleep(lagging) // what it has been sent is the newest
	linked, err := grpc.NewClient("slicer:///"+job, append(clerkgrpc.DialOptions(clerkgrpc.Config{Clerk: clerk.Config{Distributors: f.plane.Addrs()}}),
		grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	defer linked.Close()
	byClerk := func(ctx context.Context, key string) error {
		_, err := hello.NewGreeterClient(linked).SayHello(clerk.WithKey(ctx, key), wrapperspb.String(key))
		return err
	}
	byStock := func(ctx context.Context, key string) error {
		_, err := call(ctx, stock, key)
		return err
	}
	if err := byClerk(t.Context(), "user-0"); err != nil {
		t.Fatal(err)
	}
	// A third of the calls is for the first key, a sixth for the second, and so on.
	rnd := rand.New(rand.NewPCG(1, 1))
	var keys []string
	for n, hot := 600, 0; n > 30; n, hot = n/2, hot+1 {
		for range n {
			keys = append(keys, fmt.Sprintf("user-%d", hot))
		}
	}
	for i := range 300 {
		keys = append(keys, fmt.Sprintf("user-%d", 100+i))
	}
	rnd.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	metered := func(what string, each func(ctx context.Context, key string) error) (by map[string]counted, hot []uint64) {
		before := f.counted()
		for _, key := range keys {
			if err := each(t.Context(), key); err != nil {
				t.Fatalf("%s: %s: %v", what, key, err)
			}
		}
		by = f.counted()
		for task, n := range by {
			was := before[task]
			by[task] = counted{n.owned - was.owned, n.misrouted - was.misrouted, n.refusals - was.refusals}
		}
		process.Eventually(t, waittest.Patience, "the hot keys are known", func() error {
			m, err := f.slices()
			if err != nil || len(m.HotKey) < 3 {
				return fmt.Errorf("%v: %v", m.GetHotKey(), err)
			}
			hot = m.HotKey[:3]
			if hot[0] != uint64(assignment.KeyOf("user-0")) {
				return fmt.Errorf("the hottest key is %x", hot[0])
			}
			return nil
		})
		return by, hot
	}
	a := f.newest()
	linkedBy, linkedHot := metered("clerk", byClerk)
	stockBy, stockHot := metered("xDS", byStock)
	for b, i := f.newest(), 0; i < 400; i++ {
		k := assignment.KeyOf(fmt.Sprintf("user-%d", i))
		if was, is := a.Lookup(k), b.Lookup(k); was.Len() != 1 || is.Len() != 1 || was.At(0).Name != is.At(0).Name {
			t.Fatalf("key %s has moved", k)
		}
	}
	for task, want := range linkedBy {
		if got := stockBy[task]; got != want || want.misrouted != 0 || want.owned == 0 {
			t.Errorf("%s has counted %+v of xDS, %+v of a clerk", task, got, want)
		}
	}
	if !slices.Equal(stockHot[:1], linkedHot[:1]) {
		t.Errorf("the hottest keys are %x of xDS, %x of a clerk", stockHot, linkedHot)
	}
	// Calls that come to another task than the owner, as by routes of before: the xDS client's
	// by the slice key of another key, and those of a clerk straight to the wrong task.
	wrong := 0
	before := f.counted()
	for i := range 100 {
		key, other := fmt.Sprintf("user-%d", i), fmt.Sprintf("user-%d", i+1)
		to := a.Lookup(assignment.KeyOf(other)).At(0)
		if to.Name == a.Lookup(assignment.KeyOf(key)).At(0).Name {
			continue
		}
		wrong++
		if err := misroute(t.Context(), stock, key, other); err != nil {
			t.Fatal(err)
		}
		cc, err := grpc.NewClient(to.Address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		err = direct(t.Context(), cc, key, a)
		cc.Close()
		if err != nil {
			t.Fatal(err)
		}
	}
	var misrouted, refusals float64
	for task, n := range f.counted() {
		misrouted += n.misrouted - before[task].misrouted
		refusals += n.refusals - before[task].refusals
	}
	if wrong == 0 || misrouted != float64(2*wrong) || refusals != float64(2*wrong) {
		t.Errorf("%v and %v calls count as misrouted, of two times %d", misrouted, refusals, wrong)
	}
}

// misroute calls with one key by the route of another.
func misroute(ctx context.Context, cc *grpc.ClientConn, key, other string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "slicer-key", key, "slice-key", assignment.KeyOf(other).String())
	_, err := hello.NewGreeterClient(cc).SayHello(ctx, wrapperspb.String(key))
	return err
}

// direct calls as a clerk does that goes by an assignment.
func direct(ctx context.Context, cc *grpc.ClientConn, key string, a *assignment.Assignment) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, clerkgrpc.KeyHeader, key, clerkgrpc.GenerationHeader, fmt.Sprint(int64(a.Generation())))
	_, err := hello.NewGreeterClient(cc).SayHello(ctx, wrapperspb.String(key))
	return err
}

// slices are the loads that the assigner knows.
func (f *fleet) slices() (*slicerv1.InspectSlicesResponse, error) {
	cc, err := grpc.NewClient(f.plane.Distributors[0].Addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer cc.Close()
	ctx, cancel := context.WithTimeout(f.t.Context(), waittest.Patience)
	defer cancel()
	return slicerv1.NewAdminServiceClient(cc).InspectSlices(ctx, &slicerv1.InspectSlicesRequest{Job: job})
}
