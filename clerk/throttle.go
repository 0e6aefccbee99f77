package clerk

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/subscriber"
	"github.com/slicer-project/slicer/loadbalance/overload"
	"github.com/slicer-project/slicer/loadbalance/policy"
)

// throttles is what a clerk knows of the levels of its job's tasks (overload.TaskLevel). It
// is a prometheus.Collector.
type throttles struct {
	job    string
	most   int64        // requests under way at a task; 0 is any number
	epoch  time.Time    // which times count from
	some   atomic.Int64 // tasks that have said a level, or of which one is told
	drains atomic.Int64 // tasks that are told to drain

	mu     sync.Mutex
	byTask map[string]*Throttle
	newest *assignment.Assignment
	told   []subscriber.TaskCondition // of the newest status

	held   [numCauses][overload.CriticalPlus + 1]atomic.Uint64
	trials atomic.Uint64
}

// cause is why a request was not sent.
type cause uint8

const (
	byLevel       cause = iota // the task has said that it refuses such
	byRefusals                 // it refuses many of the customer and does not say which
	byOutstanding              // Config.MaxOutstanding are under way
	numCauses
)

var causeNames = [numCauses]string{byLevel: "level", byRefusals: "refusals", byOutstanding: "outstanding"}

func newThrottles(job string, most int) *throttles {
	return &throttles{job: job, most: int64(most), epoch: time.Now(), byTask: map[string]*Throttle{}}
}

// Throttle holds back what a task would refuse. All that use a clerk share one for each
// task. All methods are safe for concurrent use; as long as the task has said no level they
// take no lock.
type Throttle struct {
	all       *throttles
	job, task string
	below     atomic.Uint32 // that the task has said
	underWay  atomic.Int64  // sent and not ended, if that is limited
	draining  atomic.Bool   // by its answers
	drains    atomic.Bool   // by the control plane

	incarnation uint64 // of the newest assignment; guarded by the lock of all

	fails   atomic.Bool // some have failed lately
	refuses atomic.Bool // some were refused lately, and no level said

	mu       sync.Mutex
	level    overload.TaskLevel
	failures policy.Failures
	accepts  map[payer]*overload.Accepts // while it refuses
	// refusedAt is when a request was last refused that counts there.
	refusedAt time.Duration
	levelAt   time.Duration // when it last said a level, 0 if it never has
	gone      bool
}

// Throttle is that of the task of this name. It is for adapters: they let it Hear what each
// answer says, choose a task that does not hold the request back, if there is one, and then
// ask whether to Send; a request that was sent is Over at some time. Do does so by itself.
func (c *Clerk) Throttle(task string) *Throttle {
	return c.throttles.throttle(task)
}

func (all *throttles) throttle(task string) *Throttle {
	all.mu.Lock()
	defer all.mu.Unlock()
	t := all.byTask[task]
	if t == nil {
		t = &Throttle{all: all, job: all.job, task: task}
		if all.newest != nil {
			if pos, ok := all.newest.Position(task); ok {
				t.incarnation = all.newest.Task(pos).Incarnation
			}
		}
		all.byTask[task] = t
	}
	return t
}

// keep forgets tasks that are not in the assignment, and what those that have started anew
// said before.
func (all *throttles) keep(a *assignment.Assignment) {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.newest = a
	for name, t := range all.byTask {
		pos, ok := a.Position(name)
		if !ok {
			t.forget(true)
			delete(all.byTask, name)
		} else if n := a.Task(pos).Incarnation; n != t.incarnation {
			t.incarnation = n
			t.draining.Store(false)
			t.forget(false)
		}
	}
}

// tell takes what the control plane says of tasks.
func (all *throttles) tell(a *assignment.Assignment, told []subscriber.TaskCondition) {
	if len(told) == 0 && len(all.told) == 0 { // calls are serial
		return
	}
	said := make(map[string]bool, len(told))
	for _, x := range told {
		if pos, ok := a.Position(x.Task); ok && a.Task(pos).Incarnation == x.Incarnation {
			said[x.Task] = true
			all.throttle(x.Task).tell(overload.NewLevel(uint64(x.Level), uint64(x.PauseMS)), x.Draining)
		}
	}
	for _, x := range all.told {
		if _, ok := a.Position(x.Task); ok && !said[x.Task] { // keep forgets the others
			all.throttle(x.Task).tell(overload.Level{}, false)
		}
	}
	all.told = told
}

func (t *Throttle) tell(l overload.Level, drains bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.gone {
		return
	}
	t.level.Tell(time.Since(t.all.epoch), l)
	t.setLocked(t.level.Below())
	t.setDrainsLocked(drains)
}

