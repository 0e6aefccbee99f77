package sliceletgrpc

import (
	"io"
	"math"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/slicer-project/slicer/assignment"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// silent is a stream on which nothing comes until it is cut.
type silent struct {
	grpc.ServerStream
	cut chan struct{}
}

func (s silent) SendMsg(any) error { return nil }
func (s silent) RecvMsg(any) error { <-s.cut; return io.EOF }

// chat has a handler work for an answer while another goroutine of it receives.
func (b *bed) chat(key string, took time.Duration) {
	ss := silent{cut: make(chan struct{})}
	s := &stream{ServerStream: ss, call: &call{handle: b.slicelet.Handle(key)}, busy: time.Now()}
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.RecvMsg(nil) })
	time.Sleep(took)
	_ = s.SendMsg(nil)
	close(ss.cut)
	wg.Wait()
}

// TestTime: where CPU is the load, it is shared out by how long handlers work, that
// of streams between messages included.
func TestTime(t *testing.T) {
	run(t, Config{}, func(b *bed) {
		b.plane.Say(&slicerv1.Status{TakesReports: true, Mode: slicerv1.Mode_MODE_AFFINITY, ReportIntervalMs: 10_000, LoadMetric: assignment.LoadCPU})
		b.assign(5, 0, 0)
		time.Sleep(12 * time.Second) // it knows what load is with its first report
		for range 3 {
			b.saw(b.ask(b.with(KeyHeader, keyOf(0)), "100ms"), true, true)
		}
		b.saw(b.watch(b.with(KeyHeader, keyOf(0)), "200ms"), true, true)
		b.chat(keyOf(0), 300*time.Millisecond)
		b.saw(b.ask(b.with(KeyHeader, keyOf(1)), "400ms"), true, true)
		time.Sleep(12 * time.Second)
		load := b.reported()
		if load == nil {
			b.t.Fatal("no report has both keys")
		}
		ratio := load.HotRate[0] / load.HotRate[1]
		if ratio < 1.99 || ratio > 2.01 || load.HotKey[0] != uint64(assignment.KeyOf(keyOf(0))) {
			b.t.Errorf("the first key has %.3f times the load of the second, want 2: %v", ratio, load)
		}
	})
}

// TestTimeOfFirst: so is that of a stream whose key is in its first message.
func TestTimeOfFirst(t *testing.T) {
	run(t, Config{Key: func(string, any) (string, bool) { return keyOf(0), true }}, func(b *bed) {
		b.plane.Say(&slicerv1.Status{TakesReports: true, Mode: slicerv1.Mode_MODE_AFFINITY, ReportIntervalMs: 10_000, LoadMetric: assignment.LoadCPU})
		b.assign(5, 0, 0)
		time.Sleep(12 * time.Second)
		b.saw(b.watch(b.t.Context(), "300ms"), true, true)
		b.saw(b.watch(b.with(KeyHeader, keyOf(1)), "100ms"), true, true)
		time.Sleep(12 * time.Second)
		load := b.reported()
		if load == nil || load.HotKey[0] != uint64(assignment.KeyOf(keyOf(0))) || math.Abs(float64(load.HotRate[0]/load.HotRate[1])-3) > .01 {
			b.t.Errorf("want three times as much of the first key as of the second: %v", load)
		}
	})
}

// reported is the first report with two heavy keys, nil if there is none.
func (b *bed) reported() *slicerv1.LoadReport {
	for _, m := range b.plane.Heard() {
		if load := m.GetReport().GetLoad(); load.GetTotalRate() > 0 && len(load.GetHotKey()) == 2 {
			return load
		}
	}
	return nil
}
