package xds

import (
	"strings"
	"time"

	"github.com/slicer-project/slicer/assignment"
	xdsv3 "github.com/slicer-project/slicer/proto/xds/v3"
)

// departedFor is how long the clusters of a task are known after it has left the job:
// clients may have routes to it yet.
const departedFor = 10 * time.Second

// verdict is what is known of a resource.
type verdict int

const (
	// isKnown: it is there, or there is none.
	isKnown verdict = iota
	// isPending: that is not known yet, so nothing is said of it.
	isPending
	// isKept: the job is refused now, and clients keep what they have.
	isKept
)

// book is what the clients of one job can be sent: resources of the newest assignment, each
// made once. Pure, and not safe for concurrent use.
type book struct {
	job      string
	a        *assignment.Assignment // the newest; nil: there is none yet
	terms    Terms
	refusal  string // why clients are not served; "": they are
	listener *resource
	// routes are by style; all but those by expression are made when they are asked for.
	routes [numStyles]*resource
	// madeOf are what these are made of; nil: they are not those of a and terms.
	madeOf [numStyles]*assignment.Assignment
	// announced are routes that clients are sent before those of routes, by what they are
	// made of.
	announced [numStyles]map[*resource]*resource
	// arriving are those for clients that come with routes of their own, by what they miss.
	arriving [numStyles]map[string]*resource
	// made are the clusters that were asked for, by policy and name.
	made     [2]map[string]*cluster
	departed map[string]departedTask // by instance
	// began is when the first assignment came, and earlier how many of departed may have left
	// before: clients of another Distributor, or of an earlier process, have asked for them.
	began   time.Time
	earlier int
}

// maxEarlier bounds the tasks of which nothing is known.
const maxEarlier = 1000

type cluster struct {
	*resource
	address string
}

type departedTask struct {
	task assignment.Task // without a name if it may have left before anything was known of it
	at   time.Time
}

func newBook(job string) *book {
	b := &book{job: job, departed: make(map[string]departedTask)}
	for p := range b.made {
		b.made[p] = make(map[string]*cluster)
	}
	return b
}

// set takes the newest assignment and what the job's config says. It reports whether that was
// news.
func (b *book) set(now time.Time, a *assignment.Assignment, t Terms) bool {
	if b.a != nil && !a.Newer(b.a) {
		if t == b.terms {
			return false
		}
		a = b.a
	}
	if b.a == nil {
		b.began = now
	}
	b.leave(now, a)
	b.a, b.terms, b.madeOf = a, t, [numStyles]*assignment.Assignment{}
	if t.Consistent {
		b.refusal = refusedConsistent
		return true
	}
	c, refusal := routesOf(a, byExpression, t.Config)
	if b.refusal = refusal; refusal != "" {
		return true
	}
	if b.listener == nil {
		b.listener = newResource(b.job, a.Generation(), listeners, listenerOf(b.job))
	}
	b.keep(byExpression, newRoutes(b.job, a.Generation(), c))
	b.madeOf[byExpression] = a
	return true
}

// keep takes routes that clients could tell from those before.
func (b *book) keep(s style, r *resource) {
	if !r.equal(b.routes[s]) {
		b.routes[s], b.announced[s], b.arriving[s] = r, make(map[*resource]*resource), make(map[string]*resource)
	}
}

// toward are the routes that a client is to be sent that has accepted others: the newest, or
// if they lead to clusters that it has not heard of, first those that announce them.
func (b *book) toward(accepted *resource, s style) *resource {
	to := b.routes[s]
	if len(to.lacks(accepted)) == 0 {
		return to
	}
	from := accepted.bare()
	r, ok := b.announced[s][from]
	if !ok {
		r = announce(from, to)
		b.announced[s][from] = r
	}
	if r == nil {
		return to
	}
	return r
}

// maxArriving bounds the routes that are kept for clients that come: most miss the same.
const maxArriving = 8

