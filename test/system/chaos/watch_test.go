//go:build system

package chaos

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store/etcdstore"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/test/kit/boottime"
)

// watch knows every assignment that was stored.
type watch struct {
	store *etcdstore.Store // nil if a clerk has to do

	mu  sync.Mutex
	all []Stored
}

func startWatch(t *testing.T, etcd []string) *watch {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s, err := etcdstore.Open(ctx, etcdstore.Config{Endpoints: etcd, Prefix: "/slicer"})
	if err != nil {
		t.Fatal(err)
	}
	w := &watch{store: s}
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			if err := w.follow(ctx); err != nil && ctx.Err() == nil {
				time.Sleep(50 * time.Millisecond)
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *watch) follow(ctx context.Context) error {
	changes, err := w.store.Watch(ctx)
	if err != nil {
		return err
	}
	defer changes.Close()
	for {
		jobs, err := changes.Next(ctx)
		if err != nil {
			return err
		}
		if slices.Contains(jobs.Jobs(), job) {
			if err := w.read(ctx); err != nil {
				return err
			}
		}
	}
}

// read takes the newest assignment and those between it and the last.
func (w *watch) read(ctx context.Context) error {
	at := boottime.Now()
	a, err := w.store.Read(ctx, job)
	if err != nil {
		return err
	}
	var last assignment.Generation
	if known := w.newest(); known != nil {
		last = known.Generation()
	}
	var fresh []Stored
	for a.Generation() > last {
		fresh = append(fresh, Stored{at, a})
		if a.Previous() <= last {
			break
		}
		if a, err = w.store.ReadGeneration(ctx, job, a.Previous()); err != nil {
			break // not kept any more
		}
	}
	slices.Reverse(fresh)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, fresh...)
	return nil
}

// listen is a watch of a store that only one process has: what that process tells,
// it has stored before.
func listen(t *testing.T, distributor string) *watch {
	t.Helper()
	c, err := clerk.New(clerk.Config{Job: job, Distributors: []string{distributor}})
	if err != nil {
		t.Fatal(err)
	}
	w := &watch{}
	over := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			changed := c.Changed()
			if a := c.Assignment(); a != nil {
				w.mu.Lock()
				if n := len(w.all); n == 0 || w.all[n-1].A != a {
					w.all = append(w.all, Stored{boottime.Now(), a})
				}
				w.mu.Unlock()
			}
			select {
			case <-changed:
			case <-over:
				return
			}
		}
	})
	t.Cleanup(func() {
		close(over)
		wg.Wait()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *watch) newest() *assignment.Assignment {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.all) == 0 {
		return nil
	}
	return w.all[len(w.all)-1].A
}

func (w *watch) stored() []Stored {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.all)
}
