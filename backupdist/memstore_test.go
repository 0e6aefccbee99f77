package backupdist

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
)

// memStore is a store in memory that can be made to fail.
type memStore struct {
	store.Store // what a Backup Distributor must not call panics

	mu       sync.Mutex
	err      error // of every call, if not nil
	jobs     map[string]store.Job
	kept     map[string][]*assignment.Assignment // newest last
	watchers map[*memWatcher]struct{}
	reads    int
	older    int           // calls of ReadGeneration
	hold     chan struct{} // what ReadGeneration waits for, if not nil
}

func newMemStore() *memStore {
	return &memStore{
		jobs: make(map[string]store.Job), kept: make(map[string][]*assignment.Assignment), watchers: make(map[*memWatcher]struct{}),
	}
}

func (m *memStore) name(job string) {
	for w := range m.watchers {
		w.pending[job] = struct{}{}
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

func (m *memStore) put(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.jobs[name] = store.Job{Config: assignment.JobConfig{Name: name}.WithDefaults(), Version: m.jobs[name].Version + 1}
	m.name(name)
}

func (m *memStore) write(a *assignment.Assignment) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kept[a.Job()] = append(m.kept[a.Job()], a)
	m.name(a.Job())
}

func (m *memStore) remove(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.jobs, name)
	delete(m.kept, name)
	m.name(name)
}

func (m *memStore) Check(context.Context, bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

func (m *memStore) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
	for w := range m.watchers {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

func (m *memStore) readCount() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.reads
}

func (m *memStore) GetJob(_ context.Context, name string) (store.Job, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	j, ok := m.jobs[name]
	if m.err == nil && !ok {
		return j, store.ErrNotFound
	}
	return j, m.err
}

func (m *memStore) ListJobs(context.Context) (jobs []store.Job, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, j := range m.jobs {
		jobs = append(jobs, j)
	}
	return jobs, m.err
}

func (m *memStore) Read(_ context.Context, job string) (*assignment.Assignment, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads++
	k := m.kept[job]
	switch {
	case m.err != nil:
		return nil, m.err
	case len(k) == 0:
		return nil, store.ErrNotFound
	}
	return k[len(k)-1], nil
}

func (m *memStore) ReadGeneration(ctx context.Context, job string, g assignment.Generation) (*assignment.Assignment, error) {
	m.mu.Lock()
	m.older++
	hold := m.hold
	m.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.kept[job]
	i := slices.IndexFunc(k, func(a *assignment.Assignment) bool { return a.Generation() == g })
	switch {
	case m.err != nil:
		return nil, m.err
	case i < 0:
		return nil, store.ErrNotFound
	}
	return k[i], nil
}

type memWatcher struct {
	m       *memStore
	wake    chan struct{}
	pending map[string]struct{}
	first   bool
}

func (m *memStore) Watch(context.Context) (store.Watcher, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return nil, m.err
	}
	w := &memWatcher{m: m, wake: make(chan struct{}, 1), pending: make(map[string]struct{}), first: true}
	for name := range m.jobs {
		w.pending[name] = struct{}{}
	}
	m.watchers[w] = struct{}{}
	return w, nil
}

func (w *memWatcher) Next(ctx context.Context) (store.Changes, error) {
	for {
		w.m.mu.Lock()
		var names store.Changes
		for name := range w.pending {
			names = append(names, store.Change{Job: name, Version: -1})
		}
		clear(w.pending)
		err, first := w.m.err, w.first
		w.first = false
		w.m.mu.Unlock()
		switch {
		case err != nil:
			return nil, err
		case first || len(names) > 0:
			slices.SortFunc(names, func(x, y store.Change) int { return strings.Compare(x.Job, y.Job) })
			return names, nil
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (w *memWatcher) Close() error {
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	delete(w.m.watchers, w)
	return nil
}

// assigned makes the assignment of a generation: slices, dealt out by the number.
func assigned(t testing.TB, prev *assignment.Assignment, job string, storeID uint64, g assignment.Generation, slices int) *assignment.Assignment {
	t.Helper()
	tasks := []assignment.Task{
		{Name: "a", Incarnation: 1, Address: "h:1", Index: 0, Weight: 1, State: assignment.TaskRunning},
		{Name: "b", Incarnation: 2, Address: "h:2", Index: 1, Weight: 1, State: assignment.TaskRunning},
	}
	p := assignment.Placement{Starts: assignment.Equal(slices), Owners: make([]uint32, slices)}
	p.Owners[int(g)%slices] = 1
	a, err := assignment.Successor(prev, assignment.Header{Job: job, StoreID: storeID, Generation: g}, tasks, p)
	if err != nil {
		t.Fatal(err)
	}
	return a
}
