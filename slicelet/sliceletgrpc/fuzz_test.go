package sliceletgrpc

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/loadbalance/overload"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"github.com/slicer-project/slicer/slicelet"
)

// FuzzHeaders: whatever metadata says, an RPC is served or refused as one is that says what it
// may, what the handler hears of it is allowed, and the next RPC is served.
func FuzzHeaders(f *testing.F) {
	f.Add("critical_plus", "0", "mail", "2", "10000", "10000", "0", "k", "1", int64(time.Hour))
	f.Add("", "", "", "", "", "", "", "", "", int64(0))
	f.Add("CRITICAL", "-1", "a b", "-9223372036854775808", "65536", "1e9", "99999999999999999999", "%zz", "8000000000000000", int64(-1))
	f.Add("sheddable\x00", "128", "\xff", "2147483648", "-1", "NaN", "\n", "\x00", "7fffffffffffffff", int64(1))
	f.Fuzz(func(t *testing.T, criticality, cohort, customer, attempt, previous, standsFor, generation, key, sliceKey string, left int64) {
		runWith(t, Config{}, func(c *slicelet.Config) {
			c.Customer, c.Signals = slicelet.BelieveCustomer, []func() float64{func() float64 { return .9 }}
		}, func(b *bed) {
			b.plane.Say(&slicerv1.Status{TakesReports: true, Mode: slicerv1.Mode_MODE_AFFINITY, Overload: &slicerv1.OverloadConfig{Admission: slicerv1.Admission_ADMISSION_ON}})
			b.assign(5, 0, 1)
			g := &gate{slicelet: b.slicelet, cfg: Config{Header: KeyHeader, SliceKey: SliceKeyHeader}, bin: KeyHeader + "-bin", metrics: newMetrics()}
			g.load.source = b.slicelet.CPU
			g.load.due.Store(time.Now().Add(time.Hour).UnixNano())
			ask := func(ctx context.Context, pairs ...string) error {
				_, err := g.unary(metadata.NewIncomingContext(ctx, metadata.Pairs(pairs...)), nil, &grpc.UnaryServerInfo{FullMethod: "/a/B"}, func(ctx context.Context, _ any) (any, error) {
					l := overload.LabelsOf(ctx)
					n, ok := l.Cohort()
					if !l.Criticality.Valid() || !ok || n < 0 || n >= overload.Cohorts || l.Customer != "" && !assignment.ValidCustomer(l.Customer) || l.Priority() >= overload.Priorities {
						t.Errorf("%+v", l)
					}
					if p := overload.Pressure(ctx); !(p >= 0 && p <= 1) {
						t.Errorf("pressure %v", p)
					}
					return nil, nil
				})
				return err
			}
			pairs := []string{CriticalityHeader, criticality, CohortHeader, cohort, CustomerHeader, customer, AttemptHeader, attempt,
				previousAttempts, previous, StandsForHeader, standsFor, GenerationHeader, generation, KeyHeader, key}
			if sliceKey != "" {
				pairs = append(pairs[:len(pairs)-2], SliceKeyHeader, sliceKey)
			}
			ctx, cancel := context.WithTimeout(b.t.Context(), time.Duration(left))
			defer cancel()
			if left == 0 {
				ctx = b.t.Context()
			}
			for range 3 {
				switch err := ask(ctx, pairs...); status.Code(err) {
				case codes.OK, codes.InvalidArgument, codes.DeadlineExceeded:
				default:
					t.Error(err)
				}
				time.Sleep(overload.Tick)
			}
			if err := ask(b.t.Context(), KeyHeader, keyOf(0), CriticalityHeader, "sheddable"); err != nil {
				t.Errorf("the next: %v", err)
			}
			synctest.Wait()
		})
	})
}
