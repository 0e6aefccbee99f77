package membership

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/slicer-project/slicer/assignment/access"
)

// Holder is a name and the identity that holds it.
type Holder struct{ Task, Identity string }

// hold is a name of which nothing is known but who holds it.
type hold struct {
	identity string
	until    time.Duration
}

// holders are the names that identities hold, of those that report, and as another table has
// left them.
type holders struct {
	holds   map[string]hold // names of tasks that are not known
	expects bool
	taken   int64  // the version of what was taken in last
	changes uint64 // of what is not an event
}

// Names are whose the names of a table's tasks are.
type Names struct{ roster *roster }

// Expect makes the table wait for Hold: until then it takes no report of a task under an
// identity that the task is not known to have, lest a stranger take the name of one
// that an earlier table knew. Such reports are Foreign, and are not refused: tasks report
// again within a second.
func (n *Names) Expect() { n.roster.expects = true }

// Expects reports whether it waits for Hold.
func (n *Names) Expects() bool { return n.roster.expects }

// Believe ends the waiting without a Hold.
func (n *Names) Believe() { n.roster.expects = false }

// Hold takes in which identities held names, by name, as another table has left that in a
// version. What is known here counts unless that version is new to the table. Names of tasks that are not
// known are held for Config.HoleAge from now on: when they have gone is not known either.
func (n *Names) Hold(now time.Duration, version int64, held iter.Seq2[string, string]) {
	r := n.roster
	r.tick(now)
	newer := version != r.taken
	r.expects, r.taken = false, version
	for name, identity := range held {
		switch k := r.lookup(name); {
		case k == nil && newer:
			r.hold(name, hold{identity, r.now + r.cfg.HoleAge})
		case k != nil && (k.identity == "" || newer && k.identity != identity):
			k.identity = identity
			r.changes++
		}
	}
}

// Kept says that what Holders has returned is what others will go by, as a version.
func (n *Names) Kept(version int64) { n.roster.taken = version }

func (r *roster) hold(name string, h hold) {
	if h.identity == string(access.Anonymous) {
		return // free, once its task has gone
	}
	if r.holds == nil {
		r.holds = make(map[string]hold)
	}
	r.holds[name] = h
	r.changes++
}

// heldByOther reports whether a name of which no task is known is another identity's.
func (r *roster) heldByOther(name, identity string) bool {
	h, ok := r.holds[name]
	return ok && identity != "" && h.identity != identity && r.now < h.until
}

// claim gives a task that has become known the identity that holds its name.
func (r *roster) claim(k *task) {
	if h, ok := r.holds[k.cur.Name]; ok && r.now < h.until {
		k.identity = cmp.Or(k.identity, h.identity)
	}
	delete(r.holds, k.cur.Name)
}

// until is for how long a name stays that of the identity which holds it, unless its task
// goes on living.
func (r *roster) until(k *task) time.Duration {
	switch {
	case k.alive():
		return r.now + r.cfg.HoleAge
	case k.identity == string(access.Anonymous):
		return 0
	}
	return k.fateAt + r.cfg.HoleAge
}

// Holders are the names that identities hold, in order of name: of tasks that live, and of
// those that have been dead or gone for less than Config.HoleAge.
func (n *Names) Holders() []Holder {
	r := n.roster
	out := make([]Holder, 0, len(r.tasks)+len(r.holds))
	for _, k := range r.tasks {
		if k.identity != "" && r.now < r.until(k) {
			out = append(out, Holder{k.cur.Name, k.identity})
		}
	}
	maps.DeleteFunc(r.holds, func(_ string, h hold) bool { return r.now >= h.until })
	for _, name := range slices.Sorted(maps.Keys(r.holds)) {
		out = append(out, Holder{name, r.holds[name].identity})
	}
	slices.SortFunc(out, func(a, b Holder) int { return cmp.Compare(a.Task, b.Task) })
	return out
}

// Changes is another number whenever Holders may return something else, but for names that are held no
// more because time has passed.
func (n *Names) Changes() uint64 { return n.roster.version + n.roster.changes }

// follow takes over who holds names from a table that this one replaces.
func (r *roster) follow(was *roster) {
	r.taken = was.taken
	for _, o := range was.tasks {
		k := r.lookup(o.cur.Name)
		switch {
		case o.identity == "":
		case k == nil && r.now < was.until(o):
			r.hold(o.cur.Name, hold{o.identity, was.until(o)})
		case k != nil && k.cur.Incarnation == o.cur.Incarnation:
			k.identity = cmp.Or(k.identity, o.identity)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(was.holds)) {
		if r.lookup(name) == nil {
			r.hold(name, was.holds[name])
		}
	}
}