// setDrainsLocked takes whether the task is told to drain.
func (t *Throttle) setDrainsLocked(drains bool) {
	switch was := t.drains.Swap(drains); {
	case drains && !was:
		t.all.drains.Add(1)
	case was && !drains:
		t.all.drains.Add(-1)
	}
}

// Throttling reports whether any task has said that it has no room for all that is asked of
// it, or refuses requests without saying which: only then a request's cohort matters. It costs
// next to nothing.
func (c *Clerk) Throttling() bool { return c.throttles.some.Load() > 0 }

// mayHold reports whether a request may be held back.
func (c *Clerk) mayHold() bool { return c.throttles.most > 0 || c.Throttling() }

// LimitsOutstanding reports whether Config.MaxOutstanding is set, so that it matters when a
// request is Over.
func (c *Clerk) LimitsOutstanding() bool { return c.throttles.most > 0 }

// Hear takes what an answer of the task says; the zero value is an answer that says nothing.
func (t *Throttle) Hear(l overload.Level) {
	if l.Below == 0 && t.below.Load() == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.gone {
		now := time.Since(t.all.epoch)
		if l.Below > 0 {
			t.levelAt = max(now, 1)
		}
		t.level.Hear(now, l)
		t.setLocked(t.level.Below())
	}
}

// Ended counts a request to the task that has ended: failed if that speaks against the task, as
// no answer, or one that it has broken down, or a refusal that is not Overloaded.Said, does.
// While none has failed it takes no lock.
func (t *Throttle) Ended(failed bool) {
	if !failed && !t.fails.Load() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failures.Add(time.Since(t.all.epoch), failed) == 0 {
		t.failures = policy.Failures{}
		t.fails.Store(false)
	} else {
		t.fails.Store(true)
	}
}

