package cluster

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/subscriber/protocol"
	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/loadbalance/overload"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"github.com/slicer-project/slicer/slicelet/quota"
)

// What has to hold of customers with a limit.
const (
	// settles is how long after what it asks for, its limit, its tasks, or what allots the limit to
	// these has changed a customer gets what it may. It takes a report, which comes each second, a
	// Distributor's message of all, the assigner's answer, and the answer to the next report; and
	// what is reported is smoothed over some seconds.
	settles = 6 * time.Second
	// keeps is how long tasks keep their shares when nothing allots any: 30 s, less what may pass
	// before it is noticed here that there is nothing.
	keeps = 28 * time.Second
	// quotaWindow is how long a customer's requests are counted for a verdict.
	quotaWindow = 5 * time.Second
	// A customer that asks for at least over times its limit gets at least leastOfLimit and at most
	// mostOfLimit of it. Of a limit a tenth is kept for tasks that are not asked, and of each
	// Distributor's part as well (overload.Divide).
	over, leastOfLimit, mostOfLimit = 1.3, .8, 1.1
	// One that asks for at most within of its limit is refused at most lost of its requests that are
	// above SHEDDABLE. What it asks of a task varies by chance, and so what that task reports and its
	// share of the limit: of so few requests a second by a quarter. In the mean it is a hundredth.
	within, lost = .8, .1
	// few are the requests that chance may add to each task's, and fewLost those that it may refuse
	// there: shares follow what is asked for by some seconds, in which one task may be asked for twice
	// its part of so little.
	few, fewLost = 3, 6
)

// customer is one that has a limit, and asks for some of the keys.
type customer struct {
	w           *world
	name        string
	keys        []int
	limit, rate float64 // requests a second
	asks        *purchase
	saved       time.Duration // until when tasks let in more than its limit
	allotted    allotted
}

// allotted is what the checker knows of a customer.
type allotted struct {
	changed time.Duration // when what it asks for, its limit or its tasks last did
	linked  time.Duration // when what tells its tasks their shares last changed
	// roomless is when a request was last refused or held back as a task had no room: what is asked
	// of that task by what it reports, and so its share, falls.
	roomless time.Duration
	tasks    uint64 // checksums of these
	links    uint64
	owners   int           // how many its tasks are
	learned  bool          // all that allots its limit knows what it asks for
	known    time.Duration // when that was last so with all in order
	// Of the window that began, what came, was let in, and was refused for its limit though it is
	// above SHEDDABLE.
	began                time.Duration
	came, letIn, refused int
}

// newCustomers are those of all worlds: one that asks for less than its limit, and one that now and
// then asks for more than its own.
func newCustomers(w *world) (all [2]*customer) {
	for i, name := range []string{"meek", "greedy"} {
		all[i] = &customer{w: w, name: name, limit: 15}
	}
	return all
}

// limits are those in the job's config.
func (t *traffic) limits() assignment.Limits {
	named := make(map[string]assignment.Limit)
	for _, x := range t.customers {
		named[x.name] = assignment.Limit{Rate: x.limit}
	}
	l, err := assignment.LimitsOf(assignment.Limit{}, named)
	if err != nil {
		panic(err)
	}
	return l
}

// buy is when customers begin to ask, when one first asks for more than its limit, and when limits
// first change.
func (t *traffic) buy() {
	meek, greedy := t.customers[0], t.customers[1]
	meek.set(.7*meek.limit, t.rng.Perm(trafficKeys)[:1+t.rng.IntN(3)])
	greedy.set(.5*greedy.limit, meek.keys)
	t.later(t.seconds(10, 30), t.rush)
	t.later(t.seconds(30, 90), t.relimit)
	t.later(time.Second, t.w.check.quotas)
}

// rush has one customer ask for several times its limit, for the other's keys and some more, and the
// next time long after the end of this.
func (t *traffic) rush() {
	meek, greedy := t.customers[0], t.customers[1]
	keys := append(t.rng.Perm(trafficKeys)[:t.rng.IntN(2)], meek.keys...)
	greedy.set([]float64{2, 4, 8}[t.rng.IntN(3)]*greedy.limit, keys)
	t.w.note("%s asks for %.0f a second of its limit of %.0f, for keys %v", greedy.name, greedy.rate, greedy.limit, keys)
	t.later(t.seconds(12, 18), func() {
		greedy.set(.5*greedy.limit, meek.keys)
		t.later(t.seconds(20, 45), t.rush)
	})
}

// relimit has an operator change a limit.
func (t *traffic) relimit() {
	s, x := t.w.store, t.customers[t.rng.IntN(len(t.customers))]
	was := x.limit
	x.limit = float64(10 + t.rng.IntN(15))
	t.w.note("the limit of %s is %.0f in place of %.0f", x.name, x.limit, was)
	x.set(x.rate*x.limit/was, x.keys)
	s.job.Config.Limits = t.limits()
	s.job.Version++
	s.moved()
	t.later(t.seconds(40, 90), t.relimit)
}

