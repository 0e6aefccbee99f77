package assigner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/slicer-project/slicer/assignment/backoff"
	"github.com/slicer-project/slicer/assignment/store"
)

// storeWatch watches one store, and keeps what is known of it.
type storeWatch struct {
	a        *Assigner
	index    int
	name     string
	backend  store.Backend
	log      *slog.Logger
	leases   *leaseManager
	health   health
	room     room
	attached chan struct{} // holds a token when a Distributor has come or gone

	mu         sync.Mutex
	listed     bool // the jobs are known
	seen       bool // the candidates are known
	candidates []store.Candidate
	revision   int64
	err        error // why one of them cannot be watched just now
}

func newStoreWatch(a *Assigner, index int, s NamedStore) *storeWatch {
	sh := &storeWatch{a: a, index: index, name: s.Name, backend: s.Backend, log: a.log.With("store", s.label()), attached: make(chan struct{}, 1)}
	sh.leases = newLeaseManager(sh, s.Leases, a.cfg.LeaseTTL)
	return sh
}

func (s NamedStore) label() string {
	if s.Name == "" {
		return "default"
	}
	return s.Name
}

func (s *storeWatch) label() string { return NamedStore{Name: s.name}.label() }

func (s *storeWatch) ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.listed && s.seen:
		if err := s.health.problem(); err != nil {
			return fmt.Errorf("store %s: %w", s.label(), err)
		}
		return nil
	case s.err != nil:
		return fmt.Errorf("store %s: %w", s.label(), s.err)
	}
	return fmt.Errorf("store %s has not answered yet", s.label())
}

// view is which assigners can be preferred for the jobs of this store.
func (s *storeWatch) view() (candidates []store.Candidate, revision int64, seen bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.candidates, s.revision, s.seen
}

func (s *storeWatch) failed(what string, err error) {
	s.mu.Lock()
	s.err = fmt.Errorf("%s: %w", what, err)
	s.mu.Unlock()
	s.log.Warn("store failed", "error", err, "what", what)
}

// Waits between attempts at a store.
const (
	retryMin = 100 * time.Millisecond
	retryMax = 5 * time.Second
	// registerWithin bounds one attempt to register.
	registerWithin = 5 * time.Second
	// vacantFor is how long an assigner without a Distributor stays a candidate.
	vacantFor = 3 * time.Second
)

// forever calls f again and again until ctx ends, waiting longer and longer between
// failures. f reports whether it got anywhere.
func (s *storeWatch) forever(what string, f func(ctx context.Context) (progress bool, err error)) {
	s.foreverWithin(retryMax, what, f)
}

// foreverWithin is forever with waits of at most so long, or half as long again.
func (s *storeWatch) foreverWithin(most time.Duration, what string, f func(ctx context.Context) (progress bool, err error)) {
	ctx := s.a.ctx
	for wait := retryMin; ; {
		progress, err := f(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			s.failed(what, err)
		}
		if progress {
			wait = retryMin
		}
		if !backoff.Sleep(ctx, backoff.About(wait)) {
			return
		}
		wait = min(2*wait, most)
	}
}

// watchJobs tells the jobs' runners when something of theirs has changed.
func (s *storeWatch) watchJobs() {
	s.forever("watch jobs", func(ctx context.Context) (progress bool, err error) {
		w, err := s.backend.Watch(ctx)
		if err != nil {
			return false, err
		}
		defer func() { err = errors.Join(err, w.Close()) }()
		for {
			all, err := w.Next(ctx)
			if err != nil {
				return progress, err
			}
			progress = true
			for _, c := range all {
				s.a.told(s, c)
			}
			s.mu.Lock()
			s.listed = true
			s.mu.Unlock()
		}
	})
}

// watchCandidates keeps which assigners can be preferred.
func (s *storeWatch) watchCandidates() {
	s.forever("watch assigners", func(ctx context.Context) (progress bool, err error) {
		w, err := s.backend.Candidates(ctx)
		if err != nil {
			return false, err
		}
		defer func() { err = errors.Join(err, w.Close()) }()
		for {
			cs, rev, err := w.Next(ctx)
			if err != nil {
				return progress, err
			}
			progress = true
			s.mu.Lock()
			s.candidates, s.revision, s.seen = cs, rev, true
			s.mu.Unlock()
			ids := make([]string, len(cs))
			for i, c := range cs {
				ids[i] = c.ID
			}
			s.log.Info("assigners changed", "candidates", ids, "revision", rev)
			notify(s.a.dirty)
		}
	})
}

// campaign keeps the assigner a candidate while it has a Distributor.
func (s *storeWatch) campaign() {
	var reg store.Registration
	withdraw := func(why string) {
		if reg != nil {
			if err := reg.Close(); err != nil {
				s.log.Warn("withdrawal failed", "error", err)
			}
			reg = nil
			s.health.candidacy(nil, nil)
			s.log.Info("candidacy withdrawn", "reason", why)
		}
	}
	defer withdraw("closing")
	s.forever("register", func(ctx context.Context) (progress bool, err error) {
		for {
			switch unattached := len(s.a.sessions()) == 0; {
			case unattached && reg != nil:
				// It may come back at once.
				if !backoff.Sleep(ctx, vacantFor) {
					return progress, nil
				}
				if len(s.a.sessions()) == 0 {
					withdraw("no Distributor is connected")
				}
			case !unattached && reg == nil:
				call, cancel := context.WithTimeout(ctx, registerWithin)
				r, err := s.backend.Register(call, s.a.cfg.candidate())
				cancel()
				s.health.candidacy(r, err)
				if err != nil {
					return progress, err
				}
				reg, progress = r, true
				s.log.Info("registered as a candidate", "reason", "a Distributor is connected")
			default:
				select {
				case <-s.attached:
				case <-ctx.Done():
					return progress, nil
				}
			}
		}
	})
}
