package judge

import (
	"fmt"
	"slices"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/test/system/judge/history"
)

// listeners says how listeners kept up: of the departures that were told, how
// many after the next owner of the key was seen to believe in it. That is no
// overlap, since the handles had ended by then; a process that stands still cannot
// tell its listener. The others that are late had only to wait for their turn.
func listeners(h *history.History) string {
	type departure struct {
		owner string
		at    time.Duration
	}
	keys, of := byKey(h.Facts)
	var departures, late, stood int
	var worst time.Duration
	for _, key := range keys {
		k := assignment.KeyOf(key)
		var gone []departure
		for _, t := range h.Told {
			if slices.ContainsFunc(t.Departed, func(s assignment.Slice) bool { return s.Start <= k && k < s.End }) {
				gone = append(gone, departure{t.Owner, t.At})
			}
		}
		for _, d := range gone {
			departures++
			var last time.Duration // when the owner was last seen to believe before
			for _, f := range of[key] {
				if f.Owner == d.owner && f.Began <= d.at {
					last = max(last, min(f.Ended, d.at))
				}
			}
			for _, f := range of[key] {
				if f.Owner != d.owner && f.Began > last && f.Ended < d.at {
					late++
					if slices.ContainsFunc(h.Standstills[d.owner], func(s history.Standstill) bool { return s.From < d.at && s.To > last }) {
						stood++
					} else {
						worst = max(worst, d.at-f.Ended)
					}
					break
				}
			}
		}
	}
	return fmt.Sprintf("%d departures of keys told to listeners, %d of them after the next owner was seen: %d of processes that had stood still, the others by at most %s", departures, late, stood, worst)
}
