package fanout

import (
	"time"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// A Distributor that has just started holds the newest assignment alone, and its
// subscribers come back with the one before. Rather than send each of them the
// whole it asks the assigner for that older one, once, and sends deltas.
const (
	// BaseHolders is how many subscribers a base has to have: for fewer it is not
	// worth asking.
	BaseHolders = 4
	// BaseWithin is how long they wait for it before they are sent the whole.
	BaseWithin = time.Second
	// maxBases is how many bases are asked for at once, and remembered as asked for.
	maxBases = 4
	// askBaseAgain is how long one that the assigner did not have is not asked for.
	askBaseAgain = 30 * time.Second
	// anySum is of a base that is asked for by its number alone.
	anySum = 0
)

// bases are the older assignments of a job that are asked for.
type bases []wantedBase

type wantedBase struct {
	held    Version
	sum     uint64
	at      time.Time // when it was asked for
	asked   bool      // the assigner has been told
	settled bool      // it came, or will not
}

// wait reports whether the subscribers that hold an assignment, n of them, had better
// wait for it to come, and whether it is to be asked for.
func (b *bases) wait(now time.Time, held Version, sum uint64, n int) (wait, news bool) {
	for i := range *b {
		if w := &(*b)[i]; w.held == held && w.sum == sum && now.Sub(w.at) < askBaseAgain {
			return !w.settled && now.Sub(w.at) < BaseWithin, false
		}
	}
	if n < BaseHolders {
		return false, false
	}
	if len(*b) >= maxBases {
		i := 0
		for i < len(*b) && !(*b)[i].settled {
			i++
		}
		if i == len(*b) {
			return false, false
		}
		*b = append((*b)[:i], (*b)[i+1:]...)
	}
	*b = append(*b, wantedBase{held: held, sum: sum, at: now})
	return true, true
}

// settle notes that a base has come, or will not: all of them for the zero mark. It
// reports whether a subscriber may have waited.
func (b bases) settle(held Version) (waited bool) {
	for i := range b {
		if (held == Version{} || b[i].held == held) && !b[i].settled {
			b[i].settled, waited = true, true
		}
	}
	return waited
}

// wanted finds what was asked for and has not come.
func (b bases) wanted(held Version, sum uint64) bool {
	for i := range b {
		if b[i].held == held && (b[i].sum == sum || b[i].sum == anySum) && !b[i].settled {
			return true
		}
	}
	return false
}

// expire settles what has not come in time, and says when that is to be looked at
// next, zero if never.
func (b bases) expire(now time.Time) (next time.Time, expired bool) {
	for i := range b {
		if b[i].settled {
			continue
		}
		if at := b[i].at.Add(BaseWithin); at.After(now) {
			next = Sooner(next, at)
		} else {
			b[i].settled, expired = true, true
		}
	}
	return next, expired
}

// requests are what the assigner has not been told yet.
func (b bases) requests(job string) (out []*slicerv1.AttachRequest) {
	for i := range b {
		if w := &b[i]; !w.asked && !w.settled {
			w.asked = true
			out = append(out, &slicerv1.AttachRequest{Message: &slicerv1.AttachRequest_WantBase{WantBase: &slicerv1.WantBase{
				Job: job, Generation: int64(w.held.Gen), StoreId: w.held.Store, Checksum: w.sum, Compressed: true,
			}}})
		}
	}
	return out
}
