package pebblestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/store/internal/record"
	"github.com/slicer-project/slicer/assignment/store/maintenance"
)

// Medium is a store in a directory as records, for package maintenance. The process
// whose store it is must have ended: the directory is locked.
type Medium struct{ s *Store }

var _ maintenance.Medium = (*Medium)(nil)

// Access says what a Medium is for.
type Access int

// What a Medium may be for. Only with MayCreate need there be no store.
const (
	ReadOnly Access = iota // no file is changed
	ReadWrite
	MayCreate
)

// OpenMedium opens the records in a directory, until ctx ends.
func OpenMedium(ctx context.Context, dir string, cfg Config, a Access) (*Medium, error) {
	cfg.existing, cfg.readOnly = a != MayCreate, a == ReadOnly
	s, err := open(ctx, dir, cfg, func(s *Store, lock *pebble.Lock) error { return s.openFiles(lock) })
	if err != nil {
		return nil, err
	}
	return &Medium{s}, nil
}

// Where implements maintenance.Medium.
func (m *Medium) Where() string { return store.URL{Scheme: store.SchemePebble, Dir: m.s.dir}.String() }

// Close implements maintenance.Medium.
func (m *Medium) Close() error { return m.s.Close() }

// Snapshot implements maintenance.Medium.
func (m *Medium) Snapshot(ctx context.Context, progress func(int)) (*maintenance.Snapshot, error) {
	out := &maintenance.Snapshot{}
	it, err := m.s.db.NewIter(nil)
	if err != nil {
		return nil, m.s.unreadable("", err)
	}
	for ok := it.First(); ok && err == nil; ok = it.Next() {
		var value []byte
		if value, err = it.ValueAndErr(); err == nil {
			out.Records = append(out.Records, maintenance.Record{Key: string(it.Key()), Value: bytes.Clone(value)})
			err = ctx.Err()
		}
		if n := len(out.Records); progress != nil && n%1000 == 0 {
			progress(n)
		}
	}
	// What cannot be read is damage that Check reports, with all that can.
	if err = errors.Join(err, it.Close()); pebble.IsCorruptionError(err) {
		out.Damage, err = m.s.unreadable("", err), nil
	}
	if err != nil {
		return nil, err
	}
	id, known, err := m.identity()
	if err == nil && known {
		if out.Revision = int64(id.Writes); id.Writes < m.s.witness.last {
			out.Damage = errors.Join(out.Damage, fmt.Errorf("%d batches are there, %d were acknowledged: a file is damaged or cut off", id.Writes, m.s.witness.last))
		}
	}
	return out, nil
}

// identity is the record's, if there is one that can be read.
func (m *Medium) identity() (id record.Identity, known bool, err error) {
	value, closer, err := m.s.db.Get([]byte(m.s.layout.ID()))
	if errors.Is(err, pebble.ErrNotFound) {
		return id, false, nil
	}
	if err != nil {
		return id, false, m.s.unreadable(m.s.layout.ID(), err)
	}
	defer closer.Close()
	id, err = m.s.layout.DecodeIdentity(value)
	return id, err == nil, err
}

// Apply implements maintenance.Medium: one batch.
func (m *Medium) Apply(ctx context.Context, group []maintenance.Update) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	id, known, err := m.identity()
	if err != nil {
		return err
	}
	if !known {
		return record.Corrupt(m.s.layout.ID(), "missing")
	}
	b := m.s.db.NewBatch()
	defer b.Close()
	for _, u := range group {
		if err := m.was(u); err != nil {
			return err
		}
		if u.Value == nil {
			err = b.Delete([]byte(u.Key), nil)
		} else {
			err = b.Set([]byte(u.Key), u.Value, nil)
		}
		if err != nil {
			return err
		}
	}
	m.s.id = id
	return m.s.write(b)
}

// was compares a record with what an update expects.
func (m *Medium) was(u maintenance.Update) error {
	value, closer, err := m.s.db.Get([]byte(u.Key))
	if errors.Is(err, pebble.ErrNotFound) {
		value, closer, err = nil, io.NopCloser(nil), nil
	}
	if err != nil {
		return m.s.unreadable(u.Key, err)
	}
	defer closer.Close()
	if !u.Any && ((value == nil) != (u.Was == nil) || !bytes.Equal(value, u.Was)) {
		return fmt.Errorf("%w: %s is not what it was when it was read", store.ErrConflict, u.Key)
	}
	return nil
}

// Replace implements maintenance.Medium: one batch. Nothing else can have written since
// the snapshot.
func (m *Medium) Replace(ctx context.Context, since *maintenance.Snapshot, r maintenance.Replacement) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", maintenance.ErrNotReplaced, err)
	}
	// One that cannot be read counts from what was acknowledged.
	id, _, _ := m.identity()
	m.s.id = record.Identity{StoreID: r.StoreID, Opened: id.Opened, Writes: max(id.Writes, m.s.witness.last)}
	b := m.s.db.NewBatch()
	defer b.Close()
	for _, gap := range maintenance.Gaps(r.Keep) {
		to := gap[1]
		if to == "" {
			to = "\xff"
		}
		if err := b.DeleteRange([]byte(gap[0]), []byte(to), nil); err != nil {
			return fmt.Errorf("%w: %w", maintenance.ErrNotReplaced, err)
		}
	}
	for _, kv := range r.Records {
		if err := b.Set([]byte(kv.Key), kv.Value, nil); err != nil {
			return fmt.Errorf("%w: %w", maintenance.ErrNotReplaced, err)
		}
	}
	return m.s.write(b)
}
