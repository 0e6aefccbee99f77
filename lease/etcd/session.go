package etcdlease

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/lease"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// session is one etcd lease.
type session struct {
	s   *Store
	id  clientv3.LeaseID
	ttl time.Duration

	mu        sync.Mutex
	followers map[string]*follower // by job, of an assigner
	closed    bool
}

func (n *session) ID() uint64         { return uint64(n.id) }
func (n *session) TTL() time.Duration { return n.ttl }

func (n *session) KeepAlive(ctx context.Context) error {
	resp, err := n.s.client.KeepAliveOnce(ctx, n.id)
	if err != nil {
		return explain(ctx, err)
	}
	if granted := time.Duration(resp.TTL) * time.Second; granted < n.ttl {
		return fmt.Errorf("%w: renewed for %s only", lease.ErrUnavailable, granted)
	}
	return nil
}

func (n *session) Close(ctx context.Context) error {
	n.unfollow("", true)
	if _, err := n.s.client.Revoke(ctx, n.id); err != nil {
		if err = explain(ctx, err); !errors.Is(err, lease.ErrLost) {
			return err
		}
	}
	return nil
}

// keys of a job.
type keys string

func (s *Store) keys(job string) keys { return keys(s.prefix + job + "/") }

func (k keys) head() string          { return string(k) + "head" }
func (k keys) records() string       { return string(k) + "r/" }
func (k keys) guard() string         { return string(k) + "r/guard" }
func (k keys) bridge() string        { return string(k) + "r/bridge" }
func (k keys) leader() string        { return string(k) + "leader" }
func (k keys) guardHolders() string  { return string(k) + "h/guard/" }
func (k keys) bridgeHolders() string { return string(k) + "h/bridge/" }

func (k keys) record(c lease.Claim) string {
	if c.Bridge() {
		return k.bridge()
	}
	return k.guard()
}

func (k keys) holder(c lease.Claim, id clientv3.LeaseID) string {
	name := strconv.FormatInt(int64(id), 16)
	if c.Bridge() {
		return k.bridgeHolders() + name
	}
	return k.guardHolders() + name
}

// granting is the record that grants a claim, as it must stand.
func granting(c lease.Claim) string {
	var text []byte
	if c.Bridge() {
		text, _ = lease.Bridge{From: c.From, To: c.To, Open: true}.MarshalText()
	} else {
		text, _ = lease.Guard{Generation: c.To, Open: true}.MarshalText()
	}
	return string(text)
}

func value(c lease.Claim) string {
	text, _ := c.MarshalText()
	return string(text)
}

func (n *session) Acquire(ctx context.Context, job string, c lease.Claim) (lease.Seen, bool, error) {
	k := n.s.keys(job)
	look := clientv3.OpGet(k.records(), clientv3.WithPrefix())
	resp, err := n.s.client.Txn(ctx).
		If(clientv3.Compare(clientv3.Value(k.record(c)), "=", granting(c)), n.s.running()).
		Then(look, clientv3.OpPut(k.holder(c, n.id), value(c), clientv3.WithLease(n.id))).
		Else(look, n.s.suspensions()).
		Commit()
	if err != nil {
		return lease.Seen{}, false, explain(ctx, err)
	}
	seen, err := k.seen(got(resp, 0), resp.Header.Revision)
	if err == nil && !resp.Succeeded && got(resp, 1).Count > 0 {
		err = lease.ErrSuspended
	}
	return seen, resp.Succeeded, err
}

func (n *session) Release(ctx context.Context, job string, c lease.Claim) error {
	holder := n.s.keys(job).holder(c, n.id)
	_, err := n.s.client.Txn(ctx).
		If(clientv3.Compare(clientv3.Value(holder), "=", value(c))).
		Then(clientv3.OpDelete(holder)).
		Commit()
	if err != nil {
		return explain(ctx, err)
	}
	return nil
}

// got is the i-th answer of a transaction, to a Get.
func got(resp *clientv3.TxnResponse, i int) *clientv3.GetResponse {
	return (*clientv3.GetResponse)(resp.Responses[i].GetResponseRange())
}

// seen decodes guard and bridge.
func (k keys) seen(got *clientv3.GetResponse, revision int64) (lease.Seen, error) {
	seen := lease.Seen{Revision: revision}
	for _, kv := range got.Kvs {
		if err := k.set(&seen, string(kv.Key), kv.Value); err != nil {
			return lease.Seen{}, err
		}
	}
	return seen, nil
}

// set decodes one record; nothing stands for a deleted one.
func (k keys) set(seen *lease.Seen, key string, text []byte) (err error) {
	switch key {
	case k.guard():
		err = seen.Guard.UnmarshalText(text)
	case k.bridge():
		err = seen.Bridge.UnmarshalText(text)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}

func parseHead(key string, text []byte) (assignment.Generation, error) {
	n, err := strconv.ParseInt(string(text[:min(len(text), 20)]), 10, 64)
	if err != nil || n <= 0 || assignment.Generation(n) > assignment.MaxGeneration {
		return 0, fmt.Errorf("%s: %w: head %.40q is no generation", key, lease.ErrCorrupt, text)
	}
	return assignment.Generation(n), nil
}
