package loadbalance

// weightedMove is the published algorithm with what makes it better: smoothed
// loads, a band within which nothing moves, the fall of squared overload as the
// benefit, compound moves that make room for a hot slice, going on with the
// next task when one cannot be cooled, and dropping replicas that are no longer
// needed.
func (b *placement) weightedMove() {
	b.seedNewTasks()
	if atRest(b) {
		return
	}
	b.mergeSame()
	// Merging on to other tasks costs churn, so it waits until room is short.
	b.mergeCold(max(b.maxSlices()*2/3, b.cfg.MinSlicesPerTask*len(b.live)))
	b.isolate()
	b.cool()
	b.dropExtraReplicas()
	b.spread()
	b.splitHot()
}
