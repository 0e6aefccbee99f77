package loadbalance

import (
	"math"
	"slices"
)

// calm is the standard deviation of a task's load, as a share of the mean, up
// to which the whole budget may be spent on moving.
const calm = .06

// trickle is the least share of the budget that may always be spent: enough to
// take away, in time, what lies beside keys that are known to stay hot. Tasks that
// such keys alone keep hot may have a little more, steadyTrickle.
const trickle, steadyTrickle = .01, .025

// seasoned is how many measurements a slice must have had for its load to be
// known to stay.
const seasoned = 6

// worthMoving shrinks the budget where moving keyspace buys little, because
// load comes and goes in bursts that do not last until the next round.
func (b *placement) worthMoving() float64 {
	sigma := b.burstiness() * (1 - b.smooth.trust.lasting())
	// A count of requests is no more certain than its square root. A level is made
	// of no more counts than its slowest gain lets in, and the first two may have
	// been jumps that no other has confirmed.
	heard := min(float64(max(b.smooth.trust.rounds-2, 1)), 1/(slowest*min(max(b.cfg.Smoothing, .01), 1)))
	sigma = max(sigma, math.Sqrt(float64(len(b.live))*countNoise(&b.in)/(b.total*heard)))
	if !(sigma > calm) {
		return 1
	}
	return max(math.Pow(calm/sigma, 4), trickle)
}

// steadyHot says that slices known for long keep task t above a level, whatever
// else comes and goes.
func (b *placement) steadyHot(t uint32, level float64) bool {
	sum := 0.0
	for _, i := range b.own[t] {
		if e := &b.est[i]; e.leap == 0 && e.age >= seasoned {
			sum += b.pieces[i].share()
		}
	}
	return sum > level*b.weight[t]
}

// burstiness is the standard deviation of what a task will carry next, as a
// share of the mean.
func (b *placement) burstiness() float64 {
	return math.Sqrt(b.smooth.trust.bursts * float64(len(b.live)))
}

// bursty says that load is on other keys in every round, so that no assignment
// can be right for long: that the burstiness is more than so much, and fleeting.
func (b *placement) bursty(least float64) bool {
	return b.smooth != nil && b.burstiness() > least && b.smooth.trust.fleeting()
}

// bursts is the burstiness from which on replicas are added for it, and calmed the one
// down to which they are kept.
const bursts, calmed = .35, .2

// spread makes the best of load that comes in bursts on keys that could not be
// foretold: what the move budget leaves goes into replicas of slices whether
// they are hot or not, so that the next burst meets several tasks, wherever it
// comes. When load calms down dropExtraReplicas takes them away again.
func (b *placement) spread() {
	target := (2*b.max + 2) / 3
	if target <= b.min || !b.bursty(bursts) {
		return
	}
	budget := max(b.cfg.MoveBudget, 0)
	s := b.newScale()
	var last []uint32
	var of uint32 // the owner whose slices last are the replicas of
	for i := b.head; i >= 0; i = b.pieces[i].next {
		p := &b.pieces[i]
		missing := target - p.replicas()
		cost := float64(missing) * p.width()
		if p.fixed || p.replicas() > 1 || b.moved+cost > budget || !b.roomFor(missing) {
			continue
		}
		// Neighbours on the same task get the same replicas, to stay mergeable.
		if owner := b.owners(p)[0]; of != owner || len(last) != missing {
			of, last = owner, last[:0]
			for len(last) < missing {
				t, ok := s.cold.first(b.worth(p)/float64(target), func(t uint32) bool { return !b.has(p, t) && !slices.Contains(last, t) })
				if !ok {
					return
				}
				last = append(last, t)
			}
		}
		s.change(i, func() {
			for _, t := range last {
				b.add(i, t)
			}
		})
		b.moved += cost
		for _, t := range last {
			b.say(KindReplicate, ReasonBursts, i, -1, int(t), b.ofLoad(p), p.width(), p.share())
		}
	}
}
