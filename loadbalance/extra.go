package loadbalance

// dropExtraReplicas takes away replicas that the load no longer needs: those without
// which, even at the slice's recent peak, no owner would exceed the level. It
// gives no task a key that it lacked, and frees memory on those that had it.
func (b *placement) dropExtraReplicas() {
	if b.bursty(calmed) {
		return
	}
	level := b.aim()
	for i := b.head; i >= 0; i = b.pieces[i].next {
		for {
			hot, ok := b.hottestOwner(i)
			if !ok || !b.spare(i, hot, level) {
				break
			}
			b.remove(i, hot)
			b.say(KindRemove, ReasonSurplus, i, int(hot), -1, 1, 0, 0)
		}
	}
}

// hottestOwner is the owner of piece i to drop, if it may have fewer.
func (b *placement) hottestOwner(i int32) (hot uint32, ok bool) {
	p := &b.pieces[i]
	if p.replicas() <= b.min || p.fixed {
		return 0, false
	}
	owners := b.owners(p)
	hot = owners[0]
	for _, t := range owners[1:] {
		if b.ratio(t) > b.ratio(hot) {
			hot = t
		}
	}
	return hot, true
}

// spare says that piece i can do without owner t.
func (b *placement) spare(i int32, t uint32, level float64) bool {
	p := &b.pieces[i]
	more := p.load/float64(p.replicas()-1) - p.share()
	for _, o := range b.owners(p) {
		if o != t && ((b.load[o]+more)/b.weight[o] > level || b.abilities.isFull(o)) {
			return false
		}
	}
	// A slice that is no small part of a task is worth spreading.
	return b.peak(i)/float64(p.replicas()-1) < .25*level
}
