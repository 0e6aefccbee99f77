package sliceletgrpc

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/orca"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/loadbalance/overload"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"github.com/slicer-project/slicer/slicelet"
)

// TestAdmission: RPCs that there is no room for are refused before their handler runs, the
// least critical first, if the job's admission is on, and say whether another task is to be
// asked.
func TestAdmission(t *testing.T) {
	full := 0.
	for _, c := range []struct {
		mode    slicerv1.Admission
		noTap   bool
		refuses bool
	}{
		{slicerv1.Admission_ADMISSION_ON, false, true},
		{slicerv1.Admission_ADMISSION_ON, true, false},
		{slicerv1.Admission_ADMISSION_REPORT, false, false},
		{slicerv1.Admission_ADMISSION_UNSPECIFIED, false, true},
		{slicerv1.Admission_ADMISSION_OFF, false, false},
	} {
		full = 0
		runWith(t, Config{NoTap: c.noTap}, func(cfg *slicelet.Config) { cfg.Signals = []func() float64{func() float64 { return full }} }, func(b *bed) {
			b.plane.Say(&slicerv1.Status{TakesReports: true, Mode: slicerv1.Mode_MODE_AFFINITY, Overload: &slicerv1.OverloadConfig{Admission: c.mode}})
			b.assign(5, 0, 1)
			ask := func(criticality string, pairs ...string) error {
				time.Sleep(overload.Tick)
				return b.ask(metadata.AppendToOutgoingContext(b.with(CriticalityHeader, criticality, CohortHeader, "5"), pairs...), "x")
			}
			for range 10 {
				for _, criticality := range []string{"sheddable", "critical_plus"} {
					if err := ask(criticality, KeyHeader, keyOf(0)); err != nil {
						t.Fatal(c.mode, criticality, err)
					}
				}
			}
			full = 1.5 // half of what is asked for is critical, so that fits
			for _, x := range []struct {
				what, criticality string
				pairs             []string
				code              codes.Code
				scope             slicerv1.Overloaded_Scope
			}{
				{"with one owner", "sheddable", []string{KeyHeader, keyOf(0)}, codes.ResourceExhausted, slicerv1.Overloaded_SCOPE_ALL},
				{"without a key", "sheddable", nil, codes.Unavailable, slicerv1.Overloaded_SCOPE_TASK},
				{"with a bad key", "sheddable", []string{SliceKeyHeader, "x"}, codes.InvalidArgument, 0},
				{"critical", "critical_plus", []string{KeyHeader, keyOf(0)}, codes.OK, 0},
			} {
				b.service.keyed = false
				err := ask(x.criticality, x.pairs...)
				var scope slicerv1.Overloaded_Scope
				for _, d := range status.Convert(err).Details() {
					if m, ok := d.(*slicerv1.Overloaded); ok {
						scope = m.GetScope()
					}
				}
				if !c.refuses && x.code != codes.InvalidArgument {
					x.code, x.scope = codes.OK, 0
				}
				if status.Code(err) != x.code || scope != x.scope {
					t.Errorf("%s, %s: %v, scope %v, want %s, %s", c.mode, x.what, err, scope, x.code, x.scope)
				}
				if want := x.criticality == "sheddable" && c.mode == slicerv1.Admission_ADMISSION_REPORT; x.code == codes.OK && !c.noTap && (b.service.pressure == 1) != want {
					t.Errorf("%s, %s: pressure %v", c.mode, x.what, b.service.pressure)
				}
				if x.code == codes.ResourceExhausted && b.service.keyed {
					t.Errorf("%s, %s: the handler ran", c.mode, x.what)
				}
			}
			// So are streams, and what would wait long, which the tap does not refuse itself, and
			// what would not.
			time.Sleep(overload.Tick)
			sheddable := b.with(CriticalityHeader, "sheddable", CohortHeader, "5", KeyHeader, keyOf(0))
			if err := b.watch(sheddable, "x"); (status.Code(err) == codes.ResourceExhausted) != c.refuses {
				t.Errorf("%s: a stream: %v", c.mode, err)
			}
			for _, within := range []time.Duration{time.Second, time.Hour} {
				ctx, cancel := context.WithTimeout(sheddable, within)
				if _, err := b.stub.SayHello(ctx, wrapperspb.String("x")); (status.Code(err) == codes.ResourceExhausted) != c.refuses {
					t.Errorf("%s: within %v: %v", c.mode, within, err)
				}
				cancel()
			}
			// gRPC's own services are not asked.
			if _, err := healthv1.NewHealthClient(b.conn).Check(b.t.Context(), &healthv1.HealthCheckRequest{}); err != nil {
				t.Errorf("%s: the health service: %v", c.mode, err)
			}
			synctest.Wait()
		})
	}
}

