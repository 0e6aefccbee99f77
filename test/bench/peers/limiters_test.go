package peers

import (
	"bytes"
	"context"
	"os"
	"runtime"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/failsafe-go/failsafe-go/priority"
	"github.com/go-kratos/aegis/ratelimit"
	"github.com/go-kratos/aegis/ratelimit/bbr"
	"github.com/platinummonkey/go-concurrency-limits/core"
	"github.com/platinummonkey/go-concurrency-limits/limit"
	"github.com/platinummonkey/go-concurrency-limits/limiter"
	"github.com/platinummonkey/go-concurrency-limits/strategy"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/slicer-project/slicer/slicelet/sliceletgrpc"
	"github.com/slicer-project/slicer/test/kit/onecore"
)

// limits decides whether an RPC is let in. done is called when it has been answered.
type limits func(ctx context.Context) (done func(), ok bool)

var errFull = status.Error(codes.ResourceExhausted, "there is no room")

// inInterceptor asks in an interceptor, where the documentation of all of these libraries
// puts them. What it counts are RPCs whose goroutine runs or has run. A handler that waits for
// nothing but its CPU runs to its end once it has begun, so that on one proc there is hardly
// ever more than one under way: those that wait have not come to the interceptor.
func inInterceptor(name string, build func() (limits, error)) onecore.Kind {
	return onecore.Kind{Name: name, Options: func(onecore.Place) ([]grpc.ServerOption, func(), error) {
		let, err := build()
		return []grpc.ServerOption{grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			done, ok := let(ctx)
			if !ok {
				return nil, errFull
			}
			defer done()
			return handler(ctx, req)
		})}, nil, err
	}}
}

// atTap asks where this project's admission does, before the RPC has a goroutine, so that what
// it counts and the times that it measures include the wait for one. None of the libraries
// is documented to be used like this, but in the interceptor there is little that they could
// see.
func atTap(name string, build func() (limits, error)) onecore.Kind {
	return onecore.Kind{Name: name, Options: func(onecore.Place) ([]grpc.ServerOption, func(), error) {
		let, err := build()
		handle := func(ctx context.Context, _ *tap.Info) (context.Context, error) {
			if ctx.Err() != nil { // gRPC ends it without a word to the stats handler
				return ctx, nil
			}
			done, ok := let(ctx)
			if !ok {
				return ctx, errFull
			}
			return context.WithValue(ctx, doneKey{}, done), nil
		}
		return []grpc.ServerOption{grpc.InTapHandle(handle), grpc.StatsHandler(ends{})}, nil, err
	}}
}

type doneKey struct{}

// ends calls done of RPCs that have ended.
type ends struct{}

func (ends) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

func (ends) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if _, ok := s.(*stats.End); ok {
		if done, ok := ctx.Value(doneKey{}).(func()); ok {
			done()
		}
	}
}

func (ends) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (ends) HandleConn(context.Context, stats.ConnStats) {}

// criticality is what the request says.
func criticality(ctx context.Context) string {
	if v := metadata.ValueFromIncomingContext(ctx, sliceletgrpc.CriticalityHeader); len(v) > 0 {
		return v[0]
	}
	return "critical"
}

// fixed is onecore.Limit for atTap.
func fixed() (limits, error) {
	room := make(chan struct{}, 16)
	return func(context.Context) (func(), bool) {
		select {
		case room <- struct{}{}:
			return func() { <-room }, true
		default:
			return nil, false
		}
	}, nil
}

// streams is gRPC's own limit, 16 for each of the load's 8 connections: together they wait for
// half of the requests' deadline with requests of 2 ms. It knows no criticality and refuses
// nobody: what is beyond it waits in the client, for as long as its deadline.
func streams() onecore.Kind {
	return onecore.Kind{Name: "streams", Options: func(onecore.Place) ([]grpc.ServerOption, func(), error) {
		return []grpc.ServerOption{grpc.MaxConcurrentStreams(16)}, nil, nil
	}}
}

// gradient2 is go-concurrency-limits with the library's defaults for Gradient2 (a limit of 20
// to 200, a queue of 4) and for windows (1 s, 100 samples), and partitions by criticality,
// which is how it tells requests apart: a partition may use what others leave, and has its
// part when all want theirs. The parts are chosen here; the documentation's example gives .9
// to live and .1 to batch traffic. The library's interceptor does what inInterceptor does,
// but prints the limiter into each refusal, unless it is told otherwise.
func gradient2() (limits, error) {
	metrics := core.EmptyMetricRegistryInstance
	parts := map[string]*strategy.LookupPartition{}
	for _, p := range []struct {
		name string
		part float64
	}{{"critical_plus", .5}, {"critical", .4}, {"sheddable_plus", .1}, {"sheddable", 0}} {
		parts[p.name] = strategy.NewLookupPartitionWithMetricRegistry(p.name, p.part, 1, metrics)
	}
	by, err := strategy.NewLookupPartitionStrategyWithMetricRegistry(parts, criticality, 1, metrics)
	if err != nil {
		return nil, err
	}
	const window, shortest, samples = int64(time.Second), int64(100 * time.Microsecond), 100
	gradient := limit.NewDefaultGradient2Limit("server", limit.NoopLimitLogger{}, metrics)
	l, err := limiter.NewDefaultLimiter(gradient, window, window, shortest, samples, by, limit.NoopLimitLogger{}, metrics)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (func(), bool) {
		listener, ok := l.Acquire(ctx)
		if !ok {
			return nil, false
		}
		return listener.OnSuccess, true
	}, nil
}