// toArriving are the routes that a client is first sent that comes with others, which lead to
// clusters that it asks for: the newest, or if it misses some of theirs, such as do without and
// announce them. Calls for which they do not know the owner any more, or not yet, go elsewhere.
func (b *book) toArriving(asks []string, s style) *resource {
	to := b.routes[s]
	missing := to.lacks(&resource{uses: asks})
	if len(missing) == 0 {
		return to
	}
	key := strings.Join(missing, " ")
	r, ok := b.arriving[s][key]
	if !ok {
		if d := detour(to, missing); d != nil {
			r = announce(d, to)
		}
		if len(b.arriving[s]) == maxArriving {
			clear(b.arriving[s])
		}
		b.arriving[s][key] = r
	}
	if r == nil {
		return to
	}
	return r
}

// routesBy are those of the newest assignment.
func (b *book) routesBy(s style) *resource {
	if b.madeOf[s] != b.a {
		if c, refusal := routesOf(b.a, s, b.terms.Config); refusal == "" {
			b.keep(s, newRoutes(b.job, b.a.Generation(), c))
		}
		b.madeOf[s] = b.a
	}
	return b.routes[s]
}

const refusedConsistent = "it is in consistent mode, and a stock client may turn to a task that does not own the key"

// leave notes which tasks next has not, and forgets those that have left long ago.
func (b *book) leave(now time.Time, next *assignment.Assignment) {
	for name, d := range b.departed {
		if now.Sub(d.at) > departedFor {
			delete(b.departed, name)
			for _, made := range b.made {
				delete(made, b.job+"/task:"+name)
				delete(made, b.job+"/own:"+name)
			}
		}
	}
	if b.a == nil {
		return
	}
	for _, t := range b.a.Tasks() {
		if p, ok := next.Position(t.Name); !ok || !next.Task(p).Same(t) {
			b.departed[instance(t)] = departedTask{t, now}
		}
	}
	for _, t := range next.Tasks() {
		delete(b.departed, instance(t))
	}
}

// find is a resource of the job, nil if there is none. own is for endpoints, which are the
// client's own.
func (b *book) find(now time.Time, k kind, name string, f flavor, own func() *resource) (*resource, verdict) {
	switch {
	case b.refusal != "":
		return nil, isKept
	case b.a == nil:
		return nil, isPending
	case k == listeners && name == b.job:
		return b.listener, isKnown
	case k == routes && name == b.job:
		return b.routesBy(f.style), isKnown
	case k == endpoints && name == anyName(b.job):
		return own(), isKnown
	case k == clusters:
		return b.cluster(now, name, f.policy), isKnown
	}
	return nil, isKnown
}

func (b *book) cluster(now time.Time, name string, p policy) *resource {
	kept := b.made[p]
	if name == anyName(b.job) {
		if kept[name] == nil {
			kept[name] = &cluster{resource: newResource(b.job, b.a.Generation(), clusters, anyCluster(b.job, p))}
		}
		return kept[name].resource
	}
	rest := strings.TrimPrefix(name, b.job+"/")
	of, named, _ := strings.Cut(rest, ":")
	t, ok := b.task(now, named)
	if !ok && of == "own" && b.earlier < maxEarlier && now.Sub(b.began) <= departedFor {
		b.departed[named] = departedTask{at: b.began}
		b.earlier++
		ok = true
	}
	if !ok || of != "own" && (of != "task" || t.Name == "") {
		return nil
	}
	if c := kept[name]; c != nil && c.address == t.Address {
		return c.resource
	}
	var m *xdsv3.Cluster
	switch {
	case t.Name == "": // a client has routes to it perhaps, and its calls are to find another
		m = inOrder(name, p, anyName(b.job))
	case of == "own":
		m = ownCluster(b.job, t, p)
	default:
		m = taskCluster(b.job, t, p)
	}
	kept[name] = &cluster{newResource(b.job, b.a.Generation(), clusters, m), t.Address}
	return kept[name].resource
}

// task finds an instance that is in the job, or has left it a moment ago.
func (b *book) task(now time.Time, named string) (assignment.Task, bool) {
	if dot := strings.LastIndexByte(named, '.'); dot >= 0 {
		if p, ok := b.a.Position(named[:dot]); ok && instance(b.a.Task(p)) == named {
			return b.a.Task(p), true
		}
	}
	d, ok := b.departed[named]
	return d.task, ok && now.Sub(d.at) <= departedFor
}
