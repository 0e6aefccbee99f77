package assignment

import (
	"encoding/binary"
	"math"

	"github.com/cespare/xxhash/v2"
)

// Checksum is an XXH64 over the whole content: equal assignments have equal
// checksums, whatever way they were built. It is computed once.
func (a *Assignment) Checksum() uint64 {
	a.counts.once.Do(func() { a.counts.checksum = a.inColumns().sumAll() })
	return a.counts.checksum
}

// sumAll is the checksum of one in columns.
func (a *Assignment) sumAll() uint64 {
	s := summer{buf: make([]byte, 0, 1<<11)}
	s.d.Reset()
	s.header(a)
	s.u64(uint64(len(a.tasks)))
	for i := range a.tasks {
		s.task(&a.tasks[i])
	}
	s.room(words(1))
	s.u64(uint64(len(a.c.Starts)))
	s.slices(a)
	return s.sum()
}

// header leaves room for a word.
func (s *summer) header(a *Assignment) {
	s.room(words(8) + len(a.h.Job) + len(a.h.Part))
	s.str(a.h.Job)
	s.u64(a.h.StoreID)
	s.u64(uint64(a.h.Generation))
	s.u64(uint64(a.h.Previous))
	s.u64(uint64(a.h.Horizon))
	if a.h.Part != "" {
		s.str(a.h.Part)
	}
}

func (s *summer) task(t *Task) {
	s.room(words(7) + len(t.Name) + len(t.Address) + len(t.Zone))
	s.str(t.Name)
	s.u64(t.Incarnation)
	s.str(t.Address)
	s.str(t.Zone)
	s.u64(uint64(t.Index))
	s.u64(math.Float64bits(t.Weight))
	s.u64(uint64(t.State))
}

// slices gives the hash all slices: most of what there is.
func (s *summer) slices(a *Assignment) {
	var since [maxSinceDistinct + 1]uint64 // of each number
	since[0] = uint64(a.h.Horizon)
	for i, g := range a.c.SinceTable {
		since[i+1] = uint64(g)
	}
	buf := s.buf
	for i, start := range a.c.Starts {
		lo, hi := a.c.owners(i, i+1)
		if len(buf)+words(1+2*int(hi-lo)) > cap(buf) {
			s.d.Write(buf)
			buf = buf[:0]
		}
		buf = binary.LittleEndian.AppendUint64(buf, uint64(start))
		for k := lo; k < hi; k++ {
			g := since[0]
			if a.c.Since != nil {
				g = since[a.c.Since[k]&maxSinceDistinct]
			}
			buf = binary.LittleEndian.AppendUint64(buf, uint64(a.c.Owners[k])<<32|uint64(hi-lo))
			buf = binary.LittleEndian.AppendUint64(buf, g)
		}
	}
	s.buf = buf
}

// words is how many bytes n words are.
func words(n int) int { return 8 * n }

// summer gathers words so that the hash takes them in few calls.
type summer struct {
	d   xxhash.Digest
	buf []byte
}

// sum is the hash of all that was gathered.
func (s *summer) sum() uint64 {
	s.d.Write(s.buf)
	return s.d.Sum64()
}

// room gives the hash what was gathered unless there is room for n bytes more.
func (s *summer) room(n int) {
	if len(s.buf)+n > cap(s.buf) {
		s.d.Write(s.buf)
		s.buf = s.buf[:0]
	}
}

func (s *summer) u64(v uint64) { s.buf = binary.LittleEndian.AppendUint64(s.buf, v) }

func (s *summer) str(v string) {
	s.u64(uint64(len(v)))
	s.buf = append(s.buf, v...)
}
