package distributor

import (
	"context"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/distributor/crowdtest"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// BenchmarkParts is the CPU time that a generation of 10^5 slices, of which 1,000 have moved,
// costs a Distributor in a process of its own that has 1,000 slicelets, raw streams that decode
// nothing: such as read parts, and in turns such as are sent deltas of the whole.
func BenchmarkParts(b *testing.B) {
	const n, slicelets, generations = 100_000, 1000, 10
	f, assigner := loopbackAssigner(b)
	a := firstOf(b, testJob, testStore, baseGen, n)
	f.set(a)
	d := startProcess(b, "127.0.0.1:0", assigner, crowdtest.Slicer)
	took := map[bool]time.Duration{}
	rounds := 0
	for b.Loop() {
		rounds++
		for _, parts := range []bool{true, false} {
			c := newRawSlicelets(b, d.address, a, slicelets, parts)
			c.await(a.Generation())
			before, _ := d.used()
			for range generations {
				a = after(b, a, n/100)
				f.set(a)
				c.await(a.Generation())
			}
			used, _ := d.used()
			took[parts] += used - before
			c.stop()
		}
	}
	each := float64(rounds * generations)
	b.ReportMetric(ms(took[true])/each, "cpu-ms/generation")
	b.ReportMetric(ms(took[false])/each, "cpu-ms/generation-whole")
	b.ReportMetric(float64(took[true])/float64(took[false]), "cpu-ratio")
	b.ReportMetric(0, "ns/op")
}

// rawSlicelets are streams that acknowledge what they are sent.
type rawSlicelets struct {
	b       *testing.B
	cancel  context.CancelFunc
	streams sync.WaitGroup

	mu   sync.Mutex
	held map[assignment.Generation]int
	news *sync.Cond
	n    int
}

func newRawSlicelets(b *testing.B, address string, a *assignment.Assignment, n int, parts bool) *rawSlicelets {
	ctx, cancel := context.WithCancel(context.Background())
	c := &rawSlicelets{b: b, cancel: cancel, held: make(map[assignment.Generation]int), n: n}
	c.news = sync.NewCond(&c.mu)
	for i := range n {
		cc, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			b.Fatal(err)
		}
		h := sliceletHello(a.Task(i).Name, a.Task(i).Incarnation)
		h.Parts, h.Compressed = parts, true
		c.streams.Go(func() {
			defer cc.Close()
			if err := c.run(ctx, cc, h); err != nil && ctx.Err() == nil {
				b.Error(err)
			}
		})
	}
	return c
}

func (c *rawSlicelets) run(ctx context.Context, cc *grpc.ClientConn, h *slicerv1.Hello) error {
	stream, err := slicerv1.NewSubscriberServiceClient(cc).Watch(ctx, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	if err := stream.Send(&slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Hello{Hello: h}}); err != nil {
		return err
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		t := m.GetTrailer()
		if t == nil {
			continue
		}
		if t.GetPart() != h.GetParts() {
			c.b.Errorf("a part %t, for one that reads parts %t", t.GetPart(), h.GetParts())
		}
		if err := stream.Send(&slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Ack{Ack: &slicerv1.Ack{Generation: t.GetGeneration()}}}); err != nil {
			return err
		}
		c.mu.Lock()
		c.held[assignment.Generation(t.GetGeneration())]++
		c.news.Broadcast()
		c.mu.Unlock()
	}
}

// await waits until all have had a generation.
func (c *rawSlicelets) await(g assignment.Generation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.held[g] < c.n && !c.b.Failed() {
		c.news.Wait()
	}
}

func (c *rawSlicelets) stop() {
	c.cancel()
	c.streams.Wait()
}
