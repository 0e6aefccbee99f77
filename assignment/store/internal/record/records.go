package record

import (
	"errors"
	"fmt"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"google.golang.org/protobuf/proto"
)

const (
	// PieceSize is the most of an encoded assignment that one record holds, bytes.
	PieceSize = 512 << 10
	// InlineDelta is the longest delta that is kept in the generation's own record, bytes.
	InlineDelta = 64 << 10
	// MaxSegment is the most generations in a segment: every so many there is a checkpoint.
	MaxSegment = 64
	// MaxKeep is the most generations that can be kept on request.
	MaxKeep = 1024

	maxSegments = MaxKeep + 1
	maxPieces   = wire.MaxEncodedSize / PieceSize
	// maxVersion leaves room to count on after a version that cannot be read.
	maxVersion  = 1 << 62
	lostVersion = 1 << 32
)

// marshal cannot fail for messages of valid strings, which names are.
func (l Layout) marshal(key string, m proto.Message) []byte {
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		panic("record: " + err.Error())
	}
	return l.Seal(key, body)
}

func (l Layout) unmarshal(key string, value []byte, m proto.Message) error {
	body, err := l.Open(key, value)
	if err != nil {
		return err
	}
	if err := proto.Unmarshal(body, m); err != nil {
		return Corrupt(key, "%w", err)
	}
	return nil
}

// Identity names a store.
type Identity struct {
	StoreID uint64
	// How often it was opened and written to, where only one process may.
	Opened, Writes uint64
}

// EncodeIdentity seals it.
func (l Layout) EncodeIdentity(id Identity) []byte {
	return l.marshal(l.ID(), &slicerv1.StoredIdentity{StoreId: id.StoreID, Opened: id.Opened, Writes: id.Writes})
}

// DecodeIdentity reads it.
func (l Layout) DecodeIdentity(value []byte) (Identity, error) {
	var m slicerv1.StoredIdentity
	if err := l.unmarshal(l.ID(), value, &m); err != nil {
		return Identity{}, err
	}
	if m.StoreId == 0 {
		return Identity{}, Corrupt(l.ID(), "store id 0: a restore is under way, or was broken off; then slicerctl store restore has to be run again")
	}
	return Identity{m.StoreId, m.Opened, m.Writes}, nil
}

// EncodeJob seals a config that is valid.
func (l Layout) EncodeJob(j store.Job) []byte {
	return l.marshal(l.Config(j.Config.Name), &slicerv1.StoredJob{Version: j.Version, Config: wire.JobToProto(j.Config), CreatedBy: j.CreatedBy})
}

// DecodeJob reads it.
func (l Layout) DecodeJob(job string, value []byte) (store.Job, error) {
	key := l.Config(job)
	var m slicerv1.StoredJob
	if err := l.unmarshal(key, value, &m); err != nil {
		return store.Job{}, err
	}
	c, err := wire.JobFromProto(m.Config)
	switch {
	case err != nil:
		return store.Job{}, Corrupt(key, "%w", err)
	case c.Name != job:
		return store.Job{}, Corrupt(key, "config of job %q", c.Name)
	case m.Version < 1 || m.Version > maxVersion:
		return store.Job{}, Corrupt(key, "version %d", m.Version)
	}
	if err := store.ValidateWords("created by", m.CreatedBy, assignment.MaxIdentityLen); err != nil {
		return store.Job{}, Corrupt(key, "%w", err)
	}
	return store.Job{Config: c, Version: m.Version, CreatedBy: m.CreatedBy}, nil
}

// Tombstone is what remains of a deleted job.
type Tombstone struct {
	Version    int64
	Generation assignment.Generation
	Overrides  int64
}

// EncodeTombstone seals it.
func (l Layout) EncodeTombstone(job string, t Tombstone) []byte {
	return l.marshal(l.Gone(job), &slicerv1.StoredTombstone{Version: t.Version, Generation: int64(t.Generation), Overrides: t.Overrides})
}

// DecodeTombstone reads it.
func (l Layout) DecodeTombstone(job string, value []byte) (Tombstone, error) {
	var m slicerv1.StoredTombstone
	if err := l.unmarshal(l.Gone(job), value, &m); err != nil {
		return Tombstone{}, err
	}
	if m.Version < 0 || m.Version > maxVersion || m.Generation < 0 || m.Generation > int64(assignment.MaxGeneration) ||
		m.Overrides < 0 || m.Overrides > maxVersion {
		return Tombstone{}, Corrupt(l.Gone(job), "version %d, generation %d, order %d", m.Version, m.Generation, m.Overrides)
	}
	return Tombstone{m.Version, assignment.Generation(m.Generation), m.Overrides}, nil
}

