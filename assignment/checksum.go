package assignment

import (
	"encoding/binary"
	"math"

	"github.com/cespare/xxhash/v2"
)

// Checksum is an XXH64 over the whole content: equal assignments have equal
// checksums, whatever way they were built. It is computed once.
func (a *Assignment) Checksum() uint64 { return a.sum() }

func (a *Assignment) checksum() uint64 {
	s := summer{d: xxhash.New(), buf: make([]byte, 0, 1<<13)}
	s.str(a.h.Job)
	s.u64(a.h.StoreID)
	s.u64(uint64(a.h.Generation))
	s.u64(uint64(a.h.Previous))
	s.u64(uint64(a.h.Horizon))
	s.u64(uint64(len(a.tasks)))
	for _, t := range a.tasks {
		s.str(t.Name)
		s.u64(t.Incarnation)
		s.str(t.Address)
		s.str(t.Zone)
		s.u64(uint64(t.Index))
		s.u64(math.Float64bits(t.Weight))
		s.u64(uint64(t.State))
	}
	s.u64(uint64(len(a.c.Starts)))
	for i, start := range a.c.Starts {
		s.u64(uint64(start))
		r := a.Replicas(i)
		for j := range r.Len() {
			s.u64(uint64(r.Position(j))<<32 | uint64(r.Len()))
			s.u64(uint64(r.Since(j)))
		}
	}
	s.d.Write(s.buf)
	return s.d.Sum64()
}

// summer gathers words so that the hash takes them in few calls.
type summer struct {
	d   *xxhash.Digest
	buf []byte
}

func (s *summer) u64(v uint64) {
	if len(s.buf)+8 > cap(s.buf) {
		s.d.Write(s.buf)
		s.buf = s.buf[:0]
	}
	s.buf = binary.LittleEndian.AppendUint64(s.buf, v)
}

func (s *summer) str(v string) {
	s.u64(uint64(len(v)))
	s.d.Write(s.buf)
	s.buf = s.buf[:0]
	s.d.WriteString(v)
}
