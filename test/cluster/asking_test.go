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
	lost             // nothing has come back
)

// ask is a request of a clerk's user: on its way, at a task, and back.
type ask struct {
	from            *clerkHost
	life            uint64 // its process
	key             int
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
	computed  time.Duration
	end       ending
	elsewhere bool
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
	a.end = lost
	a.from.w.traffic.enqueue(a.deadline, uint64(a.from.id), (*lostAsk)(a))
}

func (x *toTask) happen() {
	a := (*ask)(x)
	w, s := a.from.w, a.to
	switch {
	case w.cutOff(a.from.host, s.host):
		a.lose()
	case !s.up:
		a.end, a.level = unreached, overload.Level{}
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
			}
		}
		c.w.traffic.rerouted()
	}
	conditions := c.state.Status.Conditions
	if k.stock || len(conditions) == 0 && !k.told {
		return
	}
	k.told = len(conditions) > 0
	said := make(map[string]overload.Level, len(conditions))
	for _, t := range conditions {
		if pos, ok := x.Position(t.Task); ok && x.Task(pos).Incarnation == t.Incarnation {
			said[t.Task] = overload.NewLevel(uint64(t.Level), uint64(t.PauseMS))
		}
	}
	for i, s := range c.w.slicelets {
		k.tasks[i].level.Tell(now, said[s.name])
		k.tasks[i].pause = max(k.tasks[i].pause, said[s.name].Pause)
	}
}

// ask sends a user's request.
func (c *clerkHost) ask(key int, l overload.Labels) {
	if c.asking.routed == nil {
		return
	}
	now := c.w.at
	a := &ask{from: c, life: c.life, key: key, of: l.Criticality, p: l.Priority(), began: now, deadline: now + patience}
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
	return policy.Candidate{Weight: 1, Outstanding: t.underWay, Failed: t.failures.Share(now), Full: !x.c.asking.stock && t.level.Holds(now, x.a.p)}
}

// choose is the owner of its key that a request is sent to, of those that were not tried; if
// any is true, and there is none, another task. It is nil if there is none.
func (c *clerkHost) choose(a *ask, any bool) *sliceletHost {
	x, rng := c.asking.routed, c.w.traffic.rng
	a.stray = false
	list := candidates{c: c, a: a}
	owners := x.Lookup(c.w.traffic.keys[a.key])
	if owners.Len() == 1 && len(a.tried) == 0 {
		return c.w.named[owners.At(0).Name]
	}
	for t := range owners.All() {
		if s := c.w.named[t.Name]; !a.hasTried(s) {
			list.list = append(list.list, s)
		}
	}
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
		var ok bool
		a.standsFor, ok = t.level.Send(w.at, a.p)
		w.check.sends(a, ok)
		if !ok {
			return
		}
	}
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
	t.failures.Add(now, a.end == unreached || a.end == late || a.end == lost || a.end == refused && a.p >= a.level.Below)
	if k.stock {
		if a.end != served && a.sent < mostAttempts && now < a.began+mostAttempts*patience {
			a.deadline = now + patience
			c.resend(a, false)
		}
		return
	}
	if a.end != unreached && a.end != lost {
		t.level.Hear(now, a.level)
		t.pause = a.level.Pause
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
