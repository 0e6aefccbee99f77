package downstream

import (
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
)

// Mark names an assignment exactly. The zero Mark is none.
type Mark struct {
	Generation assignment.Generation
	Store, Sum uint64 // the sum is the assignment's checksum
}

func markOf(a *assignment.Assignment) Mark {
	if a == nil {
		return Mark{}
	}
	return Mark{a.Generation(), a.StoreID(), a.Checksum()}
}

// fits reports whether an assignment is the one; without a checksum by its number alone.
func (m Mark) fits(a *assignment.Assignment) bool {
	got := markOf(a)
	return got == m || m.Sum == 0 && got.Generation == m.Generation && got.Store == m.Store
}

// Encode encodes an assignment.
type Encode func() (*wire.Frame, error)

func whole(a *assignment.Assignment, compressed bool) Encode {
	return func() (*wire.Frame, error) {
		f, err := wire.WholeFrame(a)
		if err == nil && compressed {
			f = f.Compressed()
		}
		return f, err
	}
}

// maxBases is how many older assignments are kept to send deltas on.
const maxBases = 8

// frames encodes the newest assignment of a job, whole, compressed, and as deltas on the
// ones before, each once however many Distributors get it.
type frames struct {
	once    func(Encode) Encode
	newest  *assignment.Assignment   // nil if there is none
	since   time.Duration            // when it became the newest, on the monotonic clock
	bases   []*assignment.Assignment // older ones, newest first
	encoded map[form]Encode
	asked   askedFor
}

// askedFor is the older assignment that was last asked for, whole: Distributors that start at
// one time ask for the same.
type askedFor struct {
	form
	encode Encode
}

// form is what an assignment is encoded as. Of the newest, it is a delta on what mark names, or
// whole if that is nothing; of an older one, which mark names, it is whole.
type form struct {
	mark       Mark
	compressed bool
}

// publish makes a the newest now, nil for none. It reports whether another was.
func (f *frames) publish(now time.Duration, a *assignment.Assignment) bool {
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
	f.newest, f.since, f.encoded, f.asked = a, now, make(map[form]Encode), askedFor{}
	return true
}

// base is an older assignment that is still kept here, nil if it is not.
func (f *frames) base(held Mark) *assignment.Assignment {
	for _, b := range f.bases {
		if markOf(b) == held {
			return b
		}
	}
	return nil
}

// older is one that was asked for.
func (f *frames) older(a *assignment.Assignment, compressed bool) Encode {
	if key := (form{markOf(a), compressed}); f.asked.encode == nil || f.asked.form != key {
		f.asked = askedFor{key, f.once(whole(a, compressed))}
	}
	return f.asked.encode
}

// frame is what brings the assignment named by held to the newest; compressed is for a whole.
func (f *frames) frame(held Mark, compressed bool) Encode {
	a, base := f.newest, f.base(held)
	if base != nil && (base.StoreID() != a.StoreID() || base.Generation() >= a.Generation()) {
		base = nil
	}
	key := form{markOf(base), compressed && base == nil}
	encode := f.encoded[key]
	if encode == nil {
		encode = whole(a, compressed)
		if base != nil {
			encode = func() (*wire.Frame, error) { return wire.DeltaFrame(base, a) }
		}
		encode = f.once(encode)
		f.encoded[key] = encode
	}
	return encode
}
