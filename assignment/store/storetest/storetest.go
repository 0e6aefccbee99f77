// Package storetest is what every store has to pass:
//
//	func TestConformance(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) storetest.Fixture { ... })
//	}
//
// It holds the contract of package store in the form of tests, and builders of
// assignments for tests of the implementations' own.
package storetest

import (
	"context"
	"errors"
	"testing"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
)

// Fixture is one store, empty at first.
type Fixture struct {
	// Open opens a handle. The suite closes it.
	Open func() (store.Backend, error)
	// Shared says that several handles may be open at once, as by several processes.
	Shared bool
	// Keep is how many generations the store keeps.
	Keep int
	// Raw opens the records themselves. The suite calls it while no handle is open.
	Raw func() (Raw, error)
}

// Raw is a store seen from below.
type Raw interface {
	// Keys of all records, in order.
	Keys() ([]string, error)
	Get(key string) ([]byte, error)
	Put(key string, value []byte) error
	Delete(key string) error
	Close() error
}

// Run runs the suite, its tests side by side; create makes a fixture for each test.
func Run(t *testing.T, create func(t *testing.T) Fixture) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, *harness)
	}{
		{"Identity", testIdentity},
		{"Jobs", testJobs},
		{"JobVersions", testJobVersions},
		{"JobRaces", testJobRaces},
		{"CreatedBy", testCreatedBy},
		{"Assignments", testAssignments},
		{"Refusals", testRefusals},
		{"History", testHistory},
		{"DeletedAndMadeAnew", testDeletedAndMadeAnew},
		{"Large", testLarge},
		{"Races", testRaces},
		{"Model", testModel},
		{"Watch", testWatch},
		{"WatchSays", testWatchSays},
		{"WatchStuckReader", testWatchStuckReader},
		{"WatchEnds", testWatchEnds},
		{"Overrides", testOverrides},
		{"OverridesDeleted", testOverridesDeleted},
		{"ControlRaces", testControlRaces},
		{"Noted", testNoted},
		{"NotedRaces", testNotedRaces},
		{"Names", testNames},
		{"NamesLeft", testNamesLeft},
		{"NamesRaces", testNamesRaces},
		{"Commits", testCommits},
		{"HistoryRing", testHistoryRing},
		{"Corrupt", testCorrupt},
		{"Missing", testMissing},
		{"DeleteCorrupt", testDeleteCorrupt},
		{"Contexts", testContexts},
		{"Check", testCheck},
		{"Closed", testClosed},
		{"Registry", testRegistry},
		{"RegistryEnds", testRegistryEnds},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t, &harness{T: t, Fixture: create(t)})
		})
	}
}

// harness opens handles and cuts short what has to succeed.
type harness struct {
	*testing.T
	Fixture
}

// open returns a handle that is closed when the test ends, if not before.
func (h *harness) open() store.Backend {
	h.Helper()
	s, err := h.Open()
	if err != nil {
		h.Fatalf("open: %v", err)
	}
	h.Cleanup(func() { h.close(s) })
	return s
}

func (h *harness) close(s store.Backend) {
	h.Helper()
	if err := s.Close(); err != nil {
		h.Errorf("close: %v", err)
	}
}

// another returns a second handle if there can be one, else the same.
func (h *harness) another(s store.Backend) store.Backend {
	if h.Shared {
		return h.open()
	}
	return s
}

func (h *harness) job(s store.Store, name string) {
	h.Helper()
	if _, err := s.PutJob(h.Context(), assignment.JobConfig{Name: name}, store.NoVersion); err != nil {
		h.Fatalf("put job %s: %v", name, err)
	}
}

func (h *harness) write(s store.Store, a *assignment.Assignment) {
	h.Helper()
	if err := s.Write(h.Context(), a); err != nil {
		h.Fatalf("write %v: %v", a, err)
	}
}

// reads checks that the newest assignment is want.
func (h *harness) reads(s store.Store, want *assignment.Assignment) {
	h.Helper()
	got, err := s.Read(h.Context(), want.Job())
	if err != nil {
		h.Fatalf("read %s: %v, want %v", want.Job(), err, want)
	}
	h.same(got, want)
}

// readsGeneration checks an older one.
func (h *harness) readsGeneration(s store.Store, want *assignment.Assignment) {
	h.Helper()
	got, err := s.ReadGeneration(h.Context(), want.Job(), want.Generation())
	if err != nil {
		h.Fatalf("read generation %d: %v", want.Generation(), err)
	}
	h.same(got, want)
}

func (h *harness) same(got, want *assignment.Assignment) {
	h.Helper()
	if !Same(got, want) {
		h.Fatalf("%v with checksum %016x, want %v with %016x", got, got.Checksum(), want, want.Checksum())
	}
}

func (h *harness) is(err, want error) {
	h.Helper()
	if !errors.Is(err, want) {
		h.Errorf("error %v, want one that is %v", err, want)
	}
}

// conflict checks that err is a conflict with what is stored.
func (h *harness) conflict(err error, current int64) {
	h.Helper()
	var c *store.ConflictError
	if !errors.Is(err, store.ErrConflict) || !errors.As(err, &c) || c.Current != current || c.Key == "" {
		h.Errorf("error %v, want a conflict with %d", err, current)
	}
}

// names waits until every job of want, and no other, has been named.
func (h *harness) names(w store.Watcher, want ...string) {
	h.Helper()
	left := make(map[string]bool)
	for _, n := range want {
		left[n] = true
	}
	for len(left) > 0 {
		names, err := w.Next(h.Context())
		if err != nil {
			h.Fatalf("next: %v, still waiting for %v", err, left)
		}
		for _, n := range names.Jobs() {
			// A change may be named twice, when it was read while it was made.
			if !left[n] && !contains(want, n) {
				h.Errorf("%s is named, want only %v", n, want)
			}
			delete(left, n)
		}
	}
}

func contains(names []string, name string) bool {
	for _, n := range names {
		if n == name {
			return true
		}
	}
	return false
}

// canceled returns a ctx that has ended.
func canceled(parent context.Context) context.Context {
	ctx, cancel := context.WithCancel(parent)
	cancel()
	return ctx
}
