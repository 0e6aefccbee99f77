package lease_test

import (
	"context"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/lease/leasetest"
	"github.com/slicer-project/slicer/lease/serve"
)

// believing joins a job, and waits until it believes.
func believing(b *testing.B) *lease.Job {
	b.Helper()
	store, err := serve.Open(b.Context(), serve.Config{Storage: &storage{}})
	if err != nil {
		b.Fatal(err)
	}
	w, err := store.OpenWriter(b.Context(), time.Minute)
	if err != nil {
		b.Fatal(err)
	}
	token, err := w.Lead(b.Context(), "job")
	if err != nil {
		b.Fatal(err)
	}
	if _, err := lease.Advance(b.Context(), w, lease.Change{Job: "job", Token: token, Wanted: 1}); err != nil {
		b.Fatal(err)
	}
	r, err := lease.NewReader(lease.Config{Readers: store})
	if err != nil {
		b.Fatal(err)
	}
	believes := make(chan struct{}, 8)
	j, err := r.Join(lease.JobConfig{Job: "job", Task: leasetest.TaskName(0), Incarnation: leasetest.Incarnation(0),
		Fetch: func(_ context.Context, g assignment.Generation) (*assignment.Assignment, error) {
			return leasetest.Assignment("job", g, 2)
		},
		Changed: func(*lease.Belief) { believes <- struct{}{} }})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { r.Close(); store.Close() })
	<-believes
	return j
}

func BenchmarkValid(b *testing.B) {
	belief := believing(b).Belief()
	b.ReportAllocs()
	for b.Loop() {
		if !belief.Valid() {
			b.Fatal("the lease is lost")
		}
	}
}

func BenchmarkOwns(b *testing.B) {
	j := believing(b)
	b.ReportAllocs()
	for k := assignment.SliceKey(0); b.Loop(); k += assignment.KeyspaceEnd / 1021 {
		j.Owns(k % assignment.KeyspaceEnd)
	}
}

func BenchmarkOwnsParallel(b *testing.B) {
	j := believing(b)
	b.ReportAllocs()
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		for k := assignment.SliceKey(0); pb.Next(); k += assignment.KeyspaceEnd / 1021 {
			j.Owns(k % assignment.KeyspaceEnd)
		}
	})
}
