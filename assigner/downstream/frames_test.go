package downstream

import (
	"sync"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/test/kit/balanced"
)

// Each form of a generation is encoded once, however many Distributors get it, and is
// forgotten with the generation.
func TestEncodedOnce(t *testing.T) {
	made := 0
	f := frames{once: func(e Encode) Encode {
		return sync.OnceValues(func() (*wire.Frame, error) { made++; return e() })
	}}
	job := balanced.New(t, 1000)
	var all []*assignment.Assignment
	for len(all) < 3 {
		if a := job.Assignment(); len(all) == 0 || a != all[len(all)-1] {
			all = append(all, a)
			f.publish(time.Duration(len(all)), a)
		}
		job.Round(t)
	}
	want := 0
	for _, c := range []struct {
		name             string
		of               func() Encode
		base, compressed bool // what the frame is to be
		again            bool // it has been encoded before
	}{
		{"whole", func() Encode { return f.frame(Mark{}, false) }, false, false, false},
		{"compressed", func() Encode { return f.frame(Mark{}, true) }, false, true, false},
		{"compressed, on what is not known", func() Encode { return f.frame(Mark{Generation: 1}, true) }, false, true, true},
		{"delta", func() Encode { return f.frame(markOf(all[1]), false) }, true, false, false},
		{"delta to one that reads compressed wholes", func() Encode { return f.frame(markOf(all[1]), true) }, true, false, true},
		{"delta on an older one", func() Encode { return f.frame(markOf(all[0]), true) }, true, false, false},
		{"base", func() Encode { return f.older(all[1], false) }, false, false, false},
		{"base, compressed", func() Encode { return f.older(all[1], true) }, false, true, false},
		{"another base, compressed", func() Encode { return f.older(all[0], true) }, false, true, false},
	} {
		if !c.again {
			want++
		}
		for range 3 {
			got, err := c.of()()
			if err != nil || got.Trailer.Base != 0 != c.base || got.Trailer.WholeSize != 0 != c.compressed {
				t.Errorf("%s: %v, %v", c.name, got.Trailer, err)
			}
		}
		if made != want {
			t.Errorf("%s: %d encodings until then, want %d", c.name, made, want)
		}
	}
	f.publish(9, nil)
	if len(f.encoded) != 0 || f.asked.encode != nil {
		t.Errorf("%d encodings are kept of a generation that is gone, and a base: %v", len(f.encoded), f.asked.encode != nil)
	}
}
