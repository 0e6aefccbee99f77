package overload

import "time"

// Claim is what one of several that share a limit asks for, in units a second, and how much
// it can do, in any unit that they have in common. What is below 0, or no number, is 0.
type Claim struct{ Asked, Capacity float64 }

// byCapacity is how much of a limit that is asked for more than once is shared by capacity,
// so that who has not asked for anything can begin.
const byCapacity = .1

// Add adds another claim to what is a sum of claims. Subtract takes it away again.
func (c *Claim) Add(d Claim) {
	c.Asked += atLeast0(d.Asked)
	c.Capacity += atLeast0(d.Capacity)
}

// Subtract is the opposite of Add.
func (c *Claim) Subtract(d Claim) {
	c.Asked = atLeast0(c.Asked - atLeast0(d.Asked))
	c.Capacity = atLeast0(c.Capacity - atLeast0(d.Capacity))
}

// Divide is what one claim gets of a limit, all being the sum of all claims on it: all that
// it asks for, if that is no more than the limit altogether, and its part of what is left;
// else its part of the limit. Its part is by capacity of byCapacity, and by what is asked for of
// the rest: so what is asked for may vary, where a limit is not used up, by the same factor
// everywhere. Together they get the limit. It is 0 for what asks for nothing and can do nothing.
func Divide(limit float64, all, one Claim) float64 {
	limit, asked := atLeast0(limit), atLeast0(one.Asked)
	part := 0.
	if all.Capacity > 0 {
		part = atLeast0(one.Capacity) / all.Capacity
	}
	if all.Asked > 0 {
		part = (1-byCapacity)*min(asked/all.Asked, 1) + byCapacity*part
	}
	if all.Asked <= limit {
		return asked + (limit-all.Asked)*part
	}
	return limit * part
}

func atLeast0(v float64) float64 {
	if v > 0 {
		return v
	}
	return 0
}

const (
	// bucketHolds is how much of its rate a bucket holds, and leastHeld how many requests at
	// the least, so that a customer that asks rarely, and for less than its share, is not
	// refused by chance.
	bucketHolds = time.Second
	leastHeld   = 3
)

// kept is the share of a bucket that requests of a criticality leave to those above it. So
// one is refused only while all below it are.
var kept = [...]float64{Sheddable: .6, SheddablePlus: .4, Critical: .2, CriticalPlus: 0}

// Bucket lets requests in at a rate: a token bucket that may be overdrawn, since what a
// request costs is known only when it is done. The zero value lets nothing in. Times may be
// counted from anywhere, and do not go back.
type Bucket struct {
	rate, holds, tokens float64
	at                  time.Duration
}

// SetRate sets how much it lets in, units a second, and what a request costs about. What it
// holds stays the same share of what it may hold; the first time it is full.
func (b *Bucket) SetRate(now time.Duration, rate, cost float64) {
	b.fill(now)
	holds := max(rate*bucketHolds.Seconds(), leastHeld*cost)
	switch {
	case b.holds == 0:
		b.tokens = holds
	case b.tokens > 0:
		b.tokens *= holds / b.holds
	}
	b.rate, b.holds = rate, holds
}

func (b *Bucket) fill(now time.Duration) {
	b.tokens = min(b.tokens+b.rate*max(now-b.at, 0).Seconds(), b.holds)
	b.at = now
}

// Take reports whether a request that costs so much, about, is let in.
func (b *Bucket) Take(now time.Duration, c Criticality, cost float64) bool {
	b.fill(now)
	if b.tokens <= b.holds*kept[min(c, CriticalPlus)] {
		return false
	}
	b.Spend(cost)
	return true
}

// Spend takes more, or gives back what is below 0: what a request has cost after all.
func (b *Bucket) Spend(cost float64) { b.tokens = min(b.tokens-cost, b.holds) }
