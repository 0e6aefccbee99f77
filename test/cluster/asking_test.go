package cluster

import (
	"slices"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/loadbalance/overload"
	"github.com/slicer-project/slicer/loadbalance/policy"
)

const (
	// patience is how long users wait for an answer.
	patience = time.Second
	// mostAttempts is how often a request is sent that tasks refuse, mostTasks to how many
	// tasks one that none answers.
	mostAttempts, mostTasks = 3, 4
)

// ending is what becomes of a request that was sent.
type ending uint8

const (
	served    ending = iota
	refused          // there was no room for it
	late             // it was begun, and not done in time
	unreached        // there is no process
	gone             // nothing has come back
	overQuota        // its customer has used up its limit
)

// ask is a request of a clerk's user: on its way, at a task, and back.
type ask struct {
	from            *clerkHost
	life            uint64 // its process
	key             int
	customer        *customer // nil if nothing limits it
	of              overload.Criticality
	p               overload.Priority
	began, deadline time.Duration

	// Of the attempt.
	to        *sliceletHost
	sent      int // so often, with this
	standsFor int
	tried     []*sliceletHost
	stray     bool  // to does not own its key
	in        *room // of to that it has reached
	charge    charge
	computed  time.Duration
	begun     time.Duration // by a handler
	end       ending
	elsewhere bool
	draining  bool                  // its task, as the answer says
	routed    assignment.Generation // by which it was sent
	level     overload.Level
}

// toTask and toClerk are its arrivals, lostAsk is when its clerk waits no longer.
type (
	toTask  ask
	toClerk ask
	lostAsk ask
)

// back has it travel to its clerk.
func (a *ask) back() {
	w := a.from.w
	if w.cutOff(a.to.host, a.from.host) {
		a.lose()
		return
	}
	w.traffic.enqueue(w.at+delay(w.traffic.rng.Uint64()), uint64(a.from.id), (*toClerk)(a))
}

// lose has its clerk hear nothing of it any more.
func (a *ask) lose() {
	a.end = gone
	a.from.w.traffic.enqueue(a.deadline, uint64(a.from.id), (*lostAsk)(a))
}

func (x *toTask) happen() {
	a := (*ask)(x)
	w, s := a.from.w, a.to
	switch {
	case w.cutOff(a.from.host, s.host):
		a.lose()
	case !s.up || s.leaving.stopped:
		if s.leaving.stopped {
			w.check.turnedAway(a)
		}
		a.end, a.level, a.draining = unreached, overload.Level{}, false
		a.back()
	case s.paused:
		// Its clerk waits no longer, and the task takes it all the same.
		b := *a
		s.do(func() { s.take(&b) })
		a.lose()
		b.life--
	default:
		s.take(a)
	}
}

func (s *sliceletHost) take(a *ask) {
	a.in = s.room
	s.room.take(a)
}

func (x *toClerk) happen() {
	a := (*ask)(x)
	switch c := a.from; {
	case c.life != a.life || !c.up:
	case c.paused:
		c.do(func() { c.answered(a) })
	default:
		c.answered(a)
	}
}

func (x *lostAsk) happen() { (*toClerk)(x).happen() }

// throttle is what a clerk knows of a task (clerk.Throttle).
type throttle struct {
	incarnation uint64
	level       overload.TaskLevel
	pause       time.Duration // of the newest that it has heard or been told
	failures    policy.Failures
	underWay    int64
	// It drains, by its answers and by what the control plane tells.
	draining, drains bool
	// accepts are of customers whose limit it says is used up, as it did last at refusedAt.
	accepts   map[payer]*overload.Accepts
	refusedAt time.Duration
}

// asking is what a clerk's process has to do with requests: that of package clerk, in virtual
// time.
type asking struct {
	// stock: it knows no levels and no budget, and sends again whatever failed, as many
	// clients do.
	stock  bool
	tasks  []throttle // by slicelet
	routed *assignment.Assignment
	told   bool // a condition
	budget overload.RetryBudget
	counts attemptCounts
}

func (c *clerkHost) newAsking() *asking {
	return &asking{
		stock: c.w.hash(uint64(c.id), 78)%4 == 0, tasks: make([]throttle, len(c.w.slicelets)),
		budget: overload.NewRetryBudget(overload.OtherTasks),
	}
}

// hear takes what the control plane has said to the clerk.
func (c *clerkHost) hear() {
	k, x, now := c.asking, c.state.Assignment, c.w.at
	if x == nil {
		return
	}
	if x != k.routed {
		k.routed = x
		for i, s := range c.w.slicelets {
			if pos, ok := x.Position(s.name); ok && x.Task(pos).Incarnation != k.tasks[i].incarnation {
				k.tasks[i].incarnation = x.Task(pos).Incarnation
				k.tasks[i].level, k.tasks[i].failures = overload.TaskLevel{}, policy.Failures{}
				k.tasks[i].draining, k.tasks[i].drains = false, false
			}
		}
		c.w.traffic.rerouted()
	}
	conditions := c.state.Status.Conditions
	if k.stock || len(conditions) == 0 && !k.told {
		return
	}
	k.told = len(conditions) > 0
	said, drain := make(map[string]overload.Level, len(conditions)), make(map[string]bool)
	for _, t := range conditions {
		if pos, ok := x.Position(t.Task); ok && x.Task(pos).Incarnation == t.Incarnation {
			said[t.Task], drain[t.Task] = overload.NewLevel(uint64(t.Level), uint64(t.PauseMS)), t.Draining
		}
	}
	for i, s := range c.w.slicelets {
		k.tasks[i].level.Tell(now, said[s.name])
		k.tasks[i].drains = drain[s.name]
		k.tasks[i].pause = max(k.tasks[i].pause, said[s.name].Pause)
	}
}

