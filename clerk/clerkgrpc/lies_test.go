package clerkgrpc

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/orca"

	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/loadbalance/overload"
)

// TestLyingTask: of three owners of all keys one lies about its level, or about its load, and
// serves or refuses all that it is sent. It only sends its own load away: the others serve what
// it does not, and one that refuses all, and does not say that it does, is sent little.
func TestLyingTask(t *testing.T) {
	type lie struct {
		level           string // in each answer
		refuses         bool   // all
		noRetry         bool
		levelOf         overload.Level // in refusals
		requests, under float64        // of its load, 0 for none
		most            float64        // share of RPCs that fail
	}
	for name, lie := range map[string]lie{
		"none":              {},
		"the highest level": {level: "511;1000"}, "for ever": {level: "511;4294967295"}, "without a pause": {level: "511;0"}, "out of range": {level: "99999;1"},
		"no number": {level: "NaN;1"}, "negative": {level: "-1;-1"}, "more than two": {level: "511;1000;1;1"}, "infinite": {level: "511;Inf"},
		"refuses all":                            {refuses: true, most: .01},
		"refuses all, and forbids retries":       {refuses: true, noRetry: true, most: .08},
		"refuses all, but says so of few":        {refuses: true, noRetry: true, levelOf: overload.Level{Below: 1, Pause: time.Second}, most: .08},
		"refuses all, and says so":               {refuses: true, levelOf: overload.Level{Below: 511, Pause: time.Second}, most: .01},
		"says that it has nothing to do":         {requests: 1, under: math.Inf(-1)},
		"says that its load is no number":        {requests: math.NaN(), under: math.NaN()},
		"says that it has far too much to do":    {requests: math.Inf(1), under: math.Inf(1)},
		"says that it can do all":                {requests: 1e300, under: 0},
		"says that it can do all, and does none": {requests: 1e300, under: 0, refuses: true, most: .15},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, Config{}, func(b *bed) {
				tasks := three()
				var sent [3]atomic.Int64
				for i, task := range tasks {
					s := b.serve(task, orca.CallMetricsServerOption(nil), grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
						sent[i].Add(1)
						if r := orca.CallMetricsRecorderFromContext(ctx); i > 0 {
							r.SetApplicationUtilization(.5)
							r.SetQPS(100)
						} else if lie.requests != 0 {
							r.SetApplicationUtilization(.5)
							r.SetQPS(lie.requests)
							r.SetNamedMetric(inFlightMetric, lie.under)
						}
						answer, err := handle(ctx, req)
						if err == nil {
							time.Sleep(10 * time.Millisecond)
						}
						return answer, err
					}))
					if s.level, s.noRetry, s.levelOf = lie.level, lie.noRetry, lie.levelOf; i > 0 {
						s.level = ""
					} else if lie.refuses {
						s.full = math.MaxInt
					}
				}
				b.put(tasks, []uint32{0, 1, 2})
				var calls sync.WaitGroup
				var asked, failed atomic.Int64
				rpcs := 4000 // in 20 s, of which the first five do not count
				if lie.most == 0 {
					rpcs = 2000 // one that fails is enough
				}
				for i := range rpcs {
					time.Sleep(5 * time.Millisecond)
					calls.Go(func() {
						_, err := b.ask(clerk.WithKey(b.t.Context(), "k"))
						if i < 1000 {
							return
						}
						if asked.Add(1); err != nil {
							failed.Add(1)
						}
					})
				}
				calls.Wait()
				share := float64(failed.Load()) / float64(asked.Load())
				t.Logf("%.3f failed; it was sent %d, the others %d and %d", share, sent[0].Load(), sent[1].Load(), sent[2].Load())
				if share > lie.most {
					t.Errorf("%.3f failed, at most %v may", share, lie.most)
				}
			})
		})
	}
}
