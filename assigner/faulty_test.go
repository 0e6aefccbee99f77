package assigner

import (
	"context"
	"sync"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
)

// faulty is a store whose calls about jobs can be made to hang or to fail.
type faulty struct {
	store.Backend
	mu    sync.Mutex
	err   error
	hangs chan struct{} // closed when it hangs no more; nil while it does not
}

func newFaulty(b store.Backend) *faulty { return &faulty{Backend: b} }

func (f *faulty) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *faulty) hang(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if on {
		f.hangs = make(chan struct{})
	} else if f.hangs != nil {
		close(f.hangs)
		f.hangs = nil
	}
}

func (f *faulty) enter(ctx context.Context) error {
	f.mu.Lock()
	hangs := f.hangs
	f.mu.Unlock()
	if hangs != nil {
		select {
		case <-hangs:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

func (f *faulty) GetJob(ctx context.Context, name string) (store.Job, error) {
	if err := f.enter(ctx); err != nil {
		return store.Job{}, err
	}
	return f.Backend.GetJob(ctx, name)
}

func (f *faulty) Read(ctx context.Context, job string) (*assignment.Assignment, error) {
	if err := f.enter(ctx); err != nil {
		return nil, err
	}
	return f.Backend.Read(ctx, job)
}

func (f *faulty) Write(ctx context.Context, next *assignment.Assignment) error {
	if err := f.enter(ctx); err != nil {
		return err
	}
	return f.Backend.Write(ctx, next)
}

func (f *faulty) Commit(ctx context.Context, c store.Commit) error {
	if err := f.enter(ctx); err != nil {
		return err
	}
	return f.Backend.Commit(ctx, c)
}

func (f *faulty) ListJobs(ctx context.Context) ([]store.Job, error) {
	if err := f.enter(ctx); err != nil {
		return nil, err
	}
	return f.Backend.ListJobs(ctx)
}
