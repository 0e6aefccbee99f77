package clerk

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicer-project/slicer/loadbalance/overload"
)

// budgets bound what all that use the clerk send again. It is a prometheus.Collector.
type budgets struct {
	epoch time.Time // which times count from

	mu         sync.Mutex
	other, own overload.RetryBudget

	overOther, overOwn atomic.Uint64 // times that there was no more
}

func newBudgets() *budgets {
	return &budgets{epoch: time.Now(), other: overload.NewRetryBudget(overload.OtherTasks), own: overload.NewRetryBudget(overload.Ownership)}
}

// Requested counts a request to the job, which is what the budgets for retries are
// measured by. Do calls it; an adapter calls it once a request, when it first sends it.
func (c *Clerk) Requested() {
	b := c.budgets
	now := time.Since(b.epoch)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.other.Request(now)
	b.own.Request(now)
}

// MayRetry reports whether a request that a task did not answer may be sent to another
// task, and counts it if so: overload.OtherTasks, with the ratio of the job's config
// (assignment.OverloadConfig.RetryBudget), bounds what Do and all adapters on the clerk send
// again together. Otherwise the request fails as it has failed. AwaitOwner
// has a budget of its own.
func (c *Clerk) MayRetry() bool {
	b := c.budgets
	ratio := c.overload().RetryBudget
	b.mu.Lock()
	b.other.SetRatio(ratio)
	may := b.other.Retry(time.Since(b.epoch))
	b.mu.Unlock()
	if !may {
		b.overOther.Add(1)
	}
	return may
}

// shortlyBefore is less than a task that fails takes to be said to be dead, so that what
// piled up at it meanwhile is older.
const shortlyBefore = 100 * time.Millisecond

// MayRetryAfterDeath is MayRetry for a request whose task was said to be dead when it had
// been there for underWay. Of less than 100 ms it counts as one that is sent again for
// reasons of ownership: the client had only just not known the key's next owner. That is
// a tenth of a second's requests at most, however many tasks die at once.
func (c *Clerk) MayRetryAfterDeath(underWay time.Duration) bool {
	return underWay < shortlyBefore && c.mayAskOwner() || c.MayRetry()
}

// mayAskOwner is MayRetry for requests that are sent again for reasons of ownership.
func (c *Clerk) mayAskOwner() bool {
	b := c.budgets
	b.mu.Lock()
	may := b.own.Retry(time.Since(b.epoch))
	b.mu.Unlock()
	if !may {
		b.overOwn.Add(1)
	}
	return may
}

var overBudgetDesc = prometheus.NewDesc("slicer_clerk_retries_over_budget_total",
	"Times that a budget did not allow a retry: to another task, so that the request failed, or to the key's owner, so that it waited longer.", []string{"budget"}, nil)

// Describe is prometheus.Collector's.
func (b *budgets) Describe(ch chan<- *prometheus.Desc) { ch <- overBudgetDesc }

// Collect is prometheus.Collector's.
func (b *budgets) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(overBudgetDesc, prometheus.CounterValue, float64(b.overOther.Load()), "other_tasks")
	ch <- prometheus.MustNewConstMetric(overBudgetDesc, prometheus.CounterValue, float64(b.overOwn.Load()), "ownership")
}
