package sliceletgrpc

import (
	"context"
	"testing"

	"google.golang.org/grpc/metadata"

	"github.com/slicer-project/slicer/loadbalance/overload"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// TestLabels: the handler finds the labels of an RPC in its context.
func TestLabels(t *testing.T) {
	run(t, Config{}, func(b *bed) {
		b.plane.Say(&slicerv1.Status{TakesReports: true, Mode: slicerv1.Mode_MODE_AFFINITY,
			Overload: &slicerv1.OverloadConfig{DefaultCriticality: slicerv1.Criticality_CRITICALITY_SHEDDABLE_PLUS}})
		b.assign(5, 0, 1)
		for what, call := range map[string]func(ctx context.Context) error{
			"unary":  func(ctx context.Context) error { return b.ask(ctx, "x") },
			"stream": func(ctx context.Context) error { return b.watch(ctx, "x") },
		} {
			saw := func(pairs ...string) (overload.Labels, int, bool) {
				t.Helper()
				if err := call(metadata.AppendToOutgoingContext(b.with(KeyHeader, keyOf(0)), pairs...)); err != nil {
					t.Fatal(what, err)
				}
				cohort, ok := b.service.labels.Cohort()
				return b.service.labels, cohort, ok
			}
			if l, _, ok := saw(); l.Criticality != overload.SheddablePlus || !ok || l.Customer != "" {
				t.Errorf("%s that says nothing: %+v", what, l)
			}
			if l, cohort, _ := saw(CriticalityHeader, "critical_plus", CohortHeader, "0", CustomerHeader, "mail"); l.Criticality != overload.CriticalPlus || cohort != 0 || l.Customer != "" {
				t.Errorf("%s: %+v, and the customer was not to be believed", what, l)
			}
			if l, cohort, _ := saw(CriticalityHeader, "critical_plus", CriticalityHeader, "sheddable", CohortHeader, "1", CohortHeader, "2"); l.Criticality != overload.Sheddable || cohort != 2 {
				t.Errorf("%s that says two things: %+v", what, l)
			}
			if l, _, ok := saw(CriticalityHeader, "high", CohortHeader, "many"); l.Criticality != overload.SheddablePlus || !ok {
				t.Errorf("%s that says nonsense: %+v", what, l)
			}
		}
	})
}