// set has a customer ask for keys so often from now on. If that is more than its limit, tasks let in
// what it has saved at first: as much as in a second (overload.Bucket).
func (x *customer) set(rate float64, keys []int) {
	x.rate, x.keys = rate, keys
	x.allotted.changed = x.w.at
	x.asks = &purchase{x}
	if rate > x.limit {
		x.saved = x.w.at + time.Second
		x.w.traffic.later(time.Second, x.w.traffic.rerouted)
	}
	x.w.traffic.rerouted()
	x.asks.next()
}

// purchase is a customer's next request.
type purchase struct{ by *customer }

func (p *purchase) next() {
	p.by.w.traffic.next(p.by.rate, 1<<58, p)
}

func (p *purchase) happen() {
	x, t := p.by, p.by.w.traffic
	if x.asks != p {
		return
	}
	p.next()
	c, l := x.w.clerks[t.rng.IntN(len(x.w.clerks))], drawLabels(t.rng, &usualMix)
	if c.runs() {
		c.ask(x.keys[t.rng.IntN(len(x.keys))], x, l)
	}
}

// perKey is how much a customer brings a task for each of its keys: what its limit lets in, all at
// first and if the task has begun anew and knows of none, and what it costs to refuse the rest,
// which some clerks send three times.
func (x *customer) perKey(s *sliceletHost) float64 {
	asked := x.rate / float64(len(x.keys))
	letIn := min(asked, x.limit)
	if s.room == nil || s.room.quotas == nil || x.w.at < x.saved {
		letIn = asked
	}
	return letIn + asked*mostAttempts*float64(takeIn)/float64(cpuTakes)
}

// limit takes what a task is told of limits.
func (s *sliceletHost) limit() {
	if q, was := s.state.Quotas, s.room.quotas; q != was {
		if s.room.quotas = q; q == nil {
			q = new(wire.Quotas)
		}
		s.room.accounts.SetLimits(s.now(), q.Limits, q.Shares)
		if was == nil {
			s.w.traffic.rerouted()
		}
	}
}

// customers is what a task reports that customers ask of it.
func (s *sliceletHost) customers() *slicerv1.CustomerUse {
	tasks := 1
	if a := s.state.Assignment; a != nil {
		tasks = a.NumTasks()
	}
	a := s.room.accounts
	a.Look(s.now(), s.state.Link == protocol.Distributor, tasks, s.state.Status.LoadMetric, 0)
	return wire.UseToProto(a.Report(s.now()))
}

// charge is what a request is charged to its customer.
type charge struct {
	account *quota.Account
	cost    float64
}

// charge charges a request, and reports whether its customer's limit lets it in.
func (r *room) charge(a *ask) bool {
	if a.charge = (charge{}); a.customer == nil {
		return true
	}
	ok := true
	if x := r.accounts.Find(r.s.now(), a.customer.name); x != nil {
		if a.charge.cost, ok = x.Charge(r.s.now(), a.of, max(a.standsFor-1, 0)); ok {
			a.charge.account = x
		}
	}
	a.customer.allotted.charged(a.of, ok)
	if f := r.s.w.traffic.flood; !ok && f != nil && r.s.w.at >= f.counts {
		r.watched.taken++
	}
	return ok
}

// cancel takes back what a request was charged that is refused for another reason.
func (a *ask) cancel() {
	if a.charge.account != nil {
		a.charge.account.Cancel(a.charge.cost)
		a.charge.account = nil
		a.customer.allotted.letIn--
		a.customer.allotted.roomless = a.from.w.at
	}
}

func (k *allotted) charged(c overload.Criticality, ok bool) {
	switch k.came++; {
	case ok:
		k.letIn++
	case c > overload.Sheddable:
		k.refused++
	}
}

// payer is whose requests a task refuses for want of quota (clerk.Throttle).
type payer struct {
	*customer
	of overload.Criticality
}

// watchFor is how long answers are counted after the last such refusal.
const watchFor = 30 * time.Second

// accept counts an answer to a request of a customer.
func (t *throttle) accept(now time.Duration, a *ask) {
	if a.customer == nil {
		return
	}
	if a.end == overQuota {
		if t.refusedAt = now; t.accepts == nil {
			t.accepts = make(map[payer]*overload.Accepts)
		}
	}
	who := payer{a.customer, a.of}
	x := t.accepts[who]
	switch {
	case now-t.refusedAt > watchFor:
		t.accepts = nil
		return
	case x == nil && a.end != overQuota:
		return
	case x == nil:
		x = new(overload.Accepts)
		t.accepts[who] = x
	}
	if x.Answered(now, a.end != overQuota); x.Quiet(now) {
		delete(t.accepts, who)
	}
}

// overLimit reports whether a clerk holds a request back since a task refuses such for their limit.
func (t *throttle) overLimit(now time.Duration, a *ask) bool {
	x := t.accepts[payer{a.customer, a.of}]
	return x != nil && x.Holds(now, a.p)
}

