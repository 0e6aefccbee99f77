package sliceletgrpc

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/orca"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/subscriber/subscribertest"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"github.com/slicer-project/slicer/slicelet"
)

// noRecorder records nothing.
type noRecorder struct{ orca.ServerMetricsRecorder }

func (noRecorder) SetQPS(float64)                    {}
func (noRecorder) SetEPS(float64)                    {}
func (noRecorder) SetApplicationUtilization(float64) {}

// TestDrain: RPCs are served until the slices have moved, health tells, what is
// under way ends, and then the slicelet is gone.
func TestDrain(t *testing.T) {
	run(t, Config{}, func(b *bed) {
		b.assign(5, 0, 1)
		check := func() healthv1.HealthCheckResponse_ServingStatus {
			m, err := healthv1.NewHealthClient(b.conn).Check(b.t.Context(), &healthv1.HealthCheckRequest{})
			if err != nil {
				b.t.Error(err)
			}
			return m.GetStatus()
		}
		if s := check(); s != healthv1.HealthCheckResponse_SERVING {
			b.t.Errorf("health %v", s)
		}
		drained := make(chan error)
		ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
		defer cancel()
		go func() { drained <- Drain(ctx, b.slicelet, b.server, b.health) }()
		time.Sleep(5 * time.Second)
		if s := check(); s != healthv1.HealthCheckResponse_SERVING {
			b.t.Errorf("health %v while it owns slices", s)
		}
		var trailer metadata.MD
		if err := b.ask(b.with(KeyHeader, keyOf(0)), "x", grpc.Trailer(&trailer)); err != nil || trailer.Get(DrainingHeader) == nil {
			b.t.Error(err, trailer)
		}
		// The slices move, and all clients know.
		b.assign(6, 1, 1)
		b.plane.Say(&slicerv1.Status{TakesReports: true, Mode: slicerv1.Mode_MODE_AFFINITY, ConvergedGeneration: 6})
		synctest.Wait()
		b.service.block = make(chan struct{})
		under := make(chan error)
		for check() == healthv1.HealthCheckResponse_SERVING {
			time.Sleep(50 * time.Millisecond)
		}
		// In the half second that is left a call still comes.
		go func() { under <- b.ask(b.t.Context(), "x") }()
		time.Sleep(3 * time.Second)
		select {
		case err := <-drained:
			b.t.Errorf("an RPC is under way, and the drain has ended: %v", err)
		default:
		}
		close(b.service.block)
		if err := <-under; err != nil {
			b.t.Error(err)
		}
		if err := <-drained; err != nil {
			b.t.Error(err)
		}
		synctest.Wait()
		if n := b.plane.Streams(); n != 0 {
			b.t.Errorf("the slicelet is not closed: %d streams", n)
		}
		<-b.ended
	})
}

// TestDrainIsBounded by its context, whatever holds it up.
func TestDrainIsBounded(t *testing.T) {
	for _, limit := range []time.Duration{0, 8 * time.Second} {
		run(t, Config{}, func(b *bed) {
			b.assign(5, 0, 1) // and the slices do not move
			b.service.block = make(chan struct{})
			under := make(chan error)
			go func() { under <- b.ask(b.t.Context(), "x") }()
			synctest.Wait()
			ctx, want := b.t.Context(), DrainTimeout
			if limit > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, limit)
				defer cancel()
				want = limit
			}
			began := time.Now()
			go func() {
				time.Sleep(want + time.Second)
				close(b.service.block)
			}()
			err := Drain(ctx, b.slicelet, b.server, nil)
			var drain *slicelet.DrainError
			if !errors.As(err, &drain) || drain.Slices == 0 {
				b.t.Errorf("error %v", err)
			}
			// The handler is waited for by gRPC; the client is not kept.
			if err := <-under; limit > 0 && status.Code(err) != codes.Unavailable {
				b.t.Errorf("what was under way: %v", err)
			}
			if took := time.Since(began); took > want+2*time.Second {
				b.t.Errorf("took %v", took)
			}
			time.Sleep(2 * time.Second)
		})
	}
}

// TestDrainOfTheOnlyServer does not wait for others, and is no failure.
func TestDrainOfTheOnlyServer(t *testing.T) {
	run(t, Config{}, func(b *bed) {
		synctest.Wait()
		self, err := wire.TaskFromProto(b.plane.Heard()[0].GetHello().GetTask())
		if err != nil {
			b.t.Fatal(err)
		}
		b.plane.Put(subscribertest.Equal(b.t, nil, assignment.Header{Job: "job", StoreID: 1, Generation: 5}, []assignment.Task{self}, 0))
		synctest.Wait()
		began := time.Now()
		if err := Drain(b.t.Context(), b.slicelet, b.server, b.health); err != nil {
			b.t.Error(err)
		}
		if took := time.Since(began); took < 5*time.Second || took > 7*time.Second {
			b.t.Errorf("took %v", took)
		}
	})
}
