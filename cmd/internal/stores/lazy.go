package stores

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/backoff"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/store/etcdstore"
	"github.com/slicer-project/slicer/cmd/internal/run"
)

// Lazy is one of several stores of a process: it need not answer when the process
// starts, and one that does not is nothing to the jobs of the others. Until it has
// answered once every call fails with store.ErrUnavailable, and ID is 0.
type Lazy struct {
	name   string
	log    *slog.Logger
	failed chan struct{}
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex
	opened backend
	why    error // opened is nil
}

// backend is what etcdstore.Store is.
type backend interface {
	store.Backend
	store.Fencer
	store.Compactor
}

var _ backend = (*Lazy)(nil)

// OpenLazily begins to open a store, and goes on until it answers.
func OpenLazily(s Spec, log *slog.Logger) *Lazy {
	return openLazily(s.Name, s.String(), log, func(ctx context.Context) (backend, error) {
		return etcdstore.Open(ctx, s.config(log.With("store", s.Name)))
	})
}

func openLazily(name, url string, log *slog.Logger, open func(context.Context) (backend, error)) *Lazy {
	ctx, cancel := context.WithCancel(context.Background())
	l := &Lazy{
		name: name, log: log.With("store", name, "url", url), failed: make(chan struct{}), cancel: cancel,
		why: fmt.Errorf("store %s has not answered yet: %w", name, store.ErrUnavailable),
	}
	l.wg.Go(func() {
		b := l.open(ctx, open)
		if b == nil {
			return
		}
		select {
		case <-b.Failed():
			close(l.failed)
		case <-ctx.Done():
		}
	})
	return l
}

// open returns nil when ctx has ended first.
func (l *Lazy) open(ctx context.Context, open func(context.Context) (backend, error)) backend {
	for {
		try, cancel := context.WithTimeout(ctx, tryFor)
		b, err := open(try)
		cancel()
		switch {
		case err == nil:
			l.mu.Lock()
			l.opened = b
			l.mu.Unlock()
			l.log.Info("store opened")
			return b
		case ctx.Err() != nil:
			return nil
		}
		l.log.Warn("the store does not answer; only its own jobs wait for it", "error", err)
		l.mu.Lock()
		l.why = fmt.Errorf("store %s: %w: %v", l.name, store.ErrUnavailable, err)
		l.mu.Unlock()
		if !backoff.Sleep(ctx, backoff.About(pause)) {
			return nil
		}
	}
}

func (l *Lazy) get() (backend, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.opened == nil {
		return nil, l.why
	}
	return l.opened, nil
}

// through calls a method of the store, if it is there.
func through[T any](l *Lazy, f func(backend) (T, error)) (T, error) {
	b, err := l.get()
	if err != nil {
		var none T
		return none, err
	}
	return f(b)
}

func (l *Lazy) do(f func(backend) error) error {
	b, err := l.get()
	if err != nil {
		return err
	}
	return f(b)
}

// ID implements store.Store.
func (l *Lazy) ID() uint64 {
	if b, err := l.get(); err == nil {
		return b.ID()
	}
	return 0
}

// GetJob implements store.Store.
func (l *Lazy) GetJob(ctx context.Context, name string) (store.Job, error) {
	return through(l, func(b backend) (store.Job, error) { return b.GetJob(ctx, name) })
}

// ListJobs implements store.Store.
func (l *Lazy) ListJobs(ctx context.Context) ([]store.Job, error) {
	return through(l, func(b backend) ([]store.Job, error) { return b.ListJobs(ctx) })
}

// PutJob implements store.Store.
func (l *Lazy) PutJob(ctx context.Context, c assignment.JobConfig, expect int64) (store.Job, error) {
	return through(l, func(b backend) (store.Job, error) { return b.PutJob(ctx, c, expect) })
}

// DeleteJob implements store.Store.
func (l *Lazy) DeleteJob(ctx context.Context, name string) error {
	return l.do(func(b backend) error { return b.DeleteJob(ctx, name) })
}