// quotas looks at each customer, each second.
func (c *checker) quotas() {
	c.w.traffic.later(time.Second, c.quotas)
	for _, x := range c.w.traffic.customers {
		c.settles(x)
		k := &x.allotted
		switch {
		case !k.learned:
			k.began = -1
		case k.began < 0:
			*k = allotted{changed: k.changed, linked: k.linked, roomless: k.roomless, tasks: k.tasks, links: k.links, learned: true, known: k.known, began: c.w.at}
		case c.w.at-k.began >= quotaWindow:
			c.allotted(x)
			k.began = -1
		}
	}
}

// settles finds out whether all that allots a customer's limit knows what it asks for.
func (c *checker) settles(x *customer) {
	w, k := c.w, &x.allotted
	tasks, links, linked, owners := uint64(0), uint64(0), true, make(map[*sliceletHost]bool)
	for _, by := range w.clerks {
		if !by.up || by.asking.routed == nil {
			continue
		}
		for _, key := range x.keys {
			for t := range by.asking.routed.Lookup(w.traffic.keys[key]).All() {
				s := w.named[t.Name]
				owners[s] = true
				tasks = w.hash(tasks, uint64(s.at), s.life, uint64(s.wellAt))
				d, since, ok := w.serves(&s.subscriberHost)
				links = w.hash(links, uint64(d), uint64(since))
				linked = linked && ok && s.runs()
			}
		}
	}
	k.owners = len(owners)
	if tasks != k.tasks {
		k.tasks, k.changed, k.learned = tasks, w.at, false
	}
	if links != k.links || !linked {
		k.links, k.linked = links, w.at
	}
	steady := w.at-max(k.changed, k.roomless) >= settles
	switch since := w.at - max(k.linked, c.since); {
	case c.able && since >= settles && steady:
		k.learned, k.known = true, w.at
	case k.learned && w.unallotted(k) && w.at-k.known < keeps && steady:
	default:
		k.learned = false
	}
}

// unallotted reports whether nothing allots a customer's limit: no Distributor runs, or no assigner
// and its tasks have the Distributors that they had.
func (w *world) unallotted(k *allotted) bool {
	up := func(hosts ...*host) bool { return slices.ContainsFunc(hosts, func(h *host) bool { return h.up }) }
	var distributors, assigners []*host
	for _, d := range w.distributors {
		distributors = append(distributors, d.host)
	}
	for _, a := range w.assigners {
		assigners = append(assigners, a.host)
	}
	return !up(distributors...) || !up(assigners...) && w.at-k.linked >= settles
}

// attached reports whether a Distributor is attached to the assigner that could act.
func (c *checker) attached(d *host) bool {
	if c.stands.assigner == nil {
		return false
	}
	for p := range c.stands.assigner.peers {
		if p.ends[0].host == d {
			return true
		}
	}
	return false
}

// serves is what Distributor serves a subscriber, and since when it does and both have run and
// reached each other; ok is false if they do not, or the Distributor is not attached.
func (w *world) serves(s *subscriberHost) (id int, since time.Duration, ok bool) {
	d, found := w.servers[s.server()]
	if s.state.Link != protocol.Distributor || !found {
		return 0, 0, false
	}
	for _, c := range s.conns {
		if c.ends[1].host == d.host && (c.lost || c.ends[1].closed) {
			return 0, 0, false
		}
	}
	return d.id, max(s.linkedAt, d.wellAt, s.wellAt, w.changed(s.host, d.host)), d.runs() && !w.apart(s.host, d.host) && w.check.attached(d.host)
}

// allotted looks at what became of a customer's requests in a window in which it has to get what it
// may.
func (c *checker) allotted(x *customer) {
	k, secs := &x.allotted, (c.w.at - x.allotted.began).Seconds()
	c.overload.allotted++
	limit, came, letIn := x.limit*secs, float64(k.came), float64(k.letIn)
	says := fmt.Sprintf("%s has a limit of %.0f a second, and of %d requests in %.0f s %d were let in, and %d refused for that which are above SHEDDABLE",
		x.name, x.limit, k.came, secs, k.letIn, k.refused)
	spare := few * float64(k.owners)
	switch {
	case letIn > mostOfLimit*limit+spare:
		c.w.fail("%s: more than it may", says)
	case came >= over*limit:
		c.overload.overLimit++
		c.overload.ofLimit += letIn / limit
		c.overload.leastOfLimit = min(c.overload.leastOfLimit, letIn/limit)
		if letIn < leastOfLimit*limit-spare {
			c.w.fail("%s: less than it may", says)
		}
	case came <= within*limit:
		c.overload.withinLimit++
		c.overload.lost += float64(k.refused) / math.Max(came, 1)
		if float64(k.refused) > lost*came+fewLost*float64(k.owners) {
			c.w.fail("%s: it is within its limit", says)
		}
	}
}
