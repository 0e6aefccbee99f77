package assigner

import (
	"sync"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
)

// mark names an assignment exactly. The zero mark is none.
type mark struct {
	generation assignment.Generation
	store, sum uint64
}

func markOf(a *assignment.Assignment) mark {
	if a == nil {
		return mark{}
	}
	return mark{a.Generation(), a.StoreID(), a.Checksum()}
}

// maxBases is how many older assignments are kept to send deltas on.
const maxBases = 8

// frames encodes the newest assignment of a job, whole and as deltas on the ones
// before, each once however many Distributors get it.
type frames struct {
	mu      sync.Mutex
	newest  *assignment.Assignment
	since   time.Duration            // when it became the newest, on the monotonic clock
	bases   []*assignment.Assignment // older ones, newest first
	encoded map[mark]func() (*wire.Frame, error)
}

// publish makes a the newest now, nil for none. It says whether that is news.
func (f *frames) publish(now time.Duration, a *assignment.Assignment) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if a == f.newest {
		return false
	}
	if f.newest != nil {
		f.bases = append([]*assignment.Assignment{f.newest}, f.bases...)
		f.bases = f.bases[:min(len(f.bases), maxBases)]
	}
	if a == nil {
		f.bases = nil
	}
	f.newest, f.since = a, now
	f.encoded = make(map[mark]func() (*wire.Frame, error))
	return true
}

// head is the newest assignment, nil if there is none.
func (f *frames) head() *assignment.Assignment {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.newest
}

// base is an older assignment that is still kept here, nil if it is not.
func (f *frames) base(held mark) *assignment.Assignment {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, b := range f.bases {
		if markOf(b) == held {
			return b
		}
	}
	return nil
}

// age is for how long a has been the newest, 0 when it is not.
func (f *frames) age(now time.Duration, a *assignment.Assignment) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if a != f.newest {
		return 0
	}
	return max(now-f.since, 0)
}

// frame is what brings whoever holds the assignment named by held to a; ok is
// false when a is not the newest any more.
func (f *frames) frame(a *assignment.Assignment, held mark) (frame *wire.Frame, ok bool, err error) {
	f.mu.Lock()
	if a != f.newest {
		f.mu.Unlock()
		return nil, false, nil
	}
	var base *assignment.Assignment
	for _, b := range f.bases {
		if held.generation == b.Generation() && held == markOf(b) && b.StoreID() == a.StoreID() && b.Generation() < a.Generation() {
			base = b
		}
	}
	key := markOf(base)
	encode := f.encoded[key]
	if encode == nil {
		encode = sync.OnceValues(func() (*wire.Frame, error) {
			if base == nil {
				return wire.WholeFrame(a)
			}
			return wire.DeltaFrame(base, a)
		})
		f.encoded[key] = encode
	}
	f.mu.Unlock()
	frame, err = encode()
	return frame, true, err
}
