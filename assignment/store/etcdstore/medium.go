package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/store/internal/record"
	"github.com/slicer-project/slicer/assignment/store/maintenance"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
)

// Medium is a store in etcd as records, for package maintenance.
type Medium struct{ s *Store }

var _ maintenance.Medium = (*Medium)(nil)

// OpenMedium connects to etcd. It neither makes a store nor needs one to be there;
// RequestTimeout bounds each of its requests.
func OpenMedium(cfg Config) (*Medium, error) {
	s, err := connect(cfg)
	if err != nil {
		return nil, err
	}
	return &Medium{s}, nil
}

// Where implements maintenance.Medium.
func (m *Medium) Where() string { return m.s.cfg.where() }

// Close implements maintenance.Medium.
func (m *Medium) Close() error { return m.s.Close() }

// Snapshot implements maintenance.Medium. Another process may write meanwhile; when
// etcd compacts the revision away that is read at, it begins again.
func (m *Medium) Snapshot(ctx context.Context, progress func(int)) (snap *maintenance.Snapshot, err error) {
	for range 3 {
		if snap, err = m.snapshotOnce(ctx, progress); !errors.Is(err, errCompacted) {
			break
		}
	}
	return snap, err
}

func (m *Medium) snapshotOnce(ctx context.Context, progress func(int)) (*maintenance.Snapshot, error) {
	out := &maintenance.Snapshot{Sessions: map[int64]time.Duration{}}
	prefix := m.s.layout.Prefix
	from, size := prefix, 0
	for more := true; more; {
		limit := scanFirst
		if n := len(out.Records); n > 0 {
			limit = min(max(scanBytes/(size/n+1), scanFirst), 1000)
		}
		resp, err := m.get(ctx, from, clientv3.WithRange(record.After(prefix)), clientv3.WithRev(out.Revision), clientv3.WithLimit(int64(limit)))
		if err != nil {
			return nil, err
		}
		if out.Revision == 0 {
			out.Revision = resp.Header.Revision
		}
		for _, kv := range resp.Kvs {
			key := strings.TrimPrefix(string(kv.Key), prefix)
			out.Records = append(out.Records, maintenance.Record{Key: key, Value: kv.Value})
			size += len(kv.Value)
			if kv.Lease != 0 && strings.HasPrefix(key, "lease/") {
				out.Sessions[kv.Lease] = 0
			}
			from = string(kv.Key) + "\x00"
		}
		if progress != nil {
			progress(len(out.Records))
		}
		more = resp.More && len(resp.Kvs) > 0
	}
	for id := range out.Sessions {
		ttl, err := m.ttl(ctx, id)
		if err != nil {
			return nil, err
		}
		out.Sessions[id] = ttl
	}
	return out, nil
}

func (m *Medium) get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	ctx, done, err := m.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	resp, err := m.s.client.Get(ctx, key, opts...)
	if err != nil {
		return nil, m.s.explain(ctx, err)
	}
	return resp, nil
}

// begin bounds one request, however long ctx lasts.
func (m *Medium) begin(ctx context.Context) (context.Context, func(), error) {
	ctx, cancel := context.WithTimeout(ctx, m.s.cfg.RequestTimeout)
	ctx, done, err := m.s.begin(ctx)
	if err != nil {
		cancel()
		return nil, nil, err
	}
	return ctx, func() { done(); cancel() }, nil
}

// ttl is what a lease was granted for, 0 if it is gone.
func (m *Medium) ttl(ctx context.Context, id int64) (time.Duration, error) {
	ctx, done, err := m.begin(ctx)
	if err != nil {
		return 0, err
	}
	defer done()
	resp, err := m.s.client.TimeToLive(ctx, clientv3.LeaseID(id))
	switch {
	case codeOf(err) == codes.NotFound:
		return 0, nil
	case err != nil:
		return 0, m.s.explain(ctx, err)
	}
	return max(time.Duration(resp.GrantedTTL)*time.Second, 0), nil
}

// was compares what an update expects.
func (m *Medium) was(u maintenance.Update) []clientv3.Cmp {
	key := m.s.layout.Prefix + u.Key
	switch {
	case u.Any:
		return nil
	case u.Was == nil:
		return []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", 0)}
	}
	return []clientv3.Cmp{clientv3.Compare(clientv3.Value(key), "=", string(u.Was))}
}

