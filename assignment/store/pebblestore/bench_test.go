package pebblestore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/store/storetest"
	"github.com/slicer-project/slicer/assignment/wire"
)

func benchmarkStore(b *testing.B, slices int) (s *Store, dir string, a *assignment.Assignment) {
	b.Helper()
	dir = b.TempDir()
	s, err := Open(dir, Config{})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := s.PutJob(context.Background(), assignment.JobConfig{Name: "a"}, store.NoVersion); err != nil {
		b.Fatal(err)
	}
	a = storetest.First("a", s.ID(), 1, 100, slices)
	if err := s.Write(context.Background(), a); err != nil {
		b.Fatal(err)
	}
	return s, dir, a
}

// BenchmarkWrite is of a change of 1 % of the slices, checkpoints included, on
// the disk of the temporary folder.
func BenchmarkWrite(b *testing.B) {
	for _, slices := range []int{1000, 100_000} {
		b.Run(fmt.Sprintf("slices=%d", slices), func(b *testing.B) {
			s, _, a := benchmarkStore(b, slices)
			defer s.Close()
			whole, err := wire.EncodeAssignment(a)
			if err != nil {
				b.Fatal(err)
			}
			rng := rand.New(rand.NewPCG(1, 1))
			before := s.db.Metrics().WAL.BytesIn
			for b.Loop() {
				b.StopTimer()
				a = storetest.Next(a, a.Generation()+1, .01, "x", rng)
				b.StartTimer()
				if err := s.Write(context.Background(), a); err != nil {
					b.Fatal(err)
				}
			}
			written := float64(s.db.Metrics().WAL.BytesIn-before) / float64(b.N)
			b.ReportMetric(written, "written-B/op")
			b.ReportMetric(100*written/float64(len(whole)), "%-of-whole")
		})
	}
}

// BenchmarkRead is of the newest generation: from memory, and from disk after 30
// changes of 1 %.
func BenchmarkRead(b *testing.B) {
	for _, slices := range []int{1000, 100_000} {
		s, dir, a := benchmarkStore(b, slices)
		rng := rand.New(rand.NewPCG(1, 2))
		for range 30 {
			a = storetest.Next(a, a.Generation()+1, .01, "x", rng)
			if err := s.Write(context.Background(), a); err != nil {
				b.Fatal(err)
			}
		}
		b.Run(fmt.Sprintf("slices=%d/memory", slices), func(b *testing.B) {
			for b.Loop() {
				if _, err := s.Read(context.Background(), "a"); err != nil {
					b.Fatal(err)
				}
			}
		})
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("slices=%d/open", slices), func(b *testing.B) {
			for b.Loop() {
				s, err := Open(dir, Config{})
				if err != nil {
					b.Fatal(err)
				}
				if _, err := s.Read(context.Background(), "a"); err != nil {
					b.Fatal(err)
				}
				if err := s.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
