package downstream

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/slicer-project/slicer/assigner/generate"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

const (
	// maxHolders is how many generations of one role are shown, and taken from one
	// Distributor.
	maxHolders = 16
	// maxSlow is how many slow subscribers are named.
	maxSlow = 16
)

// acked is what a Distributor has said last about how far its subscribers are.
type acked struct {
	name       string // the Distributor's
	at         time.Duration
	holders    []*slicerv1.Holders
	spreads    []*slicerv1.Spread
	slow       []*slicerv1.SlowSubscriber
	slowTotal  uint32
	generation int64 // newest that the spreads are of
}

func newAcked(name string, at time.Duration, m *slicerv1.Acks) *acked {
	h, sp, sl := m.GetHolders(), m.GetSpreads(), m.GetSlow()
	a := &acked{
		name: name, at: at, holders: h[:min(len(h), 2*(maxHolders+1))], spreads: sp[:min(len(sp), 2)], slow: sl[:min(len(sl), maxSlow)],
		slowTotal: m.GetSlowTotal(),
	}
	for _, s := range a.spreads {
		a.generation = max(a.generation, s.GetGeneration())
	}
	return a
}

// progress merges what the Distributors have said about a job's subscribers: how
// many hold which generation, and how long the newest, if that is what they have,
// took to them. now is on the assigner's monotonic clock.
func progress(now time.Duration, newest assignment.Generation, said map[string]*acked) *slicerv1.Progress {
	out := &slicerv1.Progress{}
	type key struct {
		role slicerv1.Role
		gen  int64
	}
	holders := make(map[key]uint64)
	roles := map[slicerv1.Role]*merged{slicerv1.Role_ROLE_CLERK: {}, slicerv1.Role_ROLE_SLICELET: {}}
	for _, name := range slices.Sorted(maps.Keys(said)) {
		a := said[name]
		behind := make(map[slicerv1.Role]uint64)
		for _, h := range a.holders {
			if roles[h.GetRole()] == nil {
				continue
			}
			holders[key{h.GetRole(), h.GetGeneration()}] += uint64(h.GetSubscribers())
			if h.GetGeneration() < int64(newest) {
				behind[h.GetRole()] += uint64(h.GetSubscribers())
			}
		}
		for _, s := range a.spreads {
			if m := roles[s.GetRole()]; m != nil && s.GetGeneration() == int64(newest) {
				m.add(s)
			}
		}
		if a.generation != int64(newest) {
			// It does not have the newest yet, or no subscriber there has to wait for it.
			for role, n := range behind {
				roles[role].waiting += n
			}
		}
		for _, s := range a.slow {
			out.Slow = append(out.Slow, &slicerv1.SlowSubscriber{
				Name: assignment.Clip(s.GetName(), assignment.MaxNameLen), Generation: s.GetGeneration(), DistributorId: name,
				WaitingMs: max(s.GetWaitingMs(), 0) + (now - a.at).Milliseconds(),
			})
		}
		out.SlowTotal += a.slowTotal
	}
	for k, n := range holders {
		out.Holders = append(out.Holders, &slicerv1.Holders{Role: k.role, Generation: k.gen, Subscribers: uint32(min(n, math.MaxUint32))})
	}
	slices.SortFunc(out.Holders, func(a, b *slicerv1.Holders) int {
		return cmp.Or(cmp.Compare(a.Role, b.Role), cmp.Compare(b.Generation, a.Generation))
	})
	out.Holders = fold(out.Holders)
	for _, role := range []slicerv1.Role{slicerv1.Role_ROLE_CLERK, slicerv1.Role_ROLE_SLICELET} {
		if m := roles[role]; m.reached+m.waiting > 0 {
			out.Spreads = append(out.Spreads, m.toProto(role, newest))
		}
	}
	slices.SortFunc(out.Slow, func(a, b *slicerv1.SlowSubscriber) int {
		return cmp.Or(cmp.Compare(b.WaitingMs, a.WaitingMs), cmp.Compare(a.Name, b.Name))
	})
	out.Slow = out.Slow[:min(len(out.Slow), maxSlow)]
	return out
}

// fold counts together what is more than maxHolders generations of a role. The
// order is by role and then newest first.
func fold(all []*slicerv1.Holders) (out []*slicerv1.Holders) {
	named := make(map[slicerv1.Role]int)
	for _, h := range all {
		if named[h.Role]++; named[h.Role] <= maxHolders {
			out = append(out, h)
			continue
		}
		if named[h.Role] == maxHolders+1 && out[len(out)-1].Generation != 0 {
			out = append(out, &slicerv1.Holders{Role: h.Role})
		}
		out[len(out)-1].Subscribers += h.Subscribers
	}
	return out
}

// merged is the spreads of several Distributors for one role.
type merged struct {
	reached, waiting uint64
	last             time.Duration
	counts           [wire.SpreadBuckets]uint64
}

func (m *merged) add(s *slicerv1.Spread) {
	m.waiting += uint64(s.GetWaiting())
	n := min(len(s.GetBucket()), len(s.GetCount()))
	for i, b := range s.GetBucket()[:n] {
		k := uint64(s.GetCount()[i])
		m.counts[min(b, wire.SpreadBuckets-1)] += k
		m.reached += k
	}
	m.last = max(m.last, time.Duration(min(max(s.GetLastUs(), 0), math.MaxInt64/1000))*time.Microsecond)
}

// quantile is the time within which a share of those that were waited for held the
// generation, -1 when they do not yet.
func (m *merged) quantile(share float64) time.Duration {
	rank := max(uint64(math.Ceil(share*float64(m.reached+m.waiting))), 1)
	var n uint64
	for i, k := range m.counts {
		if n += k; n >= rank {
			return min(wire.SpreadEnd(i), m.last)
		}
	}
	return -1
}

func (m *merged) toProto(role slicerv1.Role, newest assignment.Generation) *slicerv1.RoleSpread {
	us := func(d time.Duration) int64 {
		if d < 0 {
			return -1
		}
		return d.Microseconds()
	}
	return &slicerv1.RoleSpread{
		Role: role, Generation: int64(newest), Reached: uint32(min(m.reached, math.MaxUint32)), Waiting: uint32(min(m.waiting, math.MaxUint32)),
		P50Us: us(m.quantile(.5)), P99Us: us(m.quantile(.99)), LastUs: us(m.quantile(1)),
	}
}

// Progress is how far the job's subscribers are, as far as Distributors have said.
func (j *Job) Progress(now generate.Now) *slicerv1.Progress {
	newest := assignment.Generation(0)
	if a := j.core.View(now).Stored(); a != nil {
		newest = a.Generation()
	}
	said := make(map[string]*acked)
	j.each(func(_ Session, w *watcher) {
		if w.acked != nil {
			said[w.acked.name] = w.acked
		}
	})
	return progress(now.Mono, newest, said)
}
