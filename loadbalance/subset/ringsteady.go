package subset

import "slices"

// Scaling says which tasks of [Ringsteady] are moved from their van der Corput
// positions, which are nearly even, to exactly even ones in the same order.
type Scaling uint8

const (
	// BackendScaled spaces the backends evenly. It is the form that the article
	// settles on, and the zero value.
	BackendScaled Scaling = iota
	// RawPositions moves nothing: least churn, but the balance does not become
	// ideal as frontends grow in number. With M = N frontend m starts at
	// backend m.
	RawPositions
	// BothScaled spaces the frontends evenly too: ideal balance always, paid
	// for with frontend churn. It needs Shape.Frontends.
	BothScaled
)

// Ringsteady places both jobs' tasks on a circle by a low-discrepancy sequence
// and gives each frontend the k backends that it meets clockwise ("Reinventing
// Backend Subsetting at Google", section "In Search of a New Algorithm",
// Ringsteady subsetting, and Frontend and backend scaling). Good balance, low
// churn and the best spread, but at most N distinct subsets.
//
// Holes are left out of the circle; scaled backends close ranks over them.
type Ringsteady struct {
	Scaling Scaling
}

// Name implements [Algorithm].
func (a Ringsteady) Name() string {
	switch a.Scaling {
	case RawPositions:
		return "ringsteady-raw"
	case BothScaled:
		return "ringsteady-both-scaled"
	default:
		return "ringsteady-backend-scaled"
	}
}

// NeedsFrontends reports whether subsets depend on M: only if both sides are
// scaled.
func (a Ringsteady) NeedsFrontends() bool { return a.Scaling == BothScaled }

// Append implements [Algorithm]. It takes time linear in N at most: k plus
// log N without holes. It needs room for k only. With BothScaled,
// Shape.Frontends must be given.
func (a Ringsteady) Append(dst []int, s Shape, frontend int) ([]int, error) {
	if err := checkRange("Scaling", int(a.Scaling), 0, int(BothScaled)); err != nil {
		return dst, err
	}
	k, err := s.size(frontend)
	if err != nil {
		return dst, err
	}
	n := s.Backends.Len()
	walk := newRing(s.Backends.Span())
	switch a.Scaling {
	case RawPositions:
		walk.seekTurn(turn(frontend))
	case BackendScaled:
		seekPresent(&walk, s.Backends, rotation(frontend, n))
	case BothScaled:
		if err := checkRange("Frontends", s.Frontends, 1, MaxTasks); err != nil {
			return dst, err
		}
		// Frontend at rank/M of a turn, backends at multiples of 1/N.
		m := uint64(s.Frontends)
		first := (uint64(ringRank(frontend, s.Frontends))*uint64(n) + m - 1) / m
		seekPresent(&walk, s.Backends, int(first%uint64(n)))
	}
	end := len(dst) + k
	for dst = slices.Grow(dst, k); len(dst) < end; {
		if task := walk.next(); s.Backends.Has(task) {
			dst = append(dst, task)
		}
	}
	return dst, nil
}

// seekPresent moves to the present task that rank other present ones precede.
func seekPresent(walk *ring, b Backends, rank int) {
	if b.bits == nil {
		walk.seekRank(rank)
		return
	}
	for rank > 0 {
		if b.Has(walk.next()) {
			rank--
		}
	}
}
