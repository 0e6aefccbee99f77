package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/slicer-project/slicer/assignment/store"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Check implements store.Store. To be read, etcd needs a quorum. To be written it needs
// room besides: the transaction that is sent would put a record on a condition that never
// holds, which etcd refuses as it refuses every write, and which makes no revision.
func (s *Store) Check(ctx context.Context, write bool) error {
	ctx, done, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	key := s.layout.ID()
	t := txn{do: []clientv3.Op{clientv3.OpGet(key)}}
	if write {
		t = txn{
			when: []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "<", 0)},
			do:   []clientv3.Op{clientv3.OpPut(key, s.idSeal)},
			els:  t.do,
		}
	}
	resp, err := s.patiently(clientv3.WithRequireLeader(ctx), t)
	if err != nil {
		return err
	}
	return s.sameIdentity(resp, 0)
}

// noteTrouble keeps why etcd did not take the last request, which the client forgets when
// the request's time is over.
func (s *Store) noteTrouble(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := invoke(ctx, method, req, reply, cc, opts...)
	switch status.Code(err) {
	case codes.Unavailable:
		s.trouble.Store(&err)
	case codes.DeadlineExceeded, codes.Canceled:
		// gRPC says in words what its last attempt to connect came to.
		if strings.Contains(err.Error(), "connection error") {
			s.trouble.Store(&err)
		}
	default:
		s.trouble.Store(nil)
	}
	return err
}

// unanswered is the error of a call whose time is over. It says why, if that is known.
func (s *Store) unanswered(ended, err error) error {
	if last := s.trouble.Load(); last != nil && (errors.Is(err, ended) || status.Code(err) == codes.DeadlineExceeded) {
		err = *last
	}
	if errors.Is(err, ended) {
		return fmt.Errorf("%w: no answer from %v in time: %w", store.ErrUnavailable, s.cfg.Endpoints, ended)
	}
	return fmt.Errorf("%w: no answer from %v in time: %w: %s", store.ErrUnavailable, s.cfg.Endpoints, ended, cause(err))
}

// cause is what an error of the client's says, without gRPC's wrapping.
func cause(err error) string {
	msg := err.Error()
	if st, ok := status.FromError(err); ok {
		msg = st.Message()
	}
	if _, why, ok := strings.Cut(msg, "connection error: desc = "); ok {
		msg = strings.ReplaceAll(strings.Trim(why, `"`), `\"`, `"`)
		msg = strings.TrimPrefix(strings.TrimPrefix(msg, "transport: "), "Error while dialing: ")
	}
	switch {
	case strings.Contains(msg, "error reading server preface") && !strings.Contains(msg, "presented"):
		msg += " (does it want TLS? then the store's URL needs ?ca=FILE)"
	case strings.Contains(msg, "first record does not look like a TLS handshake"), strings.Contains(msg, "handshake failed: EOF"):
		msg += " (does it speak plain text? then the store's URL goes without ca, cert and key)"
	}
	return msg
}

var _ store.Compactor = (*Store)(nil)

// Usage implements store.Compactor. It asks each member; those that do not answer are
// left out. etcd before 3.6 does not tell the quota.
func (s *Store) Usage(ctx context.Context) (u store.Usage, err error) {
	ctx, done, err := s.begin(ctx)
	if err != nil {
		return u, err
	}
	defer done()
	for _, e := range s.cfg.Endpoints {
		resp, failed := s.client.Status(ctx, e)
		if failed != nil {
			err = failed
			continue
		}
		if resp.DbSize > u.Size {
			u.Size, u.InUse = resp.DbSize, resp.DbSizeInUse
		}
		u.Quota = max(u.Quota, resp.DbSizeQuota)
	}
	if u.Size == 0 && err != nil {
		return u, s.explain(ctx, err)
	}
	newest, err := s.revision(ctx)
	if err != nil {
		return u, err
	}
	if u.Compacted, err = s.compacted(ctx); err != nil {
		return u, err
	}
	u.Uncompacted = max(newest-u.Compacted, 0)
	return u, nil
}

// Revision implements store.Compactor.
func (s *Store) Revision(ctx context.Context) (int64, error) {
	ctx, done, err := s.begin(ctx)
	if err != nil {
		return 0, err
	}
	defer done()
	return s.revision(ctx)
}

func (s *Store) revision(ctx context.Context) (int64, error) {
	resp, err := s.client.Get(ctx, s.layout.ID(), clientv3.WithCountOnly())
	if err != nil {
		return 0, s.explain(ctx, err)
	}
	return resp.Header.Revision, nil
}

// compacted is the revision that etcd was compacted at last, 0 if it never was. A watch
// from the first revision is told of it; one that is not is sent the making of the identity.
func (s *Store) compacted(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	resp, ok := <-s.client.Watch(ctx, s.layout.ID(), clientv3.WithRev(1))
	switch {
	case resp.CompactRevision > 0:
		return resp.CompactRevision, nil
	case !ok && ctx.Err() != nil:
		return 0, s.explain(ctx, ctx.Err())
	case resp.Err() != nil:
		return 0, s.explain(ctx, resp.Err())
	}
	return 0, nil
}

// Compact implements store.Compactor.
func (s *Store) Compact(ctx context.Context, rev int64) error {
	ctx, done, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	if _, err := s.client.Compact(ctx, rev); err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		return s.explain(ctx, err)
	}
	return nil
}

// CompactsBy implements store.Compactor.
func (s *Store) CompactsBy() string {
	return "etcd's flags --auto-compaction-mode=periodic --auto-compaction-retention=1h, or --etcd-compact here if nothing else uses this etcd"
}
