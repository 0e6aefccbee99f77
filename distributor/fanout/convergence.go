package fanout

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// Version names an assignment of a job. The zero mark is none.
type Version struct {
	Store uint64
	Gen   assignment.Generation
}

// versionOf is the zero mark for nil.
func versionOf(a *assignment.Assignment) Version {
	if a == nil {
		return Version{}
	}
	return Version{a.StoreID(), a.Generation()}
}

// maxHoldings is how many generations of one role are told apart upwards.
const maxHoldings = 8

// convergence keeps what each subscriber of one job holds and says how far they
// have come. Observers are counted and never waited for.
type convergence struct {
	members map[uint64]member
	// held counts the subscribers that are waited for by what they hold: few entries, in
	// no order, so that the minimum does not cost a look at every subscriber.
	held  []heldCount
	roles [NumRoles]int
	// newest is the assignment that every subscriber is to get; spreads say how long it
	// takes those that were there when it came.
	newest  Version
	spreads [NumRoles]spread
}

type member struct {
	role slicerv1.Role
	name string
	held Version
	// awaited: it was there when the newest came, and does not hold it yet.
	awaited bool
}

// heldCount is how many subscribers of one role hold one thing.
type heldCount struct {
	role slicerv1.Role
	held Version
	n    int
}

const NumRoles = int(slicerv1.Role_ROLE_OBSERVER) + 1

func newConvergence() convergence {
	return convergence{members: make(map[uint64]member)}
}

// join enters a subscriber under a number of its own, with what it holds.
func (c *convergence) join(id uint64, role slicerv1.Role, name string, held Version) {
	c.leave(id)
	c.members[id] = member{role: role, name: name, held: held}
	c.roles[role]++
	c.add(role, held, 1)
}

// came says that there is a newest assignment, written at a time.
func (c *convergence) came(newest Version, written time.Time) {
	c.newest = newest
	for r := range c.spreads {
		c.spreads[r] = spread{written: written}
	}
	for id, m := range c.members {
		m.awaited = m.role != slicerv1.Role_ROLE_OBSERVER && m.held.under(newest) < newest.Gen
		if m.awaited {
			c.spreads[m.role].waiting++
		}
		c.members[id] = m
	}
}

// hold says what a subscriber holds now. It reports whether that changed
// anything, and if it is what the subscriber was waited for, how long it took.
func (c *convergence) hold(now time.Time, id uint64, held Version) (changed bool, took time.Duration, reached bool) {
	m, ok := c.members[id]
	if !ok || m.held == held {
		return false, 0, false
	}
	c.add(m.role, m.held, -1)
	c.add(m.role, held, 1)
	m.held = held
	if m.awaited && held.under(c.newest) >= c.newest.Gen {
		m.awaited, reached = false, true
		took = c.spreads[m.role].reach(now)
	}
	c.members[id] = m
	return true, took, reached
}

// awaited is how many of the subscribers that were there when the newest came do not hold
// it yet, and how many had to wait for it.
func (c *convergence) awaited() (waiting, all int) {
	for r := range c.spreads {
		waiting += c.spreads[r].waiting
		all += c.spreads[r].waiting + c.spreads[r].reached
	}
	return waiting, all
}

// leave forgets a subscriber: one that is not connected is not waited for.
func (c *convergence) leave(id uint64) {
	m, ok := c.members[id]
	if !ok {
		return
	}
	delete(c.members, id)
	c.roles[m.role]--
	c.add(m.role, m.held, -1)
	if m.awaited {
		c.spreads[m.role].waiting--
	}
}

func (c *convergence) add(role slicerv1.Role, held Version, by int) {
	if role == slicerv1.Role_ROLE_OBSERVER {
		return
	}
	for i := range c.held {
		h := &c.held[i]
		if h.role != role || h.held != held {
			continue
		}
		if h.n += by; h.n == 0 {
			last := len(c.held) - 1
			c.held[i], c.held = c.held[last], c.held[:last]
		}
		return
	}
	c.held = append(c.held, heldCount{role, held, by})
}

// connected is how many subscribers of a role there are.
func (c *convergence) connected(role slicerv1.Role) int { return c.roles[role] }

// holding is how many clerks and slicelets hold something.
func (c *convergence) holding(held Version) (n int) {
	for _, h := range c.held {
		if h.held == held {
			n += h.n
		}
	}
	return n
}

// summary is how far the subscribers have come.
type summary struct {
	min               assignment.Generation
	stragglers        []string // oldest first, then by name; at most wire.MaxStragglers
	behind            int      // all that do not hold the newest
	clerks, slicelets int
	newest            assignment.Generation
	holders           []holders
	spreads           [NumRoles]spread
	slow              []Slow
	slowTotal         int
}

// Slow is a subscriber that has not acknowledged for long what it was sent, or
// will not take it.
type Slow struct {
	Name  string
	gen   assignment.Generation // that it holds
	Since time.Time             // when it was sent what it does not acknowledge
}