// ask sends a user's request.
func (c *clerkHost) ask(key int, of *customer, l overload.Labels) {
	if c.asking.routed == nil {
		return
	}
	now := c.w.at
	a := &ask{from: c, life: c.life, key: key, customer: of, of: l.Criticality, p: l.Priority(), began: now, deadline: now + patience}
	c.asking.budget.Request(now)
	c.asking.counts.add(now, false)
	c.w.traffic.asked++
	if s := c.choose(a, false); s != nil {
		c.send(a, s)
	}
}

// candidates are those that a request may go to.
type candidates struct {
	c    *clerkHost
	a    *ask
	list []*sliceletHost
}

func (x *candidates) Len() int { return len(x.list) }
func (x *candidates) At(i int) policy.Candidate {
	s, now := x.list[i], x.c.w.at
	t := &x.c.asking.tasks[s.at]
	return policy.Candidate{
		Weight: 1, Outstanding: t.underWay, Failed: t.failures.Share(now), Draining: x.c.told(s),
		Full: !x.c.asking.stock && (t.level.Holds(now, x.a.p) || t.overLimit(now, x.a)),
	}
}

// choose is the owner of its key that a request is sent to, of those that were not tried; if
// any is true, and there is none, another task. It is nil if there is none.
func (c *clerkHost) choose(a *ask, any bool) *sliceletHost {
	x, rng := c.asking.routed, c.w.traffic.rng
	a.stray = false
	if a.key != noKey && len(a.tried) == 0 {
		if owners := x.Lookup(c.w.traffic.keys[a.key]); owners.Len() == 1 {
			return c.w.named[owners.At(0).Name]
		}
	}
	list := candidates{c, a, c.mayGo(a)}
	if len(list.list) == 0 && any {
		for i, first := 0, rng.IntN(x.NumTasks()); i < x.NumTasks(); i++ {
			t := x.Task((first + i) % x.NumTasks())
			if s := c.w.named[t.Name]; t.State == assignment.TaskRunning && !a.hasTried(s) {
				a.stray = true
				return s
			}
		}
	}
	if i := policy.Choose(policy.WeightedLeastLoaded, &list, rng.Uint64()); i >= 0 {
		return list.list[i]
	}
	return nil
}

func (a *ask) hasTried(s *sliceletHost) bool { return slices.Contains(a.tried, s) }

// send sends a request to a task, unless that has said that it refuses such.
func (c *clerkHost) send(a *ask, s *sliceletHost) {
	w, t := c.w, &c.asking.tasks[s.at]
	a.to, a.standsFor = s, 0
	if !c.asking.stock {
		if t.overLimit(w.at, a) {
			return
		}
		var ok bool
		a.standsFor, ok = t.level.Send(w.at, a.p)
		w.check.sends(a, ok)
		if !ok {
			return
		}
		if x := t.accepts[payer{a.customer, a.of}]; x != nil {
			x.Sent(w.at)
		}
	}
	w.check.spares(c, a, s)
	a.routed = c.asking.routed.Generation()
	a.sent++
	if a.sent > 1 {
		c.asking.counts.add(w.at, true)
		w.check.sentAgain(c)
	}
	t.underWay++
	w.traffic.attempts++
	w.traffic.enqueue(w.at+delay(w.traffic.rng.Uint64()), uint64(s.id), (*toTask)(a))
}

// answered takes what has become of an attempt.
func (c *clerkHost) answered(a *ask) {
	k, now := c.asking, c.w.at
	t := &k.tasks[a.to.at]
	t.underWay--
	t.failures.Add(now, a.end == unreached || a.end == late || a.end == gone || a.end == refused && a.p >= a.level.Below)
	if k.stock {
		if a.end != served && a.sent < mostAttempts && now < a.began+mostAttempts*patience {
			a.deadline = now + patience
			c.resend(a, false)
		}
		return
	}
	if a.end != unreached && a.end != gone {
		t.accept(now, a)
		t.level.Hear(now, a.level)
		t.pause, t.draining = a.level.Pause, a.draining
	}
	if now >= a.deadline {
		return
	}
	switch a.end {
	case refused:
		if a.tried = append(a.tried, a.to); a.elsewhere && a.sent < mostAttempts {
			c.resend(a, false)
		}
	case unreached:
		if a.tried = append(a.tried, a.to); len(a.tried) < mostTasks {
			c.resend(a, true)
		}
	}
}

// resend sends a request again, if there is where to and the budget allows it.
func (c *clerkHost) resend(a *ask, any bool) {
	if s := c.choose(a, any); s != nil && (c.asking.stock || c.asking.budget.Retry(c.w.at)) {
		c.send(a, s)
	}
}
