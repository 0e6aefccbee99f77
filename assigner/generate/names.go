package generate

import (
	"errors"
	"iter"
	"time"

	"github.com/slicer-project/slicer/assigner/membership"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/access"
	"github.com/slicer-project/slicer/assignment/store"
)

// Names of tasks are the identities' that hold them. What the table of tasks knows of that is
// stored for the assigner that takes over, before the assignment that needs it: else the first
// stranger who reports a name would have it. Where the rights of the job say already which one
// identity a name may have, nothing is stored; nor is anything without a policy.

// PutNames asks for the names of the job's tasks to be stored. It ends with NamesPut.
type PutNames struct{ Names store.Names }

const (
	// pruneEvery is how often names are taken off that are held no more, while nothing else
	// changes.
	pruneEvery = 30 * time.Second
	// namesRate is how many bytes of names are written a second, at most: a rollout of
	// many tasks under new names must not fill the store.
	namesRate = 64 << 10
)

// names are which identities hold the names of tasks, as they are stored.
type names struct {
	*env
	policy   *access.Policy // nil: there is none
	access   assignment.Access
	bound    bool        // what the two say: each name is one identity's alone
	known    bool        // they were read since this assigner became preferred
	stored   store.Names // as read or written last
	put      store.Names // to be written, or being written
	seen     uint64      // of the table, when they were last compared
	waits    bool        // something has changed since
	settleAt time.Duration
	notYet   time.Duration // nothing is written before that
	pruneAt  time.Duration
	failures int // in a row
	left     int // for how many there was no room
}

// Policy says what policy is in force, nil for none.
func (c *Core) Policy(now Now, p *access.Policy) {
	c.tick(now)
	if c.names.policy != p {
		c.names.policy = p
		c.names.bound = p.Bound(c.names.access)
		c.keepNames()
	}
}

// keepNames decides whether names are kept.
func (c *Core) keepNames() {
	n, s := &c.names, &c.store
	if exists := s.known && s.exists; exists && n.access != s.job.Config.Access {
		n.access = s.job.Config.Access
		n.bound = n.policy.Bound(n.access)
	}
	keeps := n.policy != nil && !(s.known && s.exists && n.bound)
	if !keeps && c.members.keeps {
		n.known = false
		c.members.each(func(t *membership.Table) { t.Believe() })
	}
	c.members.keeps = keeps
}

// needNames reports whether the names have to be read.
func (c *Core) needNames() bool {
	return c.members.keeps && c.lead.isPreferred() && c.store.exists && (!c.names.known || c.members.table != nil && c.members.table.Expects())
}

// takeNames takes in what was read.
func (c *Core) takeNames(l Loaded) {
	n := &c.names
	if !l.Named || !c.members.keeps || !c.lead.isPreferred() || c.members.table == nil {
		return
	}
	c.members.table.Hold(c.now.Mono, l.Names.Version, each(l.Names.Held))
	n.stored, n.known = l.Names, true
}

func each(held []store.Held) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for _, h := range held {
			if !yield(h.Task, h.Identity) {
				return
			}
		}
	}
}

// wake is when next has something to do, if it has.
func (n *names) wake() (at time.Duration, ok bool) { return max(n.settleAt, n.notYet), n.waits }

// next is what is to be written, if anything is. hurry says that an assignment waits for it.
func (n *names) next(t *membership.Table, hurry bool) (do PutNames, ok bool) {
	now, version := n.now.Mono, t.Named()
	if version != n.seen && !n.waits {
		n.waits, n.settleAt = true, now+joinSettle
	}
	prune := now >= n.pruneAt
	if now < n.notYet || !prune && !(n.waits && (hurry || now >= n.settleAt)) {
		return do, false
	}
	n.waits, n.seen = false, version
	next := store.Names{Version: n.stored.Version + 1}
	for _, h := range t.Holders() {
		next.Held = append(next.Held, store.Held(h))
	}
	left := next.Fit()
	if left > 0 && n.left == 0 {
		n.say(levelWarn, "not all names of tasks are stored", "reason", "there is no room for so many: the names of the others are not protected when another assigner takes over", "tasks", left)
	}
	n.left = left
	if fresh, gone := differ(next.Held, n.stored.Held); !fresh && !(gone && prune) {
		if prune {
			n.pruneAt = now + pruneEvery
		}
		return do, false
	}
	n.put = next
	return PutNames{next}, true
}

// differ reports whether there are any in next that are not in stored, and the other way
// round. Both are in order.
func differ(next, stored []store.Held) (fresh, gone bool) {
	for _, h := range stored {
		for len(next) > 0 && next[0].Task < h.Task {
			fresh, next = true, next[1:]
		}
		if len(next) == 0 || next[0] != h {
			gone = true
			continue
		}
		next = next[1:]
	}
	return fresh || len(next) > 0, gone
}

// NamesPut takes in what came of a PutNames.
func (c *Core) NamesPut(now Now, err error) {
	c.tick(now)
	n := &c.names
	switch {
	case err == nil:
		n.stored, n.failures = n.put, 0
		n.notYet = c.now.Mono + time.Duration(n.put.Size())*time.Second/namesRate
		n.pruneAt = c.now.Mono + pruneEvery
		if c.members.table != nil {
			c.members.table.Kept(n.stored.Version)
		}
	case errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrNotFound):
		// Another assigner has decided, or the job has gone: they are read again.
		n.known, n.waits = false, true
		c.store.loadDue = true
	default:
		// Rounds do not wait for it.
		n.waits, n.notYet = true, c.now.Mono+c.backoff(n.failures, 100*time.Millisecond, 30*time.Second)
		n.failures++
		c.say(levelWarn, "names of tasks not stored", "error", err.Error())
	}
	n.put = store.Names{}
}
