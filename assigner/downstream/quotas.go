package downstream

import (
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/loadbalance/overload"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// quotas divide the limits of the job's customers among Distributors: each is told its share
// in answer to what its customers ask for.
type quotas struct {
	limits    assignment.Limits
	rates     map[uint64]float64 // of customers with limits of their own
	others    float64
	claims    *overload.Claims[Session]
	preferred bool
}

func newQuotas() quotas { return quotas{claims: overload.NewClaims[Session](wire.MaxCustomers)} }

// quotasDue is what a Distributor is to be told of quotas.
type quotasDue struct {
	due    bool // something
	limits bool // the limits, too
	told   bool // it has been told something since this assigner became preferred
}

// configure takes the limits of the job's config, and whether this assigner is preferred,
// whose part it is to divide them. It reports whether all are to be told of that.
func (q *quotas) configure(l assignment.Limits, preferred bool) (changed bool) {
	if l.Equal(q.limits) && preferred == q.preferred {
		return false
	}
	if !preferred {
		q.claims = newQuotas().claims
	}
	q.limits, q.preferred, q.others = l, preferred, l.Others().Rate
	q.rates = make(map[uint64]float64)
	for name, x := range l.All() {
		q.rates[assignment.CustomerID(name)] = x.Rate
	}
	return true
}

// limited reports whether there are limits to be divided.
func (q *quotas) limited() bool { return q.preferred && !q.limits.Equal(assignment.Limits{}) }

// rate is how much a customer may use.
func (q *quotas) rate(customer uint64) (rate float64, ok bool) {
	if rate, ok = q.rates[customer]; !ok {
		rate = q.others
	}
	return rate, rate > 0
}

// newQuotas looks at what has changed in the job's config.
func (j *Job) newQuotas(l assignment.Limits, preferred bool) {
	if !j.quotas.configure(l, preferred) {
		return
	}
	j.each(func(s Session, w *watcher) {
		w.quotas = quotasDue{told: preferred && w.quotas.told}
		if j.quotas.limited() || w.quotas.told {
			w.quotas.due, w.quotas.limits = true, true
			j.add(Notify{s})
		}
	})
}

// usesFor is how long what customers ask of a Distributor's tasks counts: it says so each second,
// until nothing is asked for. One that does not is cut off, and before long its tasks have another.
const usesFor = 5 * time.Second

// uses takes what customers ask of a Distributor's tasks.
func (j *Job) uses(from Session, w *watcher, x Uses) {
	if !j.quotas.limited() {
		return
	}
	w.used = j.now.Mono
	j.each(func(s Session, w *watcher) {
		if j.now.Mono-w.used > usesFor {
			j.quotas.claims.Set(s, nil, 0, nil)
		}
	})
	j.quotas.claims.Set(from, x.Uses, x.Capacity, x.Names)
	w.quotas.due, w.quotas.limits = true, w.quotas.limits || x.Asks
	j.add(Notify{from})
}

// quotasFor is what a Distributor is told.
func (j *Job) quotasFor(s Session, w *watcher) *slicerv1.AttachResponse {
	var limits *assignment.Limits
	if w.quotas.limits || !w.quotas.told {
		limits = &j.quotas.limits
	}
	w.quotas = quotasDue{told: true}
	return &slicerv1.AttachResponse{Message: &slicerv1.AttachResponse_Quotas{Quotas: &slicerv1.JobQuotas{
		Job: j.name, Quotas: wire.QuotasToProto(j.quotas.claims.Shares(s, j.quotas.rate), limits),
	}}}
}

// Customer is a customer of a job with a limit, as Distributors say.
type Customer struct {
	overload.CustomerClaim
	Limit assignment.Limit
	// Parts are what the Distributors' tasks ask for and may use.
	Parts []Part
}

// Part is what the tasks of one Distributor ask for, and may use, units of load a second.
type Part struct {
	Distributor        string
	Asked, Used, Share float64
}

// Limits are the customers that have a limit and ask for most, at most n, and those with a
// limit of their own; or only one if it is named. There are none if another assigner is
// preferred.
func (j *Job) Limits(n int, only string) (all []Customer) {
	if !j.quotas.preferred {
		return nil
	}
	named := make(map[uint64]string)
	for name := range j.quotas.limits.All() {
		named[assignment.CustomerID(name)] = name
	}
	add := func(c overload.CustomerClaim) {
		x := Customer{CustomerClaim: c, Limit: j.quotas.limits.Of(c.Name)}
		if c.Name == "" {
			x.Limit = j.quotas.limits.Others()
		}
		for _, s := range j.attached {
			if u, ok := j.quotas.claims.Claim(Session(s), c.Customer); ok {
				share := 0.
				for _, y := range j.quotas.claims.Shares(Session(s), j.quotas.rate) {
					if y.Customer == c.Customer {
						share = y.Share
					}
				}
				x.Parts = append(x.Parts, Part{j.names[Session(s)], u.Asked, u.Used, share})
			}
		}
		all = append(all, x)
	}
	for _, c := range j.quotas.claims.Heaviest(wire.MaxCustomers) {
		if name, ok := named[c.Customer]; ok {
			c.Name = name
			delete(named, c.Customer)
		}
		if only == "" && len(all) < n || only != "" && c.Customer == assignment.CustomerID(only) {
			add(c)
		}
	}
	for name := range j.quotas.limits.All() {
		id := assignment.CustomerID(name)
		if _, idle := named[id]; idle && (only == "" || only == name) {
			add(overload.CustomerClaim{Customer: id, Name: name})
		}
	}
	return all
}

// usesFromProto reads what comes from the network.
func usesFromProto(m *slicerv1.CustomerUses) (u Uses, err error) {
	u.Asks = m.GetAsks()
	u.Uses, u.Names, err = wire.UseFromProto(m.GetUse(), wire.MaxCustomers)
	if c := m.GetCapacity(); c > 0 && c <= assignment.MaxTasks*assignment.MaxWeight {
		u.Capacity = c
	}
	return u, err
}
