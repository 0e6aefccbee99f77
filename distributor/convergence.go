package distributor

import (
	"cmp"
	"slices"
	"strings"

	"github.com/slicer-project/slicer/assignment"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// mark names an assignment of a job. The zero mark is none.
type mark struct {
	store uint64
	gen   assignment.Generation
}

// markOf is the zero mark for nil.
func markOf(a *assignment.Assignment) mark {
	if a == nil {
		return mark{}
	}
	return mark{a.StoreID(), a.Generation()}
}

// maxStragglers is how many are named.
const maxStragglers = 16

// convergence keeps what each subscriber of one job holds and says how far they
// have come. Observers are counted and never waited for. Pure.
type convergence struct {
	members map[uint64]member
	// held counts who is waited for by what it holds: few entries, so that the
	// minimum does not cost a look at every subscriber.
	held  map[mark]int
	roles [numRoles]int
}

type member struct {
	role slicerv1.Role
	name string
	held mark
}

const numRoles = int(slicerv1.Role_ROLE_OBSERVER) + 1

func newConvergence() convergence {
	return convergence{members: make(map[uint64]member), held: make(map[mark]int)}
}

// join enters a subscriber under a number of its own, with what it holds.
func (c *convergence) join(id uint64, role slicerv1.Role, name string, held mark) {
	c.leave(id)
	c.members[id] = member{role, name, held}
	c.roles[role]++
	c.count(role, held, 1)
}

// hold says what a subscriber holds now. It reports whether that changed anything.
func (c *convergence) hold(id uint64, held mark) bool {
	m, ok := c.members[id]
	if !ok || m.held == held {
		return false
	}
	c.count(m.role, m.held, -1)
	c.count(m.role, held, 1)
	m.held = held
	c.members[id] = m
	return true
}

// leave forgets a subscriber: one that is not connected is not waited for.
func (c *convergence) leave(id uint64) {
	m, ok := c.members[id]
	if !ok {
		return
	}
	delete(c.members, id)
	c.roles[m.role]--
	c.count(m.role, m.held, -1)
}

func (c *convergence) count(role slicerv1.Role, held mark, by int) {
	if role == slicerv1.Role_ROLE_OBSERVER {
		return
	}
	if c.held[held] += by; c.held[held] == 0 {
		delete(c.held, held)
	}
}

// progressView is how far the subscribers have come.
type progressView struct {
	min               assignment.Generation
	stragglers        []string // oldest first, then by name; at most maxStragglers
	behind            int      // all who do not hold the newest
	clerks, slicelets int
}

func (v progressView) empty() bool { return v.clerks+v.slicelets == 0 }

func (v progressView) equal(w progressView) bool {
	return v.min == w.min && v.behind == w.behind && v.clerks == w.clerks && v.slicelets == w.slicelets &&
		slices.Equal(v.stragglers, w.stragglers)
}

// toProto is what the job's preferred assigner is told.
func (v progressView) toProto(job string) *slicerv1.Acks {
	return &slicerv1.Acks{
		Job: job, MinGeneration: int64(v.min), Stragglers: v.stragglers,
		Clerks: uint32(v.clerks), Slicelets: uint32(v.slicelets), Empty: v.empty(),
	}
}

// view says how far the subscribers are on their way to the newest.
func (c *convergence) view(newest mark) progressView {
	v := progressView{
		clerks: c.roles[slicerv1.Role_ROLE_CLERK], slicelets: c.roles[slicerv1.Role_ROLE_SLICELET],
	}
	if v.min, v.behind = c.lag(newest); v.behind > 0 {
		v.stragglers = c.stragglers(newest)
	}
	return v
}

// lag is the oldest generation that somebody waited for holds, the newest if
// there is nobody, and how many do not hold the newest.
func (c *convergence) lag(newest mark) (least assignment.Generation, behind int) {
	least = newest.gen
	first := true
	for held, n := range c.held {
		g := held.under(newest)
		if g < newest.gen {
			behind += n
		}
		if first || g < least {
			least, first = g, false
		}
	}
	return least, behind
}

// under is the generation held as it counts beside the newest: what comes from
// another store counts as none.
func (m mark) under(newest mark) assignment.Generation {
	if newest.gen != 0 && m.store != newest.store {
		return 0
	}
	return m.gen
}

func (c *convergence) stragglers(newest mark) []string {
	type late struct {
		gen  assignment.Generation
		name string
	}
	order := func(a, b late) int {
		return cmp.Or(cmp.Compare(a.gen, b.gen), strings.Compare(a.name, b.name))
	}
	worst := make([]late, 0, maxStragglers+1)
	for _, m := range c.members {
		l := late{m.held.under(newest), m.name}
		if m.role == slicerv1.Role_ROLE_OBSERVER || l.gen >= newest.gen {
			continue
		}
		if len(worst) == maxStragglers && order(l, worst[len(worst)-1]) >= 0 {
			continue
		}
		at, _ := slices.BinarySearchFunc(worst, l, order)
		if worst = slices.Insert(worst, at, l); len(worst) > maxStragglers {
			worst = worst[:maxStragglers]
		}
	}
	names := make([]string, len(worst))
	for i, l := range worst {
		names[i] = l.name
	}
	return names
}
