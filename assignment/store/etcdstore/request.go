package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/backoff"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/store/internal/record"
)

// begin starts a call: ctx with the deadline that every call has, ended by the
// store's close too.
func (s *Store) begin(ctx context.Context) (context.Context, func(), error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, s.explain(ctx, err)
	}
	s.mu.Lock()
	err := s.err
	if s.closed {
		err = store.ErrClosed
	}
	s.mu.Unlock()
	if err != nil {
		return nil, nil, err
	}
	var cancel context.CancelFunc
	if _, ok := ctx.Deadline(); ok {
		ctx, cancel = context.WithCancel(ctx)
	} else {
		ctx, cancel = context.WithTimeout(ctx, s.cfg.RequestTimeout)
	}
	stop := context.AfterFunc(s.ctx, cancel)
	return ctx, func() { stop(); cancel() }, nil
}

// beginFor is begin for a call about one job.
func (s *Store) beginFor(ctx context.Context, job string) (context.Context, func(), error) {
	if err := assignment.ValidateJobName(job); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", store.ErrNotFound, err)
	}
	return s.begin(ctx)
}

// txn is one transaction.
type txn struct {
	when []clientv3.Cmp
	do   []clientv3.Op
	els  []clientv3.Op
}

// commit sends one transaction.
func (s *Store) commit(ctx context.Context, t txn) (*clientv3.TxnResponse, error) {
	resp, err := s.client.Txn(ctx).If(t.when...).Then(t.do...).Else(t.els...).Commit()
	if err != nil {
		return nil, s.explain(ctx, err)
	}
	return resp, nil
}

// view sends a transaction that only reads, again as long as no member takes it.
func (s *Store) view(ctx context.Context, ops ...clientv3.Op) (*clientv3.TxnResponse, error) {
	return s.patiently(ctx, txn{do: ops})
}

// patiently sends a transaction again as long as no member takes it. The client does so
// for single gets; a transaction that writes may have been carried out, and is not for here.
func (s *Store) patiently(ctx context.Context, t txn) (*clientv3.TxnResponse, error) {
	for wait := viewBackoffMin; ; wait = min(2*wait, viewBackoffMax) {
		resp, err := s.client.Txn(ctx).If(t.when...).Then(t.do...).Else(t.els...).Commit()
		if err == nil {
			return resp, nil
		}
		if codeOf(err) != codes.Unavailable && status.Code(err) != codes.Unavailable {
			return nil, s.explain(ctx, err)
		}
		if !backoff.Sleep(ctx, backoff.About(wait)) {
			return nil, s.explain(ctx, err)
		}
	}
}

const (
	viewBackoffMin = 10 * time.Millisecond
	viewBackoffMax = 300 * time.Millisecond
)

// got is the i-th answer of a transaction, to a get of one key: its value and its
// mod revision, which is 0 if there is none.
func got(resp *clientv3.TxnResponse, i int) (value []byte, rev int64) {
	kvs := resp.Responses[i].GetResponseRange().Kvs
	if len(kvs) == 0 {
		return nil, 0
	}
	return kvs[0].Value, kvs[0].ModRevision
}

// sameIdentity takes the answer to a get of the identity. It fails the store when
// it is another one now: it was wiped, and a watch on it might wait for ever.
func (s *Store) sameIdentity(resp *clientv3.TxnResponse, i int) error {
	if value, _ := got(resp, i); string(value) == s.idSeal {
		return nil
	}
	return s.fail(fmt.Errorf("%w: %s is no longer store %016x: it was wiped; restart", store.ErrUnavailable, s.cfg.where(), s.ID()))
}

const (
	// scanFirst bounds the records of a scan's first answer: 8 MiB if they are
	// pieces. From there on the answers are of scanBytes or so.
	scanFirst = 16
	scanBytes = 8 << 20
)

// moment shows the store at one revision, the newest if it is 0.
type moment struct {
	s   *Store
	rev int64
}

// Scan implements record.Source.
func (m moment) Scan(ctx context.Context, from, to string) ([]record.KV, error) {
	var out []record.KV
	for size, limit := 0, scanFirst; ; limit = min(max(scanBytes/(size/len(out)+1), scanFirst), 1000) {
		resp, err := m.s.client.Get(ctx, from, clientv3.WithRange(to), clientv3.WithRev(m.rev), clientv3.WithLimit(int64(limit)))
		if err != nil {
			return nil, m.s.explain(ctx, err)
		}
		if m.rev == 0 {
			m.rev = resp.Header.Revision
		}
		for _, kv := range resp.Kvs {
			out = append(out, record.KV{Key: string(kv.Key), Value: kv.Value})
			size += len(kv.Value)
		}
		if !resp.More || len(resp.Kvs) == 0 {
			return out, nil
		}
		from = out[len(out)-1].Key + "\x00"
	}
}

// errCompacted: the revision read at is gone; read again at a newer one.
var errCompacted = errors.New("revision compacted")

// atOneRevision calls what reads at one revision, again if etcd compacts that away.
func atOneRevision(read func() error) (err error) {
	for range 5 {
		if err = read(); !errors.Is(err, errCompacted) {
			break
		}
	}
	return err
}

// explain maps an error of the client onto those of the contract.
func (s *Store) explain(ctx context.Context, err error) error {
	switch ended := ctx.Err(); {
	case s.ctx.Err() != nil:
		return store.ErrClosed
	case errors.Is(ended, context.DeadlineExceeded):
		return s.unanswered(ended, err)
	case ended != nil:
		return ended
	case codeOf(err) == codes.OutOfRange:
		return fmt.Errorf("%w: %w: %w", store.ErrUnavailable, errCompacted, err)
	}
	if status.Code(err) == codes.Unavailable {
		return fmt.Errorf("%w: %v: %s", store.ErrUnavailable, s.cfg.Endpoints, cause(err))
	}
	return fmt.Errorf("%w: %v: %w", store.ErrUnavailable, s.cfg.Endpoints, err)
}

// codeOf returns the gRPC code of an error of the client's.
func codeOf(err error) codes.Code {
	var coded interface{ Code() codes.Code }
	if errors.As(err, &coded) {
		return coded.Code()
	}
	return codes.Unknown
}

// createdAt is the create revision of what the i-th operation got, 0 if nothing.
func createdAt(resp *clientv3.TxnResponse, i int) int64 {
	kvs := resp.Responses[i].GetResponseRange().Kvs
	if len(kvs) == 0 {
		return 0
	}
	return kvs[0].CreateRevision
}
