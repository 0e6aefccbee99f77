package overload

import (
	"cmp"
	"maps"
	"slices"

	"github.com/slicer-project/slicer/assignment"
)

// Claims are what several tasks, or Distributors, ask for on behalf of the same customers,
// whose limits are to be divided among them. K names one of them. It
// is not safe for concurrent use.
type Claims[K comparable] struct {
	of     map[K]*claimant
	sum    map[uint64]*claimed
	most   int // customers
	nameAt int
}

// claimant is one of several, with what it asks for, in order of customer.
type claimant struct {
	capacity float64
	rows     []row
}

type row struct {
	customer uint64
	claim    Claim
	used     float64
	all      *claimed
}

// claimed is what all ask for on behalf of one customer.
type claimed struct {
	Claim
	used float64
	by   int // how many ask
	name string
}

// NewClaims holds claims for so many customers at most, and no more.
func NewClaims[K comparable](most int) *Claims[K] {
	return &Claims[K]{of: make(map[K]*claimant), sum: make(map[uint64]*claimed), most: most}
}

// Set takes what k asks for, in order of customer, in place of what it has asked for before:
// nothing if there is nothing. Capacity is how much it can do, in any unit that all have in
// common.
func (c *Claims[K]) Set(k K, uses []assignment.CustomerUse, capacity float64, names []string) {
	was := c.of[k]
	if was == nil {
		was = new(claimant)
	}
	is := &claimant{capacity: capacity, rows: make([]row, 0, len(uses))}
	old := was.rows
	for _, u := range uses {
		for len(old) > 0 && old[0].customer < u.Customer {
			c.drop(old[0])
			old = old[1:]
		}
		r := row{customer: u.Customer, claim: Claim{u.Asked, capacity}, used: u.Used}
		if len(old) > 0 && old[0].customer == u.Customer {
			r.all = old[0].all
			r.all.Subtract(old[0].claim)
			r.all.used = atLeast0(r.all.used - old[0].used)
			old = old[1:]
		} else if r.all = c.sum[u.Customer]; r.all != nil {
			r.all.by++
		} else if len(c.sum) < c.most {
			r.all = &claimed{by: 1}
			c.sum[u.Customer] = r.all
		} else {
			continue
		}
		r.all.Add(r.claim)
		r.all.used += u.Used
		is.rows = append(is.rows, r)
	}
	for _, r := range old {
		c.drop(r)
	}
	delete(c.of, k)
	if len(is.rows) > 0 {
		c.of[k] = is
	}
	for _, name := range names {
		if x := c.sum[assignment.CustomerID(name)]; x != nil {
			x.name = name
		}
	}
}

func (c *Claims[K]) drop(r row) {
	r.all.Subtract(r.claim)
	r.all.used = atLeast0(r.all.used - r.used)
	if r.all.by--; r.all.by == 0 {
		delete(c.sum, r.customer)
	}
}

// Empty reports whether nothing is asked for.
func (c *Claims[K]) Empty() bool { return len(c.sum) == 0 }

// Shares are how much k may use of the limit of each customer that it asks for, in order of
// customer. limit says how much all may use; what is not ok is left out.
func (c *Claims[K]) Shares(k K, limit func(customer uint64) (rate float64, ok bool)) (shares []assignment.CustomerShare) {
	of := c.of[k]
	if of == nil {
		return nil
	}
	for _, r := range of.rows {
		if rate, ok := limit(r.customer); ok {
			shares = append(shares, assignment.CustomerShare{Customer: r.customer, Share: Divide(rate, r.all.Claim, r.claim)})
		}
	}
	return shares
}

// Sum is what all ask for together, in order of customer, and the names of at most n of them,
// others each time.
func (c *Claims[K]) Sum(n int) (uses []assignment.CustomerUse, names []string) {
	ids := slices.Sorted(maps.Keys(c.sum))
	for _, id := range ids {
		uses = append(uses, assignment.CustomerUse{Customer: id, Asked: c.sum[id].Asked, Used: c.sum[id].used})
	}
	for range min(n, len(ids)) {
		c.nameAt = (c.nameAt + 1) % len(ids)
		if name := c.sum[ids[c.nameAt]].name; name != "" {
			names = append(names, name)
		}
	}
	return uses, names
}

// CustomerClaim is what all ask for on behalf of one customer.
type CustomerClaim struct {
	Customer uint64
	Name     string // empty if it is not known yet
	Claim
	Used float64
}

// Heaviest are the customers that ask for most, at most n.
func (c *Claims[K]) Heaviest(n int) (all []CustomerClaim) {
	for _, id := range slices.Sorted(maps.Keys(c.sum)) {
		x := c.sum[id]
		all = append(all, CustomerClaim{id, x.name, x.Claim, x.used})
	}
	slices.SortStableFunc(all, func(a, b CustomerClaim) int { return cmp.Compare(b.Asked, a.Asked) })
	return all[:min(len(all), n)]
}

// Claim is what k asks for on behalf of a customer.
func (c *Claims[K]) Claim(k K, customer uint64) (u assignment.CustomerUse, ok bool) {
	if of := c.of[k]; of != nil {
		if i, ok := slices.BinarySearchFunc(of.rows, customer, func(r row, id uint64) int { return cmp.Compare(r.customer, id) }); ok {
			return assignment.CustomerUse{Customer: customer, Asked: of.rows[i].claim.Asked, Used: of.rows[i].used}, true
		}
	}
	return assignment.CustomerUse{}, false
}
