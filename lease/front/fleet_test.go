package front_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/lease/leasetest"
)

// fleet is the tasks of a job, and the assigner that leads it.
type fleet struct {
	t     *testing.T
	w     lease.WriteSession
	token lease.Token
	parts []*lease.Job
}

// newFleet makes each task of a job a reader of its own.
func newFleet(t *testing.T, writers lease.Writers, ttl time.Duration, readers ...lease.Readers) *fleet {
	t.Helper()
	f := &fleet{t: t}
	var err error
	if f.w, err = writers.OpenWriter(t.Context(), lease.MaxTTL); err != nil {
		t.Fatal(err)
	}
	if f.token, err = f.w.Lead(t.Context(), "job"); err != nil {
		t.Fatal(err)
	}
	for i, r := range readers {
		reader, err := lease.NewReader(lease.Config{Readers: r, TTL: ttl})
		if err != nil {
			t.Fatal(err)
		}
		j, err := reader.Join(lease.JobConfig{Job: "job", Task: leasetest.TaskName(i), Incarnation: leasetest.Incarnation(i),
			Fetch: func(_ context.Context, g assignment.Generation) (*assignment.Assignment, error) {
				return leasetest.Assignment("job", g, len(readers))
			}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = reader.Close() }) // which cannot give back what it cannot reach
		f.parts = append(f.parts, j)
	}
	return f
}

// advance carries the job to g, and waits until all believe in it.
func (f *fleet) advance(g assignment.Generation) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), 2*time.Minute)
	defer cancel()
	if _, err := lease.Advance(ctx, f.w, lease.Change{Job: "job", Token: f.token, Wanted: g, Wait: time.Second}); err != nil {
		f.t.Fatalf("Advance to %d: %v", g, err)
	}
	f.eventually(fmt.Sprintf("all believe in generation %d", g), func() bool {
		for _, j := range f.parts {
			if before, after := j.Belief().Assignments(); before == nil || after != nil || before.Generation() != g {
				return false
			}
		}
		return true
	})
}

func (f *fleet) eventually(what string, ok func() bool) {
	f.t.Helper()
	for end := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			f.t.Fatalf("not within two minutes: %s", what)
		}
	}
}

// look looks, until it is stopped, for keys that are owned by two tasks, and counts how
// often a task believed in nothing.
func (f *fleet) look() (stop func() (looks, without int64)) {
	var looks, without atomic.Int64
	ctx, cancel := context.WithCancel(f.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ; ctx.Err() == nil; time.Sleep(time.Millisecond) {
			looks.Add(1)
			for _, j := range f.parts {
				if j.Belief() == nil {
					without.Add(1)
				}
			}
			for i := range 64 {
				f.lookAt(assignment.SliceKey(i) * (assignment.KeyspaceEnd / 64))
			}
		}
	}()
	return func() (int64, int64) {
		cancel()
		<-done
		return looks.Load(), without.Load()
	}
}

// lookAt asks an owner again after the others: only one that owns the key at both ends of
// the time in which another says yes owns it together with that one.
func (f *fleet) lookAt(k assignment.SliceKey) {
	for n, j := range f.parts {
		if !j.Owns(k) {
			continue
		}
		for m, other := range f.parts {
			if m != n && other.Owns(k) && j.Owns(k) {
				f.t.Errorf("key %s is owned by %s and %s", k, leasetest.TaskName(n), leasetest.TaskName(m))
			}
		}
	}
}
