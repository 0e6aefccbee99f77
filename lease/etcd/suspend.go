package etcdlease

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/slicer-project/slicer/lease"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Suspend implements lease.Suspender, rounded up to whole seconds. Its errors match
// lease.ErrUnavailable or ctx's; the store may be suspended all the same.
func (s *Store) Suspend(ctx context.Context, d time.Duration) error {
	if err := lease.CheckTTL(d); err != nil {
		return fmt.Errorf("suspend leases: %w", err)
	}
	granted, err := s.client.Grant(ctx, seconds(d))
	if err != nil {
		return explain(ctx, err)
	}
	if _, err := s.client.Put(ctx, s.suspended+strconv.FormatInt(int64(granted.ID), 16), "", clientv3.WithLease(granted.ID)); err != nil {
		return explain(ctx, err)
	}
	return nil
}

// running compares that the store is not suspended: of a range every key must
// compare, so there may be none.
func (s *Store) running() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(s.suspended), "=", 0).WithPrefix()
}

// suspensions counts what suspends the store.
func (s *Store) suspensions() clientv3.Op {
	return clientv3.OpGet(s.suspended, clientv3.WithPrefix(), clientv3.WithCountOnly())
}

// seconds is d in those that etcd counts, rounded up.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
