package subset

import "slices"

const (
	// DefaultLot is the lot length of the article's examples and figures.
	DefaultLot = 10
	// MaxLot is the longest lot allowed.
	MaxLot = 64
)

// Rocksteadier is the algorithm to use, and the one that Google made its default
// ("Reinventing Backend Subsetting at Google", section "In Search of a New
// Algorithm", Rocksteadier subsetting). It is sufficient in every respect:
// balanced, diverse, spread, with churn in proportion to the change and none
// from changes of M or k.
//
// Tasks of each job are grouped into lots of L. For a lot of frontends, the
// backend lots are the columns of a table with L rows: each column is its lot
// shuffled, with the frontend lot's number as the seed, and the columns stand
// in the order in which backend-scaled Ringsteady, run on lot numbers, would
// give them to that frontend lot. Each frontend reads the table from a row of
// its own, left to right and on to the next row, wrapping at the end, until it
// has k tasks.
//
// Holes, like the places after the last task, are padding: shuffled with their
// lot and passed over when reading. A task that leaves or joins inside a lot
// therefore moves no other.
type Rocksteadier struct {
	// Lot is L, 1 to MaxLot; 0 means DefaultLot. Longer lots give more distinct
	// subsets and worse balance. All frontends must agree on it, and changing
	// it moves nearly every connection.
	Lot int
}

// Name implements [Algorithm].
func (Rocksteadier) Name() string { return "rocksteadier" }

// Append implements [Algorithm]. It takes time linear in k times L (if few
// tasks are missing) and needs room for k only.
func (a Rocksteadier) Append(dst []int, s Shape, frontend int) ([]int, error) {
	lot := a.Lot
	if lot == 0 {
		lot = DefaultLot
	}
	if err := checkRange("Lot", lot, 1, MaxLot); err != nil {
		return dst, err
	}
	k, err := s.size(frontend)
	if err != nil {
		return dst, err
	}
	dst = slices.Grow(dst, k)
	end := len(dst) + k

	frontendLot := frontend / lot
	columns := (s.Backends.Span() + lot - 1) / lot
	walk := newRing(columns)
	walk.seekRank(rotation(frontendLot, columns))
	// The walk over the columns is cyclic, so it begins each row anew by itself.
	for row := startRow(frontend%lot, lot); ; row = (row + 1) % lot {
		for range columns {
			column := walk.next()
			task := column*lot + cell(frontendLot, column, row, lot)
			if !s.Backends.Has(task) {
				continue
			}
			dst = append(dst, task)
			if len(dst) == end {
				return dst, nil
			}
		}
	}
}

// startRow returns the row from which frontend i of its lot reads. Row r is
// that of the number at place r of the Ringsteady order of 0..L-1, so that the
// frontends of an incomplete last lot start far apart.
//
// For L = 10 that order is 0, 8, 4, 2, 6, 1, 9, 5, 3, 7 by the article's own
// construction; the article prints 2 before 4, which is taken for an erratum.
func startRow(i, lot int) int { return ringRank(i, lot) }

// cell returns which task of a backend lot stands in a row of the table of a
// frontend lot. The frontend lot's generator seeds one generator per column, in
// the order of the backend lots, so a column costs nothing unless it is read,
// and new backend lots leave those before them as they are. Shuffling a lot
// again at each visit needs no memory; it is short.
func cell(frontendLot, column, row, lot int) int {
	var place [MaxLot]uint8
	tasks := place[:lot]
	for i := range tasks {
		tasks[i] = uint8(i)
	}
	r := fork(uint64(frontendLot), uint64(column))
	shuffle(&r, tasks)
	return int(tasks[row])
}