// holders are the subscribers of one role that hold one generation, 0 being none, one of
// another store, or any older one.
type holders struct {
	role slicerv1.Role
	gen  assignment.Generation
	n    int
}

func (v summary) empty() bool { return v.clerks+v.slicelets == 0 }

func (v summary) equal(w summary) bool {
	if v.min != w.min || v.behind != w.behind || v.clerks != w.clerks || v.slicelets != w.slicelets || v.newest != w.newest || v.slowTotal != w.slowTotal {
		return false
	}
	for r := range v.spreads {
		if !v.spreads[r].same(&w.spreads[r]) {
			return false
		}
	}
	return slices.Equal(v.stragglers, w.stragglers) && slices.Equal(v.holders, w.holders) && slices.Equal(v.slow, w.slow)
}

// toProto is what the job's preferred assigner is told.
func (v summary) toProto(now time.Time, job string) *slicerv1.Acks {
	m := &slicerv1.Acks{
		Job: job, MinGeneration: int64(v.min), Stragglers: v.stragglers,
		Clerks: uint32(v.clerks), Slicelets: uint32(v.slicelets), Empty: v.empty(), SlowTotal: uint32(v.slowTotal),
	}
	m.Holders = make([]*slicerv1.Holders, 0, len(v.holders))
	for _, h := range v.holders {
		m.Holders = append(m.Holders, &slicerv1.Holders{Role: h.role, Generation: int64(h.gen), Subscribers: uint32(h.n)})
	}
	for r := range v.spreads {
		if s := &v.spreads[r]; s.reached+s.waiting > 0 {
			m.Spreads = append(m.Spreads, s.toProto(slicerv1.Role(r), v.newest))
		}
	}
	for _, s := range v.slow {
		m.Slow = append(m.Slow, &slicerv1.SlowSubscriber{Name: s.Name, Generation: int64(s.gen), WaitingMs: now.Sub(s.Since).Milliseconds()})
	}
	return m
}

// summary is how far the subscribers are on their way to the newest.
func (c *convergence) summary(newest Version) summary {
	v := summary{
		clerks: c.roles[slicerv1.Role_ROLE_CLERK], slicelets: c.roles[slicerv1.Role_ROLE_SLICELET],
		newest: c.newest.Gen, spreads: c.spreads, holders: c.holders(newest),
	}
	if v.min, v.behind = c.lag(newest); v.behind > 0 {
		v.stragglers = c.stragglers(newest)
	}
	return v
}

// holders counts subscribers by role, and then by what they hold, newest first.
func (c *convergence) holders(newest Version) []holders {
	all := make([]holders, len(c.held))
	for i, h := range c.held {
		all[i] = holders{h.role, h.held.under(newest), h.n}
	}
	slices.SortFunc(all, func(a, b holders) int {
		return cmp.Or(cmp.Compare(a.role, b.role), cmp.Compare(b.gen, a.gen))
	})
	out := all[:0]
	named := 0 // generations of one role
	for _, h := range all {
		last := len(out) - 1
		switch {
		case last < 0 || out[last].role != h.role:
			named = 1
			out = append(out, h)
		case out[last].gen == h.gen || named > maxHoldings:
			out[last].n += h.n
		case named == maxHoldings:
			named++
			out = append(out, holders{role: h.role, n: h.n}) // and all that are older
		default:
			named++
			out = append(out, h)
		}
	}
	return out
}

// lag is the oldest generation that a subscriber that is waited for holds, the newest if
// there is no such subscriber, and how many do not hold the newest.
func (c *convergence) lag(newest Version) (least assignment.Generation, behind int) {
	least = newest.Gen
	first := true
	for _, h := range c.held {
		g := h.held.under(newest)
		if g < newest.Gen {
			behind += h.n
		}
		if first || g < least {
			least, first = g, false
		}
	}
	return least, behind
}

// under is the generation held as it counts beside the newest: what comes from
// another store counts as none.
func (m Version) under(newest Version) assignment.Generation {
	if newest.Gen != 0 && m.Store != newest.Store {
		return 0
	}
	return m.Gen
}

func (c *convergence) stragglers(newest Version) []string {
	type late struct {
		gen  assignment.Generation
		name string
	}
	order := func(a, b late) int {
		return cmp.Or(cmp.Compare(a.gen, b.gen), strings.Compare(a.name, b.name))
	}
	worst := make([]late, 0, wire.MaxStragglers+1)
	for _, m := range c.members {
		l := late{m.held.under(newest), m.name}
		if m.role == slicerv1.Role_ROLE_OBSERVER || l.gen >= newest.Gen {
			continue
		}
		if len(worst) == wire.MaxStragglers && order(l, worst[len(worst)-1]) >= 0 {
			continue
		}
		at, _ := slices.BinarySearchFunc(worst, l, order)
		if worst = slices.Insert(worst, at, l); len(worst) > wire.MaxStragglers {
			worst = worst[:wire.MaxStragglers]
		}
	}
	names := make([]string, len(worst))
	for i, l := range worst {
		names[i] = l.name
	}
	return names
}
