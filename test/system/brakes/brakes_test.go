// Package brakes has what operators order outlive the assigner that took it.
package brakes

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/waittest"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/test/kit/bed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const limit = waittest.Patience

func admin(t *testing.T, addr string) slicerv1.AdminServiceClient {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return slicerv1.NewAdminServiceClient(conn)
}

// eventually polls a condition that has no event of its own.
func eventually(ctx context.Context, t *testing.T, what string, ok func() bool) {
	t.Helper()
	for !ok() {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("not within %s: %s", limit, what)
		}
	}
}

// TestTakeover gives orders to the assigner that is not preferred, then stops the
// one that is: the other goes on under them, and tells who gave them.
func TestTakeover(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	p := bed.Start(t, bed.Config{Assigners: 2})
	cfg := assignment.JobConfig{Name: "web", Balance: assignment.BalanceConfig{Interval: 200 * time.Millisecond}}
	if err := p.PutJob(ctx, cfg); err != nil {
		t.Fatal(err)
	}
	tasks := map[string]*slicelet.Slicelet{}
	for _, name := range []string{"a", "b", "c"} {
		s, err := slicelet.New(slicelet.Config{Job: "web", Task: name, Address: name + ":1", Distributors: p.Addrs()})
		if err != nil {
			t.Fatal(err)
		}
		bed.CloseAtEnd(t, s.Close)
		tasks[name] = s
	}
	for name, s := range tasks {
		eventually(ctx, t, name+" owns something", func() bool { return len(s.Slices()) > 0 })
	}
	front := admin(t, p.Distributors[0].Addr)
	inspect := func() *slicerv1.InspectJobResponse {
		resp, err := front.InspectJob(ctx, &slicerv1.InspectJobRequest{Job: "web"})
		if err != nil {
			return nil // no assigner just now
		}
		return resp
	}
	info := inspect()
	preferred, other := 0, 1
	if info.GetAssignerId() == "assigner-1" {
		preferred, other = 1, 0
	}
	key := assignment.KeyOf("hot")
	any := admin(t, p.Assigners[other].Addr)
	give := func(m *slicerv1.GiveOrderRequest) *slicerv1.GiveOrderResponse {
		t.Helper()
		m.Job, m.Who, m.Why = "web", "ada", "because"
		resp, err := any.GiveOrder(ctx, m)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Pending != "" {
			t.Fatalf("order %d is pending: %s", resp.Order, resp.Pending)
		}
		return resp
	}
	give(&slicerv1.GiveOrderRequest{Order: &slicerv1.GiveOrderRequest_Pin{Pin: &slicerv1.PinOrder{Start: uint64(key), End: uint64(key) + 1, Task: "b"}}})
	give(&slicerv1.GiveOrderRequest{Order: &slicerv1.GiveOrderRequest_Exclude{Exclude: &slicerv1.ExcludeOrder{Task: "c"}}})
	last := give(&slicerv1.GiveOrderRequest{Order: &slicerv1.GiveOrderRequest_Freeze{Freeze: &slicerv1.FreezeOrder{}}})
	eventually(ctx, t, "c knows that it owns nothing", func() bool { return len(tasks["c"].Slices()) == 0 })
	frozen := inspect().GetGeneration()

	if err := p.Assigners[preferred].Stop(); err != nil {
		t.Fatal(err)
	}
	eventually(ctx, t, "the other has taken over", func() bool {
		x := inspect()
		return x.GetPreferred() && x.GetHolding() == "frozen by ada: because"
	})
	info = inspect()
	if c := info.GetOverrides(); info.Generation != frozen || c.GetVersion() != last.Order || len(c.GetPins()) != 1 || len(c.GetExcluded()) != 1 {
		t.Errorf("generation %d after %d, under %v", info.Generation, frozen, c)
	}
	// It counts on where the other has ended.
	resp, err := front.GiveOrder(ctx, &slicerv1.GiveOrderRequest{Job: "web", Who: "bob", Order: &slicerv1.GiveOrderRequest_Unfreeze{Unfreeze: &slicerv1.UnfreezeOrder{}}})
	if err != nil || resp.Order != last.Order+1 {
		t.Fatalf("%v, %v", resp, err)
	}
	h, err := front.GetHistory(ctx, &slicerv1.GetHistoryRequest{Job: "web"})
	if err != nil {
		t.Fatal(err)
	}
	var actions []string
	for _, e := range h.Entries {
		if e.Action != "" {
			actions = append(actions, e.Stamp.Who+" "+e.Action+" "+e.Stamp.Why)
			if e.Stamp.Peer == "" || e.Stamp.UnixMs == 0 {
				t.Errorf("%s: whence or when is not known: %v", e.Action, e.Stamp)
			}
		}
	}
	one := assignment.Slice{Start: key, End: key + 1}
	want := []string{" create job: balance.interval: 5s -> 200ms ", "ada pin " + one.String() + " to b because", "ada exclude c because", "ada freeze because", "bob unfreeze "}
	if len(actions) != len(want) {
		t.Fatalf("%q, want %q", actions, want)
	}
	for i := range want {
		if actions[i] != want[i] {
			t.Errorf("%q, want %q", actions[i], want[i])
		}
	}
	// What is wrong is refused by any assigner that is asked.
	for name, m := range map[string]*slicerv1.GiveOrderRequest{
		"nobody":    {Job: "web", Order: &slicerv1.GiveOrderRequest_Unfreeze{Unfreeze: &slicerv1.UnfreezeOrder{}}},
		"nothing":   {Job: "web", Who: "ada"},
		"other key": {Job: "web", Who: "ada", Order: &slicerv1.GiveOrderRequest_Pin{Pin: &slicerv1.PinOrder{Start: 5, End: 6, Key: []byte("k"), Task: "a"}}},
		"nowhere":   {Job: "web", Who: "ada", Order: &slicerv1.GiveOrderRequest_Pin{Pin: &slicerv1.PinOrder{Start: 5, End: 5, Task: "a"}}},
		"too long":  {Job: "web", Who: "ada", Order: &slicerv1.GiveOrderRequest_Freeze{Freeze: &slicerv1.FreezeOrder{ForMs: 1 << 62}}},
		"never":     {Job: "web", Who: "ada", Order: &slicerv1.GiveOrderRequest_Rollback{Rollback: &slicerv1.RollbackOrder{Generation: -1}}},
		"no fields": {Job: "web", Who: "ada", Order: &slicerv1.GiveOrderRequest_Exclude{}},
	} {
		if _, err := front.GiveOrder(ctx, m); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
}
