// Package quota holds customers to their shares of a job's limits, in one task. Package slicelet
// does so by it; it is a package that others can import for simulations.
package quota

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/loadbalance/overload"
)

const (
	// maxAccounts is how many customers have an account of their own; the others share one.
	maxAccounts = 4096
	// maxNames is how many names a report has.
	maxNames = 16
	// A share holds for keepShare after it was last told, and then goes to an equal part of
	// the limit within easeShare.
	keepShare, easeShare = 30 * time.Second, 5 * time.Minute
	// forgetAfter is how long an account lasts that nothing is charged to.
	forgetAfter = time.Minute
	// newest is the weight of the last interval in what is reported, and of a request in what
	// one costs.
	newest, newestCost = .5, .1
)

// Accounts are those of a task's customers. All methods are safe for concurrent use. Times are
// time.Now's.
type Accounts struct {
	epoch time.Time
	on    atomic.Bool   // some customer may have a limit
	unit  atomic.Uint32 // one of the below
	// perSecond is what a second's work of a handler costs, math.Float64bits.
	perSecond       atomic.Uint64
	served, refused atomic.Uint64 // requests

	mu     sync.RWMutex
	of     map[string]*Account
	rest   *Account // of those that have none
	named  map[string]assignment.Limit
	others assignment.Limit
	limits assignment.Limits
	told   map[uint64]float64 // shares, by customer
	toldAt time.Duration      // when they last held
	tasks  int                // that share limits
	last   time.Duration      // report
	nameAt int                // which name is reported next
}

// What a request costs.
const (
	one   = iota // 1
	work         // what its handler works
	spent        // what its handler says
)

// Account is a customer's.
type Account struct {
	in    *Accounts
	name  string
	limit atomic.Pointer[assignment.Limit]

	mu                  sync.Mutex
	bucket              overload.Bucket
	cost                float64       // of a request, about
	asked, used         float64       // since the last report
	askedRate, usedRate float64       // as reported
	at                  time.Duration // when something was last charged
	known               bool          // what a request costs
}

// New returns accounts without any limit.
func New(now time.Time) *Accounts {
	return &Accounts{epoch: now, of: make(map[string]*Account), tasks: 1}
}

// SetLimits takes the job's limits, and the shares of them that this task may use, by
// customer. A customer that has none may use an equal part of its limit.
func (a *Accounts) SetLimits(now time.Time, l assignment.Limits, shares map[uint64]float64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := now.Sub(a.epoch)
	if !maps.Equal(shares, a.told) { // a Backup Distributor says the limits, and nothing of shares
		a.told, a.toldAt = shares, at
	}
	if l != a.limits {
		a.limits, a.named, a.others = l, maps.Collect(l.All()), l.Others()
		for name, x := range a.of {
			if x.setLimit(a.limitLocked(name)); *x.limit.Load() == (assignment.Limit{}) {
				delete(a.of, name)
			}
		}
		if a.rest != nil {
			a.rest.setLimit(a.others)
		}
		a.on.Store(l != (assignment.Limits{}))
	}
	a.ratesLocked(at)
}

func (a *Accounts) limitLocked(customer string) assignment.Limit {
	if l, ok := a.named[customer]; ok {
		return l
	}
	return a.others
}

// Look takes how things are: whether what was told still holds, since a Distributor serves
// that would say otherwise, how many tasks there are (0 if that is not known: as many as before),
// what load is measured in (assignment.JobConfig.LoadMetric), and how many units a second's work of
// a handler is.
func (a *Accounts) Look(now time.Time, holds bool, tasks int, metric string, perSecond float64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := now.Sub(a.epoch)
	if holds {
		a.toldAt = at
	}
	if tasks > 0 {
		a.tasks = tasks
	}
	unit := uint32(one)
	switch metric {
	case assignment.LoadCPU:
		unit = work
	case assignment.LoadCustom:
		unit = spent
	}
	if a.unit.Swap(unit) != unit {
		for _, x := range a.allLocked() {
			x.forgetCost()
		}
	}
	if perSecond > 0 {
		a.perSecond.Store(math.Float64bits(perSecond))
	}
	a.ratesLocked(at)
}

func (a *Accounts) allLocked() []*Account {
	all := slices.Collect(maps.Values(a.of))
	if a.rest != nil {
		all = append(all, a.rest)
	}
	return all
}

// ratesLocked brings the rates of all accounts up to date.
func (a *Accounts) ratesLocked(at time.Duration) {
	for _, x := range a.allLocked() {
		x.setRate(at, a.rateLocked(at, x))
	}
}

// rateLocked is what a customer may use here.
func (a *Accounts) rateLocked(at time.Duration, x *Account) float64 {
	part := x.limit.Load().Rate / float64(a.tasks)
	share, ok := a.told[assignment.CustomerID(x.name)]
	if !ok {
		return part
	}
	old := min(max(float64(at-a.toldAt-keepShare)/float64(easeShare), 0), 1)
	return share*(1-old) + part*old
}

func (x *Account) setLimit(l assignment.Limit) { x.limit.Store(&l) }

func (x *Account) setRate(at time.Duration, rate float64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.bucket.SetRate(at, rate, x.cost)
}

func (x *Account) forgetCost() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.cost, x.known, x.asked, x.used, x.askedRate, x.usedRate = 1, false, 0, 0, 0, 0
	x.bucket = overload.Bucket{}
}

