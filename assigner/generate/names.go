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

// PutNames asks for the names of the job's tasks to be stored. It ends with Names.Put.
type PutNames struct{ Names store.Names }

const (
	// pruneEvery is how often names are taken off that are held no more, while nothing else
	// changes.
	pruneEvery = 30 * time.Second
	// namesRate is how many bytes of names are written a second, at most: a rollout of
	// many tasks under new names must not fill the store.
	namesRate = 64 << 10
	// namesFor is how much newer than what is stored of names the assignment may be for it
	// to count. Assigners that keep names write them anew, before the next generation, after
	// namesAnew: so it counts no more when others have decided for long that do not, and
	// still does after an outage of all.
	namesFor  = 30 * time.Minute
	namesAnew = 10 * time.Minute
)

// Names are which identities hold the names of tasks, as they are stored.
type Names struct {
	*env
	store   *stored
	lead    *leadership
	members *members

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
	failures int  // in a row
	drops    bool // what is stored is to be emptied: names are not kept any more
	left     int  // for how many there was no room
}

// Policy says what policy is in force, nil for none.
func (n *Names) Policy(now Now, p *access.Policy) {
	n.tick(now)
	if n.policy != p {
		n.policy = p
		n.bound = p.Bound(n.access)
		n.weigh()
	}
}

// weigh decides whether names are kept.
func (n *Names) weigh() {
	s := n.store
	if exists := s.known && s.exists; exists && n.access != s.job.Config.Access {
		n.access = s.job.Config.Access
		n.bound = n.policy.Bound(n.access)
	}
	keeps := n.policy != nil && !(s.known && s.exists && n.bound)
	if !keeps && n.members.keeps {
		n.drops = n.known && len(n.stored.Held) > 0
		n.known = false
		n.members.each(func(t *membership.Table) { t.Names.Believe() })
	}
	n.members.keeps = keeps
}

// kept reports whether names are kept here: this assigner is preferred, too.
func (n *Names) kept() bool { return n.members.keeps && n.lead.isPreferred() }

// due reports whether they have to be read.
func (n *Names) due() bool {
	return n.kept() && n.store.exists && (!n.known || n.members.table != nil && n.members.table.Names.Expects())
}

// take takes in what was read.
func (n *Names) take(l Loaded) {
	if !l.Named || !n.kept() || n.members.table == nil {
		return
	}
	if age := generation(l.Assignment).Time().Sub(l.Names.AsOf.Time()); l.Names.AsOf > 0 && age > namesFor {
		n.say(levelInfo, "stored names of tasks are out of date", "reason", "assigners that do not keep them have decided since: they are those of the identities that report them first", "for", age.String())
		l.Names.Held = nil
	}
	n.members.table.Names.Hold(n.now.Mono, l.Names.Version, each(l.Names.Held))
	n.stored, n.known = l.Names, true
}

// asOf is what generations are compared with that come after what is put now.
func (n *Names) asOf() assignment.Generation {
	return max(assignment.Generation(n.now.Wall.UnixMilli()), generation(n.store.newest), n.stored.AsOf, 0)
}

// emptied is what is to be written when names are not kept any more, if it is. It makes no
// assignment wait.
func (n *Names) emptied() (do PutNames, ok bool) {
	if n.members.keeps || !n.lead.isPreferred() || !n.store.exists {
		n.drops = false // what is out of date counts no more in a while
	}
	if !n.drops || n.now.Mono < n.notYet {
		return do, false
	}
	n.put = store.Names{Version: n.stored.Version + 1, AsOf: n.asOf()}
	return PutNames{n.put}, true
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
func (n *Names) wake() (at time.Duration, ok bool) {
	return max(n.settleAt, n.notYet), n.drops || n.waits && n.known && n.kept()
}

// next is what is to be written, if anything is. hurry says that an assignment waits for it.
func (n *Names) next(hurry bool) (do PutNames, ok bool) {
	if n.drops {
		return n.emptied()
	}
	t := n.members.table
	if !n.known || !n.kept() || !n.store.exists || t == nil {
		return do, false
	}
	now, version := n.now.Mono, t.Names.Changes()
	if version != n.seen && !n.waits {
		n.waits, n.settleAt = true, now+joinSettle
	}
	prune := now >= n.pruneAt
	asOf := n.asOf()
	old := hurry && len(n.stored.Held) > 0 && asOf.Time().Sub(n.stored.AsOf.Time()) > namesAnew
	if now < n.notYet || !prune && !old && !(n.waits && (hurry || now >= n.settleAt)) {
		return do, false
	}
	n.waits, n.seen = false, version
	next := store.Names{Version: n.stored.Version + 1, AsOf: asOf}
	for _, h := range t.Names.Holders() {
		next.Held = append(next.Held, store.Held(h))
	}
	left := next.Fit()
	if left > 0 && n.left == 0 {
		n.say(levelWarn, "not all names of tasks are stored", "reason", "there is no room for so many: the names of the others are not protected when another assigner takes over", "tasks", left)
	}
	n.left = left
	if fresh, gone := differ(next.Held, n.stored.Held); !fresh && !(gone && prune) && !old {
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

// Put takes in what came of a PutNames.
func (n *Names) Put(now Now, err error) {
	n.tick(now)
	switch {
	case err == nil:
		n.stored, n.failures, n.drops = n.put, 0, false
		n.notYet = n.now.Mono + time.Duration(n.put.Size())*time.Second/namesRate
		n.pruneAt = n.now.Mono + pruneEvery
		if n.members.table != nil {
			n.members.table.Names.Kept(n.stored.Version)
		}
	case errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrNotFound):
		// Another assigner has decided, or the job has gone: they are read again.
		n.known, n.waits, n.drops = false, true, false
		n.store.loadDue = true
		if n.failures++; n.failures > 1 { // it decides still: the two would go on like that
			n.notYet = n.now.Mono + n.backoff(n.failures, 5*time.Millisecond, time.Second)
		}
	default:
		// Rounds do not wait for it.
		n.waits, n.notYet = true, n.now.Mono+n.backoff(n.failures, 100*time.Millisecond, 30*time.Second)
		n.failures++
		n.say(levelWarn, "names of tasks not stored", "error", err.Error())
	}
	n.put = store.Names{}
}
