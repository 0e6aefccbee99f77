package etcdlease

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/lease"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Lead implements lease.WriteSession. The token is the create revision of the leader key,
// which is another each time that the lease is taken.
func (n *session) Lead(ctx context.Context, job string) (lease.Token, error) {
	m, err := n.begin()
	if err != nil {
		return 0, err
	}
	leader := n.s.keys(job).leader()
	resp, err := n.s.client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(leader), "=", 0)).
		Then(clientv3.OpPut(leader, strconv.FormatInt(int64(n.id), 16), clientv3.WithLease(n.id)), clientv3.OpGet(leader)).
		Else(clientv3.OpGet(leader)).
		Commit()
	if err != nil {
		return 0, explain(ctx, err)
	}
	if err := n.s.heard(ctx, m, resp.Header.Revision); err != nil {
		return 0, err
	}
	i := 0
	if resp.Succeeded {
		i = 1
	}
	kvs := got(resp, i).Kvs
	if len(kvs) == 1 && kvs[0].Lease == int64(n.id) {
		n.change(job, func(h *held) { h.uses = 1 })
		return lease.Token(kvs[0].CreateRevision), nil
	}
	return 0, lease.ErrHeld
}

// Resign implements lease.WriteSession.
func (n *session) Resign(ctx context.Context, job string, t lease.Token) error {
	n.unfollow(job, false)
	n.change(job, func(h *held) { h.uses = 0 })
	leader := n.s.keys(job).leader()
	_, err := n.s.client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(leader), "=", int64(t))).
		Then(clientv3.OpDelete(leader)).
		Commit()
	if err != nil {
		return explain(ctx, err)
	}
	return nil
}

// State implements lease.WriteSession: one read at one revision.
func (n *session) State(ctx context.Context, job string) (lease.State, error) {
	v, err := n.read(ctx, job)
	if err != nil {
		return lease.State{}, err
	}
	return v.state(), nil
}

func (n *session) read(ctx context.Context, job string) (*jobKeys, error) {
	m, err := n.begin()
	if err != nil {
		return nil, err
	}
	v := newJobKeys(n.s.keys(job))
	resp, err := n.s.client.Get(ctx, string(v.k), clientv3.WithPrefix())
	if err != nil {
		return nil, explain(ctx, err)
	}
	if err := n.s.heard(ctx, m, resp.Header.Revision); err != nil {
		return nil, err
	}
	v.records = v.k.recordsIn(resp)
	n.s.past.tell(n.era, job, told{resp.Header.Revision, v.records})
	return v, v.take(resp.Header.Revision, resp)
}

// jobKeys are a job's keys as they are at a revision.
type jobKeys struct {
	k             keys
	revision      int64
	head          assignment.Generation
	seen          lease.Seen
	guard, bridge map[string]string // values by session
	records       records           // as read
}

func newJobKeys(k keys) *jobKeys {
	return &jobKeys{k: k, guard: map[string]string{}, bridge: map[string]string{}}
}

// take sets what is there at the revision.
func (v *jobKeys) take(revision int64, gets ...*clientv3.GetResponse) error {
	for _, get := range gets {
		for _, kv := range get.Kvs {
			if err := v.set(string(kv.Key), kv.Value, true); err != nil {
				return err
			}
		}
	}
	v.revision = revision
	return nil
}

// set takes a key's value, or that the key is gone.
func (v *jobKeys) set(key string, value []byte, there bool) (err error) {
	if id, ok := strings.CutPrefix(key, v.k.guardHolders()); ok {
		hold(v.guard, id, value, there)
	} else if id, ok := strings.CutPrefix(key, v.k.bridgeHolders()); ok {
		hold(v.bridge, id, value, there)
	} else if key != v.k.head() {
		err = v.k.set(&v.seen, key, value)
	} else if v.head = 0; there {
		v.head, err = parseHead(key, value)
	}
	return err
}

func hold(holders map[string]string, id string, value []byte, there bool) {
	if there {
		holders[id] = string(value)
	} else {
		delete(holders, id)
	}
}