// Apply implements maintenance.Medium: one transaction.
func (m *Medium) Apply(ctx context.Context, group []maintenance.Update) error {
	if len(group) > maintenance.MaxGroup {
		return fmt.Errorf("%d updates at once, at most %d are allowed", len(group), maintenance.MaxGroup)
	}
	var t txn
	for _, u := range group {
		key := m.s.layout.Prefix + u.Key
		t.when = append(t.when, m.was(u)...)
		if u.Value == nil {
			t.do = append(t.do, clientv3.OpDelete(key))
		} else {
			t.do = append(t.do, clientv3.OpPut(key, string(u.Value)))
		}
	}
	return m.commit(ctx, t, "a record is not what it was when it was read: begin again")
}

func (m *Medium) commit(ctx context.Context, t txn, otherwise string) error {
	ctx, done, err := m.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	resp, err := m.s.commit(ctx, t)
	if err == nil && !resp.Succeeded {
		err = fmt.Errorf("%w: %s", store.ErrConflict, otherwise)
	}
	return err
}

// batchBytes is how much one transaction of Replace may put.
const batchBytes = 1 << 20

// Replace implements maintenance.Medium. While it is under way the identity is one
// that names no store, which every process refuses, and which holds a number of this
// Replace alone: so of two that run at once one fails.
func (m *Medium) Replace(ctx context.Context, since *maintenance.Snapshot, r maintenance.Replacement) error {
	l := &m.s.layout
	for id := range r.Sessions {
		if err := m.revoke(ctx, id); err != nil {
			return fmt.Errorf("%w: end the session %x: %w", maintenance.ErrNotReplaced, id, err)
		}
	}
	held := clientv3.Compare(clientv3.Value(l.ID()), "=", string(l.EncodeIdentity(record.Identity{Opened: r.StoreID})))
	// Sessions and what they held are gone, so the store as a whole cannot be compared;
	// but its heads, configs and identity are.
	t := txn{when: []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(l.Jobs()), "<", since.Revision+1).WithRange(record.After(l.Jobs())),
		clientv3.Compare(clientv3.ModRevision(l.ID()), "<", since.Revision+1)}}
	for _, gap := range maintenance.Gaps(append([]string{"id"}, r.Keep...)) {
		from, to := l.Prefix+gap[0], l.Prefix+gap[1]
		if gap[1] == "" {
			to = record.After(l.Prefix)
		}
		t.do = append(t.do, clientv3.OpDelete(from, clientv3.WithRange(to)))
	}
	t.do = append(t.do, clientv3.OpPut(l.ID(), string(l.EncodeIdentity(record.Identity{Opened: r.StoreID}))))
	if err := m.commit(ctx, t, "the store has changed since it was read: is an assigner running? Begin again"); err != nil {
		return fmt.Errorf("%w: %w", maintenance.ErrNotReplaced, err)
	}
	const broken = "another restore is under way"
	t = txn{when: []clientv3.Cmp{held}}
	size := 0
	for _, kv := range r.Records {
		if len(t.do) == maintenance.MaxGroup || len(t.do) > 0 && size+len(kv.Value) > batchBytes {
			if err := m.commit(ctx, t, broken); err != nil {
				return brokenOff(err)
			}
			t.do, size = nil, 0
		}
		t.do = append(t.do, clientv3.OpPut(l.Prefix+kv.Key, string(kv.Value)))
		size += len(kv.Key) + len(kv.Value)
	}
	t.do = append(t.do, clientv3.OpPut(l.ID(), string(l.EncodeIdentity(record.Identity{StoreID: r.StoreID}))))
	if err := m.commit(ctx, t, broken); err != nil {
		return brokenOff(err)
	}
	return nil
}

// brokenOff is the error of a Replace that has removed what there was.
func brokenOff(err error) error {
	return fmt.Errorf("the store was emptied and not filled; every process refuses it until a restore is done: %w", err)
}

func (m *Medium) revoke(ctx context.Context, id int64) error {
	ctx, done, err := m.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	if _, err := m.s.client.Revoke(ctx, clientv3.LeaseID(id)); err != nil && codeOf(err) != codes.NotFound {
		return m.s.explain(ctx, err)
	}
	return nil
}
