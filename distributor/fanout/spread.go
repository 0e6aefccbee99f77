package fanout

import (
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// spread is how long an assignment takes to the subscribers of one role that were
// connected when it came. Those of many Distributors add up.
type spread struct {
	written          time.Time
	waiting, reached int
	last             time.Duration
	counts           [wire.SpreadBuckets]uint32
}

// reach counts one more subscriber that holds it, and returns how long it took.
func (s *spread) reach(now time.Time) time.Duration {
	took := max(now.Sub(s.written), 0)
	s.waiting--
	s.reached++
	s.last = max(s.last, took)
	s.counts[wire.SpreadBucket(took)]++
	return took
}

// same reports whether two looks at one spread have seen the same subscribers.
func (s *spread) same(t *spread) bool {
	return s.written.Equal(t.written) && s.waiting == t.waiting && s.reached == t.reached
}

func (s *spread) toProto(role slicerv1.Role, gen assignment.Generation) *slicerv1.Spread {
	m := &slicerv1.Spread{Role: role, Generation: int64(gen), Waiting: uint32(s.waiting), LastUs: s.last.Microseconds()}
	used := 0
	for _, n := range s.counts {
		if n > 0 {
			used++
		}
	}
	m.Bucket, m.Count = make([]uint32, 0, used), make([]uint32, 0, used)
	for i, n := range s.counts {
		if n > 0 {
			m.Bucket, m.Count = append(m.Bucket, uint32(i)), append(m.Count, n)
		}
	}
	return m
}