func (v *jobKeys) state() lease.State {
	guard, bridge := value(lease.GuardClaim(v.seen.Guard.Generation)), value(v.seen.Bridge.Claim())
	return lease.State{
		Records:      lease.Records{Head: v.head, Guard: v.seen.Guard, Bridge: v.seen.Bridge},
		Revision:     v.revision,
		GuardReaders: len(v.guard), BridgeReaders: len(v.bridge),
		GuardOnly:  without(v.guard, guard, v.bridge, bridge),
		BridgeOnly: without(v.bridge, bridge, v.guard, guard),
	}
}

// without counts the keys that have the one value and not the other.
func without(has map[string]string, this string, others map[string]string, that string) (n int) {
	for id, v := range has {
		if v == this && others[id] != that {
			n++
		}
	}
	return n
}

// Commit implements lease.WriteSession: the row of the table as one transaction.
func (n *session) Commit(ctx context.Context, job string, t lease.Token, read lease.State, s lease.Step) error {
	o, err := s.Outcome(read.Records)
	if err != nil {
		return err
	}
	m, err := n.begin()
	if err != nil {
		return err
	}
	k := n.s.keys(job)
	before, after := k.texts(read.Records), k.texts(o.Records)
	when := []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(k.leader()), "=", int64(t)), n.s.running()}
	var do []clientv3.Op
	for i, r := range before {
		if r.text == "" {
			when = append(when, clientv3.Compare(clientv3.CreateRevision(r.key), "=", 0))
		} else {
			when = append(when, clientv3.Compare(clientv3.Value(r.key), "=", r.text))
		}
		switch text := after[i].text; {
		case text == r.text:
		case text == "":
			do = append(do, clientv3.OpDelete(r.key))
		default:
			do = append(do, clientv3.OpPut(r.key, text))
		}
	}
	if o.Guard != read.Guard || o.Bridge != read.Bridge {
		do = append(do, clientv3.OpPut(k.nonce(), strconv.FormatUint(rand.Uint64(), 16)))
	}
	// Of a range, every key must compare; so this holds only if there is none.
	if o.NoGuardReaders {
		when = append(when, clientv3.Compare(clientv3.CreateRevision(k.guardHolders()), "=", 0).WithPrefix())
	}
	if o.NoBridgeReaders {
		when = append(when, clientv3.Compare(clientv3.CreateRevision(k.bridgeHolders()), "=", 0).WithPrefix())
	}
	resp, err := n.s.client.Txn(ctx).If(when...).Then(do...).
		Else(clientv3.OpGet(k.leader()), clientv3.OpGet(k.head()), clientv3.OpGet(k.records(), clientv3.WithPrefix()), n.s.suspensions()).
		Commit()
	if err != nil {
		return explain(ctx, err)
	}
	if err := n.s.heard(ctx, m, resp.Header.Revision); err != nil {
		return err
	}
	if resp.Succeeded {
		return nil
	}
	return k.refusal(resp, t, read)
}

// refusal says which of the comparisons has failed.
func (k keys) refusal(resp *clientv3.TxnResponse, t lease.Token, read lease.State) error {
	if leader := got(resp, 0).Kvs; len(leader) != 1 || leader[0].CreateRevision != int64(t) {
		return lease.ErrDeposed
	}
	v := newJobKeys(k)
	if err := v.take(resp.Header.Revision, got(resp, 1), got(resp, 2)); err != nil {
		return err
	}
	if now := v.state(); now.Records != read.Records {
		return fmt.Errorf("%w: they are head %d, guard %+v, bridge %+v", lease.ErrChanged, now.Head, now.Guard, now.Bridge)
	}
	if got(resp, 3).Count > 0 {
		return lease.ErrSuspended
	}
	return lease.ErrReaders
}

// record is a record's key and text; no text stands for no key.
type record struct{ key, text string }

func (k keys) texts(r lease.Records) [3]record {
	out := [3]record{{key: k.head()}, {key: k.guard()}, {key: k.bridge()}}
	if r.Head != 0 {
		out[0].text = strconv.FormatInt(int64(r.Head), 10)
	}
	if r.Guard != (lease.Guard{}) {
		text, _ := r.Guard.MarshalText()
		out[1].text = string(text)
	}
	if r.Bridge != (lease.Bridge{}) {
		text, _ := r.Bridge.MarshalText()
		out[2].text = string(text)
	}
	return out
}
