package sliceletgrpc

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/clerk"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"github.com/slicer-project/slicer/slicelet"
)

// TestQuota: a customer gets its limit, of unary RPCs and streams, and no criticality above
// what it may have; the others get all.
func TestQuota(t *testing.T) {
	runWith(t, Config{}, func(c *slicelet.Config) { c.Customer = slicelet.BelieveCustomer }, func(b *bed) {
		b.plane.Say(&slicerv1.Status{TakesReports: true, Mode: slicerv1.Mode_MODE_AFFINITY, Limited: true})
		b.assign(5, 0, 1)
		b.plane.Send(&slicerv1.WatchResponse{Message: &slicerv1.WatchResponse_Quotas{Quotas: &slicerv1.Quotas{
			Limits: &slicerv1.Limits{Customers: []*slicerv1.Limit{{Customer: "batch", Rate: 20, MaxCriticality: slicerv1.Criticality_CRITICALITY_SHEDDABLE}}},
		}}})
		synctest.Wait()
		for what, call := range map[string]func(ctx context.Context) error{
			"unary":  func(ctx context.Context) error { return b.ask(ctx, "x") },
			"stream": func(ctx context.Context) error { return b.watch(ctx, "x") },
		} {
			served := func(customer string) (n int) {
				for range 500 { // in 5 s
					time.Sleep(10 * time.Millisecond)
					err := call(metadata.AppendToOutgoingContext(b.with(KeyHeader, keyOf(0)), CriticalityHeader, "critical_plus", CustomerHeader, customer))
					if err == nil {
						n++
						continue
					}
					o, ok := clerk.OverloadedFromStatus(err)
					if status.Code(err) != codes.ResourceExhausted || !ok || o.Customer != customer || o.Elsewhere {
						t.Fatalf("%s: %v: %+v", what, err, o)
					}
				}
				return n
			}
			served("batch")
			// Of two tasks, this one may use half of the limit.
			if n := served("batch"); n < 45 || n > 55 {
				t.Errorf("%s: %d were served in 5 s of a limit of 20/s for two tasks", what, n)
			}
			if n := served("mail"); n != 500 {
				t.Errorf("%s: %d of 500 of a customer without a limit were served", what, n)
			}
			time.Sleep(time.Second)
			if err := call(metadata.AppendToOutgoingContext(b.with(KeyHeader, keyOf(0)), CriticalityHeader, "critical_plus", CustomerHeader, "batch")); err != nil || b.service.labels.Criticality.String() != "sheddable" {
				t.Errorf("%s: %v: what may be sheddable at most is %s", what, err, b.service.labels.Criticality)
			}
		}
		// The control plane says that there are no limits any more.
		b.plane.Say(&slicerv1.Status{TakesReports: true, Mode: slicerv1.Mode_MODE_AFFINITY})
		synctest.Wait()
		for range 100 {
			if err := b.ask(metadata.AppendToOutgoingContext(b.with(KeyHeader, keyOf(0)), CustomerHeader, "batch"), "x"); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestQuotaByInterceptor: what an interceptor says of the customer counts, and not what the
// connection seemed to say before.
func TestQuotaByInterceptor(t *testing.T) {
	type verified struct{}
	customer := func(ctx context.Context, claimed string) string {
		if name, ok := ctx.Value(verified{}).(string); ok {
			return name
		}
		return claimed
	}
	runWith(t, Config{}, func(c *slicelet.Config) { c.Customer = customer }, func(b *bed) {
		b.plane.Say(&slicerv1.Status{TakesReports: true, Mode: slicerv1.Mode_MODE_AFFINITY, Limited: true})
		b.assign(5, 0, 1)
		b.plane.Send(&slicerv1.WatchResponse{Message: &slicerv1.WatchResponse_Quotas{Quotas: &slicerv1.Quotas{
			Limits: &slicerv1.Limits{Others: &slicerv1.Limit{Rate: .02}},
		}}})
		synctest.Wait()
		g := &gate{slicelet: b.slicelet}
		now := time.Now()
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs(CustomerHeader, "claimed"))
		refused := 0
		for range 20 {
			c := &call{Context: ctx, gate: g}
			c.labels.Customer = "claimed"
			if c.refused = g.room(ctx, incoming(ctx), now, c); c.refused != nil {
				t.Fatal("the customer that is claimed was charged after all")
			}
			if g.recharge(context.WithValue(c, verified{}, "verified"), incoming(ctx), now, c); c.labels.Customer != "verified" {
				t.Fatalf("charged to %q", c.labels.Customer)
			}
			if c.refused != nil {
				refused++
			}
		}
		if refused < 15 {
			t.Errorf("%d of 20 were refused", refused)
		}
	})
}