// Bury returns what remains of a job of which there are these records: its
// config, its tombstone if it was deleted before, its overrides if there are any,
// and its last generation. One that cannot be read does not keep the job from
// being deleted; its version counts as far ahead. The puts are what becomes of the
// tombstone and of the history, in which by, if it is not nil, is noted as an order.
func (l Layout) Bury(job string, config []byte, gone, overrides *KV, last assignment.Generation, by *store.Entry) (Tombstone, Puts) {
	t := l.remains(job, config, gone, overrides, last)
	if by == nil {
		history := l.History(job)
		return t, Puts{Records: []KV{{l.Gone(job), l.EncodeTombstone(job, t)}}, From: history, To: After(history)}
	}
	if overrides == nil {
		t.Overrides++ // by is an order of its own
	}
	e := *by
	e.Order = t.Overrides
	return t, Puts{
		Records: []KV{{l.Gone(job), l.EncodeTombstone(job, t)}, l.EncodeEntry(l.Entry(job, OfOrders, e.Order), e)},
		// Entries about generations come before those about orders.
		From: l.History(job), To: l.Entry(job, OfOrders, max(e.Order-store.KeptOrders+1, 0)),
	}
}

func (l Layout) remains(job string, config []byte, gone, overrides *KV, last assignment.Generation) (t Tombstone) {
	if gone != nil {
		var err error
		if t, err = l.DecodeTombstone(job, gone.Value); err != nil {
			t = Tombstone{Version: lostVersion, Overrides: lostVersion}
		}
	}
	if overrides != nil {
		c, err := l.DecodeOverrides(job, overrides.Value)
		switch {
		case err == nil:
			t.Overrides = max(t.Overrides, c.Version+1) // not to be taken for it
		case t.Overrides <= maxVersion-lostVersion:
			t.Overrides += lostVersion
		}
	}
	j, err := l.DecodeJob(job, config)
	switch {
	case err == nil:
		t.Version = max(t.Version, j.Version)
	case t.Version <= maxVersion-lostVersion:
		t.Version += lostVersion
	}
	t.Generation = max(t.Generation, last)
	return t
}

// EncodeCandidate seals one that is valid.
func (l Layout) EncodeCandidate(c store.Candidate) KV {
	key := l.Assigners() + c.ID
	return KV{key, l.marshal(key, &slicerv1.Candidate{AssignerId: c.ID, Address: c.Address, Zone: c.Zone})}
}

// DecodeCandidate reads it.
func (l Layout) DecodeCandidate(kv KV) (store.Candidate, error) {
	var m slicerv1.Candidate
	if err := l.unmarshal(kv.Key, kv.Value, &m); err != nil {
		return store.Candidate{}, err
	}
	c := store.Candidate{ID: m.AssignerId, Address: m.Address, Zone: m.Zone}
	if err := c.Validate(); err != nil {
		return c, Corrupt(kv.Key, "%w", err)
	}
	if l.Assigners()+c.ID != kv.Key {
		return c, Corrupt(kv.Key, "%w", errors.New("entry of "+c.ID))
	}
	return c, nil
}

// Blob is where the bytes of a delta or of a whole assignment are.
type Blob struct {
	Size   int // 0: there are none
	Pieces int // 0: they are inline
	Inline []byte
	// Becomes is how many bytes they are a compressed form of (wire.Deflate), 0 if they are
	// not compressed.
	Becomes int
}

func (b Blob) proto() *slicerv1.StoredBlob {
	if b.Size == 0 {
		return nil
	}
	return &slicerv1.StoredBlob{Size: uint64(b.Size), Pieces: uint32(b.Pieces), Inline: b.Inline, WholeSize: uint64(b.Becomes)}
}

func blobFrom(m *slicerv1.StoredBlob) (Blob, error) {
	size, pieces := m.GetSize(), m.GetPieces()
	switch {
	case max(size, m.GetWholeSize()) > wire.MaxEncodedSize:
		return Blob{}, fmt.Errorf("%d bytes, at most %d are allowed", max(size, m.GetWholeSize()), wire.MaxEncodedSize)
	case pieces == 0 && int(size) != len(m.GetInline()), pieces != 0 && len(m.GetInline()) != 0,
		pieces != 0 && int(pieces) != piecesOf(int(size)):
		return Blob{}, fmt.Errorf("%d bytes in %d pieces and %d inline", size, pieces, len(m.GetInline()))
	}
	return Blob{int(size), int(pieces), m.GetInline(), int(m.GetWholeSize())}, nil
}

func piecesOf(size int) int { return (size + PieceSize - 1) / PieceSize }