// Find is the account of a customer, nil if nothing limits it.
func (a *Accounts) Find(now time.Time, customer string) *Account {
	if customer == "" || !a.on.Load() {
		return nil
	}
	a.mu.RLock()
	x, ok := a.of[customer]
	a.mu.RUnlock()
	if ok {
		return x
	}
	return a.open(now, customer)
}

func (a *Accounts) open(now time.Time, customer string) *Account {
	a.mu.Lock()
	defer a.mu.Unlock()
	if x, ok := a.of[customer]; ok {
		return x
	}
	x, limit := &Account{in: a, name: customer, cost: 1, at: now.Sub(a.epoch)}, a.limitLocked(customer)
	switch {
	case limit == (assignment.Limit{}):
		return nil
	case len(a.of) < maxAccounts:
		a.of[customer] = x
	case a.rest != nil:
		return a.rest
	default:
		x.name, limit = "", a.others
		a.rest = x
	}
	x.setLimit(limit)
	x.setRate(x.at, a.rateLocked(x.at, x))
	return x
}

// MaxCriticality is the highest of its requests, 0 for any.
func (x *Account) MaxCriticality() assignment.Criticality {
	return x.limit.Load().MaxCriticality
}

// Charge reports whether a request is let in, which stands for so many more that were not
// sent, and what it was charged.
func (x *Account) Charge(now time.Time, c assignment.Criticality, more int) (cost float64, ok bool) {
	limited := x.limit.Load().Rate > 0
	x.mu.Lock()
	defer x.mu.Unlock()
	x.at = now.Sub(x.in.epoch)
	if ok = !limited || x.bucket.Take(x.at, c, x.cost); ok {
		x.used += x.cost
		x.in.served.Add(1)
	} else {
		x.in.refused.Add(1)
	}
	x.asked += x.cost * float64(1+max(more, 0))
	return x.cost, ok
}

// Cancel takes back the charge of a request that was refused for another reason.
func (x *Account) Cancel(cost float64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.bucket.Spend(-cost)
	x.used -= cost
}

// Done is the end of a request that was charged a cost: its handler worked for so long, and
// says that it spent so much, 0 if it does not say.
func (x *Account) Done(cost float64, took time.Duration, says float64) {
	unit := x.in.unit.Load()
	switch {
	case unit == one:
		return
	case says > 0:
	case unit == work:
		says = took.Seconds()
		if per := math.Float64frombits(x.in.perSecond.Load()); per > 0 {
			says *= per
		}
	default:
		says = 1
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.bucket.Spend(says - cost)
	x.used += says - cost
	x.asked += says - cost
	if !x.known {
		x.cost, x.known = says, true
	}
	x.cost += newestCost * (says - x.cost)
}

// Report is what was asked for since the last one: the customers that ask for most, in order
// of their number, and the names of some of them.
func (a *Accounts) Report(now time.Time) (uses []assignment.CustomerUse, names []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := now.Sub(a.epoch)
	secs := (at - a.last).Seconds()
	if secs <= 0 {
		return nil, nil
	}
	a.last = at
	byID := make(map[uint64]string)
	for name, x := range a.of {
		u, idle := x.report(at, secs)
		if idle {
			delete(a.of, name)
		} else if u.Asked > 0 && x.limit.Load().Rate > 0 {
			u.Customer = assignment.CustomerID(name)
			byID[u.Customer] = name
			uses = append(uses, u)
		}
	}
	slices.SortFunc(uses, func(x, y assignment.CustomerUse) int {
		return cmp.Or(cmp.Compare(y.Asked, x.Asked), cmp.Compare(x.Customer, y.Customer))
	})
	uses = uses[:min(len(uses), wire.MaxTaskCustomers)]
	slices.SortFunc(uses, func(x, y assignment.CustomerUse) int { return cmp.Compare(x.Customer, y.Customer) })
	for range min(len(uses), maxNames) {
		a.nameAt = (a.nameAt + 1) % len(uses)
		names = append(names, byID[uses[a.nameAt].Customer])
	}
	return uses, names
}

// report ends an interval.
func (x *Account) report(at time.Duration, secs float64) (u assignment.CustomerUse, idle bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	weight := newest
	if x.askedRate == 0 {
		weight = 1
	}
	x.askedRate += weight * (max(x.asked, 0)/secs - x.askedRate)
	x.usedRate += weight * (max(x.used, 0)/secs - x.usedRate)
	x.asked, x.used = min(x.asked, 0), min(x.used, 0)
	if x.askedRate < 1e-6 {
		x.askedRate, x.usedRate = 0, 0
	}
	return assignment.CustomerUse{Asked: x.askedRate, Used: x.usedRate}, at-x.at > forgetAfter
}

// Counts are how many requests were let in and how many were refused.
func (a *Accounts) Counts() (served, refused uint64) { return a.served.Load(), a.refused.Load() }

// Rates are what those customers asked for and got that asked for most by the last report,
// units a second, at most n, by name.
func (a *Accounts) Rates(n int) map[string]assignment.CustomerUse {
	a.mu.RLock()
	defer a.mu.RUnlock()
	type of struct {
		name string
		assignment.CustomerUse
	}
	var all []of
	for name, x := range a.of {
		x.mu.Lock()
		all = append(all, of{name, assignment.CustomerUse{Asked: x.askedRate, Used: x.usedRate}})
		x.mu.Unlock()
	}
	slices.SortFunc(all, func(x, y of) int { return cmp.Or(cmp.Compare(y.Asked, x.Asked), cmp.Compare(x.name, y.name)) })
	rates := make(map[string]assignment.CustomerUse)
	for _, x := range all[:min(len(all), n)] {
		rates[x.name] = x.CustomerUse
	}
	return rates
}