// Failed is what share of the requests to the task have failed lately (policy.Failures).
func (t *Throttle) Failed() float64 {
	if !t.fails.Load() {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failures.Share(time.Since(t.all.epoch))
}

// HearDraining takes whether an answer says that the task drains.
func (t *Throttle) HearDraining(draining bool) {
	if draining != t.draining.Load() {
		t.draining.Store(draining)
	}
}

// Draining reports whether the task drains, by its newest answer or by what the control plane
// has told since: both are known before an assignment says it.
func (t *Throttle) Draining() bool { return t.draining.Load() || t.drains.Load() }

// HearRefusal is Hear for a refusal, which need not be of this task: another may have passed
// it on.
func (t *Throttle) HearRefusal(o Overloaded) {
	if o.Level.Below > 0 && t.Of(o) {
		t.Hear(o.Level)
	}
}

// forget is for what is not known of another incarnation, and with gone for a task that is
// not in the assignment any more.
func (t *Throttle) forget(gone bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gone, t.level, t.levelAt, t.failures = gone, overload.TaskLevel{}, 0, policy.Failures{}
	t.fails.Store(false)
	t.trustLocked()
	t.setLocked(0)
	t.setDrainsLocked(false)
}

// setLocked makes below fit the level.
func (t *Throttle) setLocked(below overload.Priority) {
	switch was := t.below.Swap(uint32(below)); {
	case was == 0 && below > 0:
		t.all.some.Add(1)
	case was > 0 && below == 0:
		t.all.some.Add(-1)
	}
}

// Says reports whether the task has said that it refuses anything, as far as that may be
// believed still.
func (t *Throttle) Says() bool { return t.below.Load() > 0 }

// Holds reports whether a request of a customer, empty for none, would be held back: the task
// would refuse it, as far as is known. Of a task that says no level it is known by what it has
// accepted. Asking changes nothing, so all owners of a key can be asked before one is chosen.
func (t *Throttle) Holds(p overload.Priority, customer string) bool {
	if most := t.all.most; most > 0 && t.underWay.Load() >= most {
		return true
	}
	if p >= overload.Priorities || uint32(p) >= t.below.Load() && !t.refuses.Load() {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Since(t.all.epoch)
	if a := t.accepts[payer{customer, p.Criticality()}]; a != nil && a.Holds(now, p) {
		return true
	}
	return t.level.Holds(now, p)
}

// Send decides whether a request of a customer, empty for none, is sent to the task
// (overload.TaskLevel.Send, overload.Accepts), and counts it. If it is not, the error is an
// Overloaded, with which it fails. A trial request says for how many it stands
// (sliceletgrpc.StandsForHeader, httpkey.HeaderStandsFor). A request that is sent is Over when
// it has ended. Where the last place of several owners is chosen for two requests at the same
// time one of them fails.
func (t *Throttle) Send(p overload.Priority, customer string) (standsFor int, err error) {
	if most := t.all.most; most > 0 && t.underWay.Add(1) > most {
		t.Over()
		return 0, t.hold(byOutstanding, p)
	}
	if standsFor, err = t.send(p, customer); err != nil {
		t.Over()
	}
	return standsFor, err
}

// Over is for the end of a request that Send has let pass, whatever has become of it.
func (t *Throttle) Over() {
	if t.all.most > 0 {
		t.underWay.Add(-1)
	}
}

// send is Send without regard to how many are under way.
func (t *Throttle) send(p overload.Priority, customer string) (standsFor int, err error) {
	if p >= overload.Priorities || uint32(p) >= t.below.Load() && !t.refuses.Load() {
		return 0, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Since(t.all.epoch)
	a := t.accepts[payer{customer, p.Criticality()}]
	if a != nil && a.Holds(now, p) {
		return 0, t.hold(byRefusals, p)
	}
	if uint32(p) < t.below.Load() {
		var ok bool
		standsFor, ok = t.level.Send(now, p)
		switch {
		case !ok:
			return 0, t.hold(byLevel, p)
		case standsFor > 0:
			t.all.trials.Add(1)
		case !t.level.Holds(now, 0): // it is too long ago
			t.setLocked(0)
		}
	}
	if a != nil {
		a.Sent(now)
	}
	return standsFor, nil
}

// hold counts a request that is not sent, and returns the error with which it fails.
func (t *Throttle) hold(why cause, p overload.Priority) error {
	t.all.held[why][p.Criticality()].Add(1)
	return Overloaded{Job: t.job, Task: t.task}
}

// Priority is that of a request with these labels. One that says no criticality has the
// job's default. While there is nothing to decide by it, it is above all priorities.
func (c *Clerk) Priority(l overload.Labels) overload.Priority {
	if !c.mayHold() {
		return overload.Priorities
	}
	if l.Criticality == 0 {
		l.Criticality = c.overload().DefaultCriticality
	}
	return l.Priority()
}

// DrawCohort is the labels with a cohort by chance if they have none, where that decides
// whether the request is held back (Throttling).
func (c *Clerk) DrawCohort(l overload.Labels) overload.Labels {
	if _, ok := l.Cohort(); !ok && c.Throttling() {
		l.SetCohort(rand.IntN(overload.Cohorts))
	}
	return l
}

type standsForOfContext struct{}

// withStandsFor is for a trial request.
func withStandsFor(ctx context.Context, n int) context.Context {
	if n == 0 {
		return ctx
	}
	return context.WithValue(ctx, standsForOfContext{}, n)
}

// StandsForOf is how many requests the context's request stands for if it is a trial request
// of Do, for what sends it to tell the task; otherwise 0.
func StandsForOf(ctx context.Context) int {
	n, _ := ctx.Value(standsForOfContext{}).(int)
	return n
}

var (
	throttledDesc = prometheus.NewDesc("slicer_clerk_throttled_total",
		"Requests that were not sent, by criticality, and why: the task has said that it refuses such (level), or refuses many of this customer and criticality without saying which (refusals), or as many as are allowed are under way there (outstanding).", []string{"criticality", "why"}, nil)
	trialsDesc = prometheus.NewDesc("slicer_clerk_trials_total",
		"Trial requests: sent although the task has said that it refuses such, to find out whether it still does.", nil, nil)
	fullTasksDesc = prometheus.NewDesc("slicer_clerk_tasks_without_room",
		"Tasks that have said that they have no room for all that is asked of them, or refuse requests without saying which.", nil, nil)
)

// Describe is prometheus.Collector's.
func (all *throttles) Describe(ch chan<- *prometheus.Desc) {
	ch <- throttledDesc
	ch <- trialsDesc
	ch <- fullTasksDesc
}

// Collect is prometheus.Collector's.
func (all *throttles) Collect(ch chan<- prometheus.Metric) {
	for c := overload.Sheddable; c <= overload.CriticalPlus; c++ {
		for why, name := range causeNames {
			ch <- prometheus.MustNewConstMetric(throttledDesc, prometheus.CounterValue, float64(all.held[why][c].Load()), c.String(), name)
		}
	}
	ch <- prometheus.MustNewConstMetric(trialsDesc, prometheus.CounterValue, float64(all.trials.Load()))
	ch <- prometheus.MustNewConstMetric(fullTasksDesc, prometheus.GaugeValue, float64(all.some.Load()))
}
