package etcdstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/seedtest"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/store/storetest"
	"github.com/slicer-project/slicer/assignment/wire"
	"google.golang.org/protobuf/proto"
)

// TestBytesWritten: a change of 1 % of the slices costs one request of at most
// 2 % of the bytes of the whole, checkpoints apart, and no request is more than
// etcd takes.
func TestBytesWritten(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	cfg := config(t)
	var written, requests, largest atomic.Int64
	st := &steps{sent: func(_ string, req any) {
		n := int64(proto.Size(req.(proto.Message)))
		written.Add(n)
		requests.Add(1)
		largest.Store(max(largest.Load(), n))
	}}
	cfg.dialOptions = st.options()
	s := open(t, cfg)
	putJob(t, s, "a")
	rng := rand.New(rand.NewPCG(1, 9))
	a := storetest.First("a", s.ID(), 1, 1000, 1000*seedtest.Cases(100))
	whole, err := wire.EncodeAssignment(a)
	if err != nil {
		t.Fatal(err)
	}
	checkpoints := 0
	for i := range 140 {
		written.Store(0)
		requests.Store(0)
		if err := s.Write(st.mark(ctx), a); err != nil {
			t.Fatal(err)
		}
		switch share := float64(written.Load()) / float64(len(whole)); {
		case share > 1:
			checkpoints++
		case requests.Load() != 1 || share > .02:
			t.Errorf("write %d: %d requests with %.2f %% of the %d bytes of the whole", i, requests.Load(), 100*share, len(whole))
		}
		a = storetest.Next(a, a.Generation()+1, .01, "x", rng)
	}
	t.Logf("whole %d bytes, last change %d bytes, %d checkpoints, largest request %d bytes", len(whole), written.Load(), checkpoints, largest.Load())
	if checkpoints != 3 {
		t.Errorf("%d checkpoints in 140 writes, want 3", checkpoints)
	}
	if largest.Load() > 3<<19-4096 {
		t.Errorf("a request of %d bytes", largest.Load())
	}
}

// BenchmarkWrite is of a change of 1 % of the slices, checkpoints included.
func BenchmarkWrite(b *testing.B) {
	for _, slices := range []int{1000, 100_000} {
		b.Run(fmt.Sprintf("slices=%d", slices), func(b *testing.B) {
			cfg := config(b)
			var written atomic.Int64
			st := &steps{sent: func(_ string, req any) { written.Add(int64(proto.Size(req.(proto.Message)))) }}
			cfg.dialOptions = st.options()
			s := open(b, cfg)
			base, whole := benchmarkJob(b, s, slices)
			rng := rand.New(rand.NewPCG(1, 10))
			ctx := st.mark(context.Background())
			for b.Loop() {
				b.StopTimer()
				base = storetest.Next(base, base.Generation()+1, .01, "x", rng)
				b.StartTimer()
				if err := s.Write(ctx, base); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(written.Load())/float64(b.N), "written-B/op")
			b.ReportMetric(100*float64(written.Load())/float64(b.N)/float64(whole), "%-of-whole")
		})
	}
}

// BenchmarkRead is of the newest generation: the next one after the one that the
// reader holds, or without anything to go on from.
func BenchmarkRead(b *testing.B) {
	for _, slices := range []int{1000, 100_000} {
		for _, cold := range []bool{false, true} {
			b.Run(fmt.Sprintf("slices=%d/cold=%v", slices, cold), func(b *testing.B) {
				cfg := config(b)
				writer, reader := open(b, cfg), open(b, cfg)
				base, _ := benchmarkJob(b, writer, slices)
				rng := rand.New(rand.NewPCG(1, 11))
				for b.Loop() {
					b.StopTimer()
					base = storetest.Next(base, base.Generation()+1, .01, "x", rng)
					if err := writer.Write(context.Background(), base); err != nil {
						b.Fatal(err)
					}
					if cold {
						reader.forget("a")
					}
					b.StartTimer()
					if a, err := reader.Read(context.Background(), "a"); err != nil || a.Generation() != base.Generation() {
						b.Fatal(a, err)
					}
				}
			})
		}
	}
}

func benchmarkJob(b *testing.B, s *Store, slices int) (a *assignment.Assignment, whole int) {
	b.Helper()
	ctx := context.Background()
	if _, err := s.PutJob(ctx, assignment.JobConfig{Name: "a"}, store.AnyVersion); err != nil {
		b.Fatal(err)
	}
	a = storetest.First("a", s.ID(), 1, 100, slices)
	if prev, err := s.Read(ctx, "a"); err == nil {
		a = storetest.Shuffled(prev, prev.Generation()+1, rand.New(rand.NewPCG(1, 12)))
	}
	if err := s.Write(ctx, a); err != nil {
		b.Fatal(err)
	}
	data, err := wire.EncodeAssignment(a)
	if err != nil {
		b.Fatal(err)
	}
	return a, len(data)
}