// Read implements store.Store.
func (l *Lazy) Read(ctx context.Context, job string) (*assignment.Assignment, error) {
	return through(l, func(b backend) (*assignment.Assignment, error) { return b.Read(ctx, job) })
}

// ReadGeneration implements store.Store.
func (l *Lazy) ReadGeneration(ctx context.Context, job string, g assignment.Generation) (*assignment.Assignment, error) {
	return through(l, func(b backend) (*assignment.Assignment, error) { return b.ReadGeneration(ctx, job, g) })
}

// Write implements store.Store.
func (l *Lazy) Write(ctx context.Context, next *assignment.Assignment) error {
	return l.do(func(b backend) error { return b.Write(ctx, next) })
}

// WriteFenced implements store.Fencer.
func (l *Lazy) WriteFenced(ctx context.Context, next *assignment.Assignment, token int64) error {
	return l.do(func(b backend) error { return b.WriteFenced(ctx, next, token) })
}

// Check implements store.Store.
func (l *Lazy) Check(ctx context.Context, write bool) error {
	return l.do(func(b backend) error { return b.Check(ctx, write) })
}

// Watch implements store.Store.
func (l *Lazy) Watch(ctx context.Context) (store.Watcher, error) {
	return through(l, func(b backend) (store.Watcher, error) { return b.Watch(ctx) })
}

// Register implements store.Registry.
func (l *Lazy) Register(ctx context.Context, c store.Candidate) (store.Registration, error) {
	return through(l, func(b backend) (store.Registration, error) { return b.Register(ctx, c) })
}

// Candidates implements store.Registry.
func (l *Lazy) Candidates(ctx context.Context) (store.CandidateWatcher, error) {
	return through(l, func(b backend) (store.CandidateWatcher, error) { return b.Candidates(ctx) })
}

// Usage implements store.Compactor.
func (l *Lazy) Usage(ctx context.Context) (store.Usage, error) {
	return through(l, func(b backend) (store.Usage, error) { return b.Usage(ctx) })
}

// Revision implements store.Compactor.
func (l *Lazy) Revision(ctx context.Context) (int64, error) {
	return through(l, func(b backend) (int64, error) { return b.Revision(ctx) })
}

// Compact implements store.Compactor.
func (l *Lazy) Compact(ctx context.Context, rev int64) error {
	return l.do(func(b backend) error { return b.Compact(ctx, rev) })
}

// CompactsBy implements store.Compactor.
func (l *Lazy) CompactsBy() string { return (*etcdstore.Store)(nil).CompactsBy() }

// Failed implements store.Backend.
func (l *Lazy) Failed() <-chan struct{} { return l.failed }

// Err implements store.Backend.
func (l *Lazy) Err() error {
	b, err := l.get()
	if err != nil {
		return nil
	}
	return b.Err()
}

// Close ends the attempts to open the store, or the store.
func (l *Lazy) Close() error {
	l.cancel()
	l.wg.Wait()
	if b, err := l.get(); err == nil {
		return b.Close()
	}
	return nil
}

// Opened is a store of a process, with its leases.
type Opened struct {
	Name    string
	Backend store.Backend
	Leases  *Leases
	// Ending is the process's when the store can never work again in it.
	Ending run.Ending
}

// OpenAll opens the stores of a process. A single one is waited for, as Open does;
// of several any may be down.
func OpenAll(ctx context.Context, specs []Spec, p *run.Process) ([]Opened, error) {
	var all []Opened
	log := p.Log
	for _, s := range specs {
		if err := s.secure(p); err != nil {
			return nil, err
		}
		var b store.Backend
		var err error
		if len(specs) > 1 {
			b = OpenLazily(s, log)
		} else if b, err = Open(ctx, s, log, p.Status); err != nil {
			return nil, err
		}
		all = append(all, Opened{Name: s.Name, Backend: b, Leases: NewLeases(s, log), Ending: run.Ending{Done: b.Failed(), Err: b.Err}})
	}
	return all, nil
}
