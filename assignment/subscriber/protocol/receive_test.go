package protocol

import (
	"time"

	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// receiver takes messages as a subscriber does.
type receiver struct{ asm map[Link]*wire.Assembler }

func (r *receiver) received(c *Core, id Link, m *slicerv1.WatchResponse, now time.Time) {
	if r.asm == nil {
		r.asm = make(map[Link]*wire.Assembler)
	}
	if r.asm[id] == nil {
		r.asm[id] = new(wire.Assembler)
	}
	a, err := r.asm[id].Take(m, c.Base(id))
	c.Received(now, id, m, a, err)
}
