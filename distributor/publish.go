package distributor

import (
	"time"

	"github.com/slicer-project/slicer/distributor/fanout"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// publish shows subscribers what is due, and repeats it to some.
func (j *job) publish(now time.Time) (next time.Time) {
	if j.board.Show(now) {
		for _, s := range j.subs {
			j.kick(s)
		}
	}
	slicelets := j.conv.Connected(slicerv1.Role_ROLE_SLICELET)
	for which, n := range [fanout.NumGroups]int{fanout.OfSlicelets: slicelets, fanout.OfOthers: len(j.subs) - slicelets} {
		rest, parts, due := j.board.Batch(now, which, n)
		if !due || n == 0 {
			continue
		}
		for id, s := range j.subs {
			if id%parts == rest && fanout.GroupOf(s.in.role) == which {
				s.repeat = true
				j.kick(s)
			}
		}
	}
	return j.board.Wake()
}