// aegis is BBR with its defaults (a window of 10 s in 100 buckets, from .8 of the CPU on), as
// Kratos's middleware uses it. It reads the CPU of the whole machine, where the server has no
// container of its own, so it is told that one core of these is all there is: what the load
// and the control plane use on the other counts as the server's, which lets it refuse earlier.
// It smooths what it reads over 10 s and more. It knows no criticality.
func aegis() (limits, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return nil, err
	}
	// The library multiplies by the procs of this process and divides by the quota.
	cores := float64(max(bytes.Count(text, []byte("\ncpu")), 1))
	l := bbr.NewLimiter(bbr.WithCPUQuota(float64(runtime.NumCPU()) / cores))
	return func(context.Context) (func(), bool) {
		done, err := l.Allow()
		if err != nil {
			return nil, false
		}
		return func() { done(ratelimit.DoneInfo{}) }, true
	}, nil
}

// prioritized is failsafe-go's adaptive limiter with priorities and the library's defaults: a
// limit of 1 to 200, from 20 on, and a queue of two to three times the limit, from whose
// length it works out every second below which level it refuses.
func prioritized() (l adaptivelimiter.PriorityLimiter[any], end func()) {
	p := adaptivelimiter.NewPrioritizer()
	end = p.ScheduleCalibrations(context.Background(), time.Second)
	return adaptivelimiter.NewBuilder[any]().BuildPrioritized(p), end
}

var priorities = map[string]priority.Priority{
	"sheddable": priority.Low, "sheddable_plus": priority.Medium, "critical": priority.High, "critical_plus": priority.VeryHigh,
}

// withLevel draws a level within the request's priority, as the library does where it is given
// a priority alone. It is drawn once, as tap and interceptor both judge by it.
func withLevel(ctx context.Context) context.Context {
	return priority.ContextWithLevel(ctx, priorities[criticality(ctx)].RandomLevel())
}

// failsafe asks at the tap whether there is room, and takes it in an interceptor, where it may
// wait, as failsafegrpc's NewServerInHandle and NewUnaryServerInterceptor do; these do not
// give the limiter the RPC's context, without which it knows neither priority nor deadline.
func failsafe() onecore.Kind {
	return onecore.Kind{Name: "failsafe", Options: func(onecore.Place) ([]grpc.ServerOption, func(), error) {
		l, end := prioritized()
		handle := func(ctx context.Context, _ *tap.Info) (context.Context, error) {
			if ctx = withLevel(ctx); !l.CanAcquirePermit(ctx) {
				return ctx, errFull
			}
			return ctx, nil
		}
		return []grpc.ServerOption{grpc.InTapHandle(handle), grpc.UnaryInterceptor(queued(l))}, end, nil
	}}
}

// failsafePlain is failsafe-go's adaptive limiter with the library's defaults, without priorities
// and without a queue, for atTap.
func failsafePlain() (limits, error) {
	l := adaptivelimiter.NewWithDefaults[any]()
	return func(context.Context) (func(), bool) {
		permit, ok := l.TryAcquirePermit()
		if !ok {
			return nil, false
		}
		return permit.Record, true
	}, nil
}

// failsafeAtTap takes what room there is at the tap, as atTap, and has priorities: these need a
// queue, so who finds no room, and may wait, does so in the interceptor, as a tap must not.
func failsafeAtTap() onecore.Kind {
	return onecore.Kind{Name: "failsafe-queue-tap", Options: func(onecore.Place) ([]grpc.ServerOption, func(), error) {
		l, end := prioritized()
		handle := func(ctx context.Context, _ *tap.Info) (context.Context, error) {
			if ctx.Err() != nil {
				return ctx, nil
			}
			ctx = withLevel(ctx)
			if permit, err := l.AcquirePermitWithMaxWait(ctx, 0); err == nil {
				return context.WithValue(ctx, doneKey{}, permit.Record), nil
			}
			if !l.CanAcquirePermit(ctx) {
				return ctx, errFull
			}
			return ctx, nil
		}
		return []grpc.ServerOption{grpc.InTapHandle(handle), grpc.StatsHandler(ends{}), grpc.UnaryInterceptor(queued(l))}, end, nil
	}}
}

// queued waits for room, unless the tap has found it.
func queued(l adaptivelimiter.PriorityLimiter[any]) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if ctx.Value(doneKey{}) == nil {
			permit, err := l.AcquirePermit(ctx)
			if err != nil {
				return nil, errFull
			}
			defer permit.Record()
		}
		return handler(ctx, req)
	}
}
