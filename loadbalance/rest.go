package loadbalance

import "time"

const (
	// settle is how long slices and owners stay as they are before anything but load is
	// a reason to change them, and tidied how long before there need not be much of it.
	settle, tidied = time.Minute, 10 * time.Minute
	// Much is a slice that is this many times as hot as the mean one, or so large a part
	// of all slices to merge, or of all replicas above the smallest number to drop.
	wayTooHot            = 2 * tooHot
	manyMerges, manyIdle = .25, .5
)

// atRest reports whether all is as it should be, as nearly as is worth a generation:
// what it would be good for to split, merge or drop waits until something has to move.
func atRest(b *placement) bool {
	if len(b.decisions) > 0 || b.bursty(bursts) {
		return false
	}
	level := b.aim()
	top, bottom := 0.0, level
	for _, t := range b.live {
		top, bottom = max(top, b.ratio(t)), min(bottom, b.ratio(t))
	}
	if limit, _ := b.limits(level, bottom); top > limit {
		return false
	}
	still := still(&b.in)
	return still < settle || still < tidied && !untidy(b, level)
}

// still is how long nothing has changed.
func still(in *Input) time.Duration {
	if in.State == nil {
		return 0
	}
	return in.State.still + in.Elapsed
}

// untidy reports whether there is much to split, merge or drop.
func untidy(b *placement, level float64) bool {
	merges, idle, limit := 0, 0, b.maxSlices()
	keep := b.bursty(calmed)
	least := b.cfg.MinSlicesPerTask * len(b.live)
	for i := b.head; i >= 0; i = b.pieces[i].next {
		p := &b.pieces[i]
		if b.n < limit && b.splittable(i, limit) && p.load*float64(b.n) >= wayTooHot*b.total {
			return true
		}
		if b.mergeable(i) {
			merges++
		}
		if t, ok := b.hottestOwner(i); ok && !keep && b.spare(i, t, level) {
			idle++
		}
	}
	if merges = min(merges, b.n-least); float64(merges) > manyMerges*float64(b.n) {
		return true
	}
	return float64(idle) > manyIdle*float64(b.ownerships-b.n*b.min)
}
