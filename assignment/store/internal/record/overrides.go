package record

import (
	"context"
	"errors"

	"github.com/slicer-project/slicer/assignment/store"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// EncodeOverrides seals them; they are valid.
func (l Layout) EncodeOverrides(job string, c store.Overrides) []byte {
	return l.marshal(l.Overrides(job), store.OverridesToProto(c))
}

// DecodeOverrides reads them.
func (l Layout) DecodeOverrides(job string, value []byte) (store.Overrides, error) {
	key := l.Overrides(job)
	var m slicerv1.Overrides
	if err := l.unmarshal(key, value, &m); err != nil {
		return store.Overrides{}, err
	}
	c, err := store.OverridesFromProto(&m)
	if err == nil && c.Version < 1 {
		err = errors.New("order 0")
	}
	if err != nil {
		return store.Overrides{}, Corrupt(key, "%w", err)
	}
	return c, nil
}

// EncodeNames seals them; they are valid.
func EncodeNames(l Layout, job string, n store.Names) []byte {
	return l.marshal(NamesKey(l, job), store.NamesToProto(n))
}

// DecodeNames reads them.
func DecodeNames(l Layout, job string, value []byte) (store.Names, error) {
	key := NamesKey(l, job)
	var m slicerv1.StoredNames
	if err := l.unmarshal(key, value, &m); err != nil {
		return store.Names{}, err
	}
	n, err := store.NamesFromProto(&m)
	if err == nil && n.Version < 1 {
		err = errors.New("version 0")
	}
	if err != nil {
		return store.Names{}, Corrupt(key, "%w", err)
	}
	return n, nil
}

// CheckNames reports whether names may be put at all.
func CheckNames(next store.Names) error {
	if next.Version < 1 {
		return errors.New("names are numbered from 1")
	}
	return next.Validate()
}

// EncodeEntry seals one that is valid, cut down to its size.
func (l Layout) EncodeEntry(key string, e store.Entry) KV {
	e.Fit()
	return KV{key, l.marshal(key, store.EntryToProto(e))}
}

// DecodeEntry reads one.
func (l Layout) DecodeEntry(kv KV) (store.Entry, error) {
	var m slicerv1.HistoryEntry
	if err := l.unmarshal(kv.Key, kv.Value, &m); err != nil {
		return store.Entry{}, err
	}
	e, err := store.EntryFromProto(&m)
	if err != nil {
		return store.Entry{}, Corrupt(kv.Key, "%w", err)
	}
	return e, nil
}

// Newest gets the newest records of a range, at most limit, in any order.
type Newest interface {
	Newest(ctx context.Context, prefix string, limit int) ([]KV, error)
}

// ReadHistory reads at most limit entries of each kind, the newest; see store.Journal.
func (l Layout) ReadHistory(ctx context.Context, src Newest, job string, limit int) (all []store.Entry, corrupt error) {
	for _, k := range []EntryKind{OfGenerations, OfOrders} {
		kvs, err := src.Newest(ctx, l.Entries(job, k), min(max(limit, 0), store.MaxHistory))
		if err != nil {
			return nil, err
		}
		for _, kv := range kvs {
			e, err := l.DecodeEntry(kv)
			if err != nil {
				corrupt = errors.Join(corrupt, err)
				continue
			}
			all = append(all, e)
		}
	}
	store.SortHistory(all)
	return all, corrupt
}

// Puts are records to put, together with a range of keys to delete.
type Puts struct {
	Records  []KV
	From, To string // equal when there are none
}

// Order is what PutOverrides writes.
func (l Layout) Order(job string, next store.Overrides, order store.Entry, keep int) Puts {
	p := Puts{Records: []KV{
		{l.Overrides(job), l.EncodeOverrides(job, next)},
		l.EncodeEntry(l.Entry(job, OfOrders, next.Version), order),
	}}
	p.From, p.To, _ = l.Outdated(job, OfOrders, next.Version, keep)
	return p
}

// Note is what goes with a config whose entry names its giver: an order that leaves the
// overrides in force as they are.
func (l Layout) Note(j store.Job, in store.Overrides, by store.Entry) (store.Overrides, Puts) {
	next := in.Clone()
	next.Version++
	by.Order = next.Version
	return next, l.Order(j.Config.Name, next, by, j.Config.History)
}

// CheckNote reports whether an entry that is not numbered yet may be noted.
func CheckNote(by store.Entry) error {
	by.Order = 1
	return CheckOrder(store.Overrides{Version: 1}, by)
}

// Attach is what a commit writes beside the assignment, onto these overrides; it
// counts the entry in the change's head.
func (l Layout) Attach(job string, change *Change, c store.Commit, overrides store.Overrides) (p Puts) {
	if c.Entry != nil {
		change.Head.Entries++
		n := change.Head.Entries
		p.Records = append(p.Records, l.EncodeEntry(l.Entry(job, OfGenerations, n), *c.Entry))
		p.From, p.To, _ = l.Outdated(job, OfGenerations, n, c.Keep)
	}
	if c.Fulfills {
		p.Records = append(p.Records, KV{l.Overrides(job), l.EncodeOverrides(job, overrides.Fulfilled())})
	}
	return p
}

// CheckOrder reports whether an order may be put at all.
func CheckOrder(next store.Overrides, order store.Entry) error {
	if err := next.Validate(); err != nil {
		return err
	}
	if next.Version < 1 || order.Order != next.Version || order.Action == "" {
		return errors.New("the entry is not that of the order")
	}
	return order.Validate()
}

// CheckCommit reports whether a commit makes sense at all.
func CheckCommit(c store.Commit) error {
	if c.Fulfills && c.Overrides <= 0 {
		return errors.New("a commit can only fulfil orders that it names")
	}
	if c.Entry == nil {
		return nil
	}
	if c.Entry.Action != "" || c.Entry.Generation != c.Next.Generation() {
		return errors.New("the entry is not that of the generation")
	}
	return c.Entry.Validate()
}
