package stores

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/slicer-project/slicer/lease"
	etcdlease "github.com/slicer-project/slicer/lease/etcd"
)

// Leases are the leases of consistent mode in the cluster of a store. Nothing is
// asked of the cluster before the first job in that mode needs it; then one that is too
// old is refused, each time anew, so that it works as soon as it was brought up to date.
type Leases struct {
	spec Spec
	log  *slog.Logger

	mu     sync.Mutex
	opened *etcdlease.Store
	closed bool
}

var errClosed = errors.New("leases are closed")

// NewLeases makes them for a store. They lie below its prefix.
func NewLeases(s Spec, log *slog.Logger) *Leases { return &Leases{spec: s, log: log} }

// OpenWriter implements lease.Writers.
func (l *Leases) OpenWriter(ctx context.Context, ttl time.Duration) (lease.WriteSession, error) {
	st, err := l.Open(ctx)
	if err != nil {
		return nil, err
	}
	return st.OpenWriter(ctx, ttl)
}

// Open opens the lease store, or returns the one that is open. It stays this type's.
func (l *Leases) Open(ctx context.Context) (*etcdlease.Store, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, errClosed
	}
	if l.opened == nil {
		st, err := etcdlease.Open(ctx, etcdlease.Config{Endpoints: l.spec.url.Endpoints, Prefix: l.spec.url.Prefix, TLS: l.spec.tls, Logger: l.log})
		if err != nil {
			return nil, err
		}
		l.opened = st
	}
	return l.opened, nil
}

// Close ends the connections, if there are any.
func (l *Leases) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.opened == nil {
		return nil
	}
	return l.opened.Close()
}