// TestShedAndMisrouted: a task without room that does not own the key says that it does not
// own it, so that the client asks the owner.
func TestShedAndMisrouted(t *testing.T) {
	var full atomic.Bool // the reporter asks, too
	runWith(t, Config{}, func(cfg *slicelet.Config) {
		cfg.Signals = []func() float64{func() float64 {
			if full.Load() {
				return 1e9
			}
			return 0
		}}
	}, func(b *bed) {
		b.plane.Say(&slicerv1.Status{TakesReports: true, Mode: slicerv1.Mode_MODE_CONSISTENT, Overload: &slicerv1.OverloadConfig{Admission: slicerv1.Admission_ADMISSION_ON}})
		b.assign(5, 0, 1)
		full.Store(true)
		for range 3 {
			time.Sleep(overload.Tick)
			err := b.ask(b.with(KeyHeader, keyOf(1)), "x")
			refused := false
			for _, d := range status.Convert(err).Details() {
				_, ok := d.(*slicerv1.Refusal)
				refused = refused || ok
			}
			if !refused || status.Code(err) != codes.Unavailable {
				t.Error(err)
			}
		}
	})
}

// TestLevel: while there is no room for all, each answer says what need not be sent, be it
// served or refused; not if the task does not refuse.
func TestLevel(t *testing.T) {
	for _, mode := range []slicerv1.Admission{slicerv1.Admission_ADMISSION_ON, slicerv1.Admission_ADMISSION_REPORT} {
		var full atomic.Bool // the reporter asks, too
		runWith(t, Config{}, func(cfg *slicelet.Config) {
			cfg.Signals = []func() float64{func() float64 {
				if full.Load() {
					return 1.8
				}
				return 0
			}}
		}, func(b *bed) {
			b.plane.Say(&slicerv1.Status{TakesReports: true, Mode: slicerv1.Mode_MODE_AFFINITY, Overload: &slicerv1.OverloadConfig{Admission: mode}})
			b.assign(5, 0, 1)
			ask := func(criticality string) (said overload.Level, err error) {
				time.Sleep(overload.Tick)
				var trailer metadata.MD
				_, err = b.stub.SayHello(b.with(CriticalityHeader, criticality, CohortHeader, "120", KeyHeader, keyOf(0), StandsForHeader, "3"), wrapperspb.String("x"), grpc.Trailer(&trailer))
				for _, d := range status.Convert(err).Details() {
					m := d.(*slicerv1.Overloaded)
					return overload.Level{Below: overload.Priority(m.GetLevel()), Pause: time.Duration(m.GetPauseMs()) * time.Millisecond}, err
				}
				return overload.ParseLevel(last(trailer, LevelHeader)), err
			}
			for range 10 {
				for _, criticality := range []string{"sheddable", "critical_plus"} {
					if l, err := ask(criticality); err != nil || l != (overload.Level{}) {
						t.Fatal(criticality, l, err)
					}
				}
			}
			full.Store(true)
			time.Sleep(overload.Tick)
			for _, criticality := range []string{"sheddable", "critical_plus", "sheddable"} {
				l, err := ask(criticality)
				tells := l.Below > 0 && l.Below.Criticality() == overload.Sheddable && l.Pause >= overload.LeastPause
				if on := mode == slicerv1.Admission_ADMISSION_ON; tells != on || !on && l != (overload.Level{}) || (err != nil) != (on && criticality == "sheddable") {
					t.Errorf("%s, %s: %v, %v", mode, criticality, l, err)
				}
			}
			synctest.Wait()
		})
	}
}

// TestTooLate: an RPC whose deadline has passed while it waited does not reach the handler.
func TestTooLate(t *testing.T) {
	run(t, Config{}, func(b *bed) {
		g := &gate{slicelet: b.slicelet, metrics: newMetrics()}
		g.load.recorder, g.load.source = orca.NewServerMetricsRecorder(), func() float64 { return 1 }
		ctx, cancel := context.WithCancel(b.t.Context())
		cancel()
		_, err := g.unary(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/a/B"}, func(context.Context, any) (any, error) {
			t.Error("the handler ran")
			return nil, nil
		})
		if status.Code(err) != codes.Canceled {
			t.Error(err)
		}
	})
}

// The call of an RPC that was refused is that of the next one on its connection, of which it knows
// nothing.
func TestCallOfRefused(t *testing.T) {
	var from connection
	first := from.call()
	first.Context, first.labels, first.refused = t.Context(), overload.Labels{Criticality: overload.Sheddable, Customer: "batch"}, errLate
	from.spare(first)
	second := from.call()
	if second != first || second.Context != nil || second.labels != (overload.Labels{}) || second.refused != nil {
		t.Errorf("of the RPC before it is known: %v, %v, %v", second.Context, second.labels, second.refused)
	}
	if from.call() == second {
		t.Error("two RPCs have one call")
	}
	var unknown *connection
	unknown.spare(unknown.call())
}
