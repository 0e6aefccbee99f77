package loadbalance

import (
	"cmp"
	"slices"

	"github.com/slicer-project/slicer/assignment"
)

// eject makes room for a slice of task h that is too hot for any task as they
// are: one more task takes it, none that warms up, as a replica if that is allowed and instead of h
// otherwise, and pushes its densest small slices on to other tasks that have
// room. All of it is one move with one weight.
func (c *cooler) eject(h uint32) bool {
	// The heaviest slices are the ones for which nobody has room.
	heavy := slices.Clone(c.own[h])
	slices.SortFunc(heavy, func(x, y int32) int {
		return cmp.Or(cmp.Compare(c.pieces[y].share(), c.pieces[x].share()), cmp.Compare(c.pieces[x].start, c.pieces[y].start))
	})
	for _, i := range heavy[:min(len(heavy), 4)] {
		p := &c.pieces[i]
		if p.share() < .05*c.level {
			break
		}
		if p.fixed {
			continue
		}
		for _, k := range [...]Kind{KindReplicate, KindMove} {
			if k == KindReplicate && (p.replicas() >= c.max || c.ownerships >= assignment.MaxOwnerships) {
				continue
			}
			var tried []uint32
			for range 3 {
				t, ok := c.cold.warm.first(func(t uint32) bool { return !c.has(p, t) && !slices.Contains(tried, t) })
				if !ok {
					break
				}
				tried = append(tried, t)
				if c.makeRoom(i, h, t, k) {
					return true
				}
			}
		}
	}
	return false
}

// push is a slice that goes from one task to another.
type push struct {
	i    int32
	from uint32
	to   uint32
}

// makeRoom tries to put piece i on task t, too, or instead of on h.
func (c *cooler) makeRoom(i int32, h, t uint32, k Kind) bool {
	p := &c.pieces[i]
	s := p.share()
	cost := p.width()
	// What the loads of the owners will be.
	now := map[uint32]float64{}
	at := func(x uint32) float64 {
		if v, ok := now[x]; ok {
			return v
		}
		return c.load[x]
	}
	if k == KindReplicate {
		after := p.load / float64(p.replicas()+1)
		for _, o := range c.owners(p) {
			now[o] = c.load[o] - s + after
		}
		now[t] = c.load[t] + after
	} else {
		now[h] = c.load[h] - s
		now[t] = c.load[t] + s
	}
	limit := c.level
	// Push the densest slices that still leave something to push.
	small := slices.Clone(c.own[t])
	slices.SortFunc(small, func(x, y int32) int {
		a, b := &c.pieces[x], &c.pieces[y]
		return cmp.Or(cmp.Compare(b.share()/b.width(), a.share()/a.width()), cmp.Compare(a.start, b.start))
	})
	var pushes []push
	for _, j := range small {
		excess := now[t] - limit*c.weight[t]
		if excess <= .002*c.level {
			break
		}
		q := &c.pieces[j]
		qs := q.share()
		if j == i || q.fixed || qs <= 0 || c.thin(j) || qs > excess+.02*c.level || c.moved+cost+q.width() > c.budget {
			continue
		}
		fits := func(x uint32) bool {
			return x != t && !c.has(q, x) && (at(x)+qs)/c.weight[x] <= limit
		}
		to, ok := h, fits(h)
		if !ok {
			to, ok = c.fitting(fits)
		}
		if !ok {
			continue
		}
		pushes = append(pushes, push{j, t, to})
		now[to] = at(to) + qs
		now[t] -= qs
		cost += q.width()
	}
	gain := 0.0
	for _, x := range sortedKeys(now) {
		gain += c.over(x, c.load[x]) - c.over(x, now[x])
	}
	if c.moved+cost > c.budget {
		c.spent = true
		return false
	}
	if gain <= 1e-6+1e-6*c.over(h, c.load[h]) {
		return false
	}
	if k == KindReplicate {
		c.add(i, t)
	} else {
		c.replace(i, h, t)
	}
	c.say(KindEject, ReasonHotSlice, i, int(h), int(t), gain/cost, p.width(), p.share())
	for _, x := range pushes {
		c.replace(x.i, x.from, x.to)
		q := &c.pieces[x.i]
		c.say(KindEject, ReasonRoom, x.i, int(x.from), int(x.to), gain/cost, q.width(), q.share())
		c.refresh(x.from, x.to)
	}
	c.moved += cost
	c.refresh(h, t)
	c.refresh(c.owners(p)...)
	return true
}

// fitting looks for a cold task, among the few coldest.
func (c *cooler) fitting(fits func(uint32) bool) (uint32, bool) {
	tries, found := 0, false
	t, ok := c.cold.warm.first(func(t uint32) bool {
		tries++
		found = fits(t)
		return tries > 12 || found
	})
	return t, ok && found
}

func sortedKeys(m map[uint32]float64) []uint32 {
	keys := make([]uint32, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
