package cluster

import (
	"time"

	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/loadbalance/overload"
	"github.com/slicer-project/slicer/slicelet/quota"
)

// A task can answer capacity requests a second. In half of them it is one core that is full
// then, in the others what handlers wait for: poolSlots, each of which takes one request.
const (
	cpuTakes  = 20 * time.Millisecond
	capacity  = float64(time.Second / cpuTakes)
	poolSlots = 4
	slotTakes = poolSlots * cpuTakes
	// takeIn is what it costs to take a request in, and with startTakes to begin with it where
	// handlers wait. With dearStartTakes both the core and the slots are full from 1.7 times what these
	// can do.
	takeIn         = cpuTakes * 3 / 100
	startTakes     = cpuTakes / 200
	dearStartTakes = cpuTakes * 6 / 10
	// overdueBy is how late an answer is that was begun in vain.
	overdueBy = 20 * time.Millisecond
	// lookEvery is how often a task that refuses looks for heavy keys, as package slicelet does.
	lookEvery = 200 * time.Millisecond
)

// room is what a task's process has to do with requests: package slicelet's admission, in
// virtual time. One core begins with them in the order in which they were let in.
type room struct {
	s      *sliceletHost
	life   uint64
	starts time.Duration // what it costs to begin with a request: less than cpuTakes if handlers wait for slots
	pacer  overload.Pacer
	limits *overload.Limits
	// accounts are the customers', and quotas what was told of them last.
	accounts *quota.Accounts
	quotas   *wire.Quotas

	ticked, mark     time.Duration
	seen             overload.Seen
	asked            [overload.Priorities]uint32
	queue            []*ask // wait to be started
	computes         *ask   // what the core is at
	until            time.Duration
	computed, before time.Duration // CPU time, and at the last tick
	known            time.Duration // until when computed counts
	waiting          []*ask        // handlers that wait for a slot
	slots            int           // that are taken
	underWay         int

	may      [8]int // for how many requests a client's trial requests may stand
	level    overload.Level
	attempts overload.Attempts
	first    uint64
	again    uint64
	meter    meter
	measured measured // in a crowd
	heavy    *overload.HeavyKeys
	watched  watched // by the checker
}

// meter counts what is asked of a task in a window.
type meter struct {
	began, lookAt      time.Duration
	all, refused, held float64
	keys               [trafficKeys]float64
}

// count counts so many requests for a key.
func (m *meter) count(a *ask, n float64) {
	if a.key != noKey && a.key < trafficKeys {
		m.keys[a.key] += n
	}
}

// rank is the priority by which a request is admitted.
func (r *room) rank(p overload.Priority, a *ask) overload.Priority {
	if a.key == noKey {
		return p
	}
	return r.heavy.Rank(p, r.s.w.traffic.keys[a.key])
}

func newRoom(s *sliceletHost) *room {
	w := s.w
	starts := [...]time.Duration{cpuTakes, cpuTakes, startTakes, dearStartTakes}[w.hash(uint64(s.id), 77)%4]
	r := &room{s: s, life: s.life, starts: starts, limits: new(overload.Limits), accounts: quota.New(s.now()), ticked: w.at, known: w.at}
	r.meter.began = w.at
	return r
}

// pooled reports whether handlers wait for slots.
func (r *room) pooled() bool { return r.starts < cpuTakes }

// compute brings up to date for how long the process has computed. While it is paused it
// does not.
func (r *room) compute() {
	now := r.s.w.at
	if r.computes != nil {
		r.computed += now - min(max(r.known, r.s.wellAt), now)
	}
	r.known = now
}

func (r *room) takeIn() time.Duration {
	if r.pooled() {
		return startTakes
	}
	return takeIn
}

// look is what waits to be started.
func (r *room) look() (q overload.Queue) {
	q.Len, q.UnderWay = len(r.queue), r.underWay
	if q.Len > 0 {
		q.First = r.computed - r.queue[0].computed
	}
	return q
}

// take takes a request that has arrived.
func (r *room) take(a *ask) {
	w, now := r.s.w, r.s.w.at
	r.compute()
	r.s.ratio.comes(now, r.s.slow, a.stray)
	in := r.takeIn()
	if r.until += in; r.computes == nil {
		r.computed += in
	}
	if now >= r.ticked+overload.Tick {
		r.tick()
	}
	left := a.deadline - now
	if left == 0 {
		left = -1
	}
	r.may[a.from.at] = min(r.may[a.from.at]+10, overload.MostStandsFor)
	r.attempts.Sample(now, r.first, r.again)
	if a.sent > 1 {
		r.again++
	} else {
		r.first++
	}
	if !r.charge(a) {
		r.answer(a, overQuota)
		return
	}
	r.meter.all++
	r.meter.count(a, 1)
	if a.standsFor > 1 {
		n := min(a.standsFor-1, r.may[a.from.at])
		r.may[a.from.at] -= n
		r.limits.StandIns(a.p, n, func(p overload.Priority, n int) {
			r.asked[r.rank(p, a)] += uint32(max(n, 0))
			r.meter.held += float64(n)
			r.meter.count(a, float64(n))
			r.measured.refuses(a, n)
		})
	}
	p := r.rank(a.p, a)
	if !r.limits.Hopeless(left) {
		r.seen.Arrived[p.Criticality()-overload.Sheddable]++
		r.asked[p]++
		if a.standsFor > 0 {
			r.seen.Trials++
		}
	}
	q := r.look()
	if r.limits.Grown(q) && now >= r.ticked+overload.EarlyTick {
		r.tick()
	}
	v := r.limits.Admit(p, q, left)
	w.check.admitted(r, a, q, left, v)
	if v != overload.Served {
		if v == overload.Shed {
			r.seen.Shed++
		}
		r.refuse(a)
		return
	}
	if len(r.queue) == 0 {
		r.mark = now
	}
	a.computed = r.computed
	r.queue = append(r.queue, a)
	r.start()
}

// refuse answers that there is no room.
func (r *room) refuse(a *ask) {
	w := r.s.w
	a.cancel()
	r.meter.refused++
	r.measured.refuses(a, 1)
	if m := &r.meter; w.at >= m.lookAt && w.at >= m.began+lookEvery && r.limits.Can() > 0 {
		m.lookAt = w.at + lookEvery
		if h := r.heavyKeys(); h != nil {
			if r.heavy == nil {
				r.pacer.Reranked()
			}
			r.heavy = h
		}
	}
	r.answer(a, refused)
}

func (r *room) heavyKeys() *overload.HeavyKeys {
	m, secs := &r.meter, (r.s.w.at - r.meter.began).Seconds()
	if secs <= 0 || m.refused == 0 && m.held == 0 {
		return nil
	}
	var keys []overload.KeyRate
	for i, n := range m.keys {
		if n > 0 {
			keys = append(keys, overload.KeyRate{Key: r.s.w.traffic.keys[i], Rate: n / secs})
		}
	}
	return r.limits.HeavyKeys((m.all+m.held)/secs, (m.all-m.refused)/secs, keys)
}

// measure ends a window, and returns what is reported of it.
func (r *room) measure() overload.Level {
	if h := r.heavyKeys(); h != nil || r.meter.refused == 0 && r.meter.held == 0 {
		r.heavy = h
	}
	r.meter = meter{began: r.s.w.at, lookAt: r.meter.lookAt}
	r.level = r.told().Coarse(r.level)
	return r.level
}

// told is the level that clients are told now.
func (r *room) told() overload.Level {
	if r.s.w.at >= r.ticked+overload.Tick {
		r.compute()
		r.tick()
	}
	return r.limits.Level
}

func (r *room) tick() {
	now, s := r.s.w.at, &r.seen
	if len(r.queue) > 0 {
		s.Busy += now - r.mark
		r.mark = now
	}
	r.giveUp()
	s.Over, s.Computed, s.Waiting = now-r.ticked, r.computed-r.before, len(r.queue)
	s.Asked, s.UnderWay, s.HeavyKeys, s.Clients = &r.asked, r.underWay, r.heavy != nil, len(r.s.w.clerks)
	s.Signal = r.s.signal
	r.ticked, r.before = now, r.computed
	r.limits = r.pacer.Tick(*s)
	r.seen, r.asked = overload.Seen{}, [overload.Priorities]uint32{}
	r.s.w.check.ticked(r)
}

// start has the core begin with the next that waits, if it is idle.
func (r *room) start() {
	w, now := r.s.w, r.s.w.at
	for r.computes == nil && len(r.queue) > 0 {
		a := r.queue[0]
		r.queue = r.queue[1:]
		r.seen.Busy += now - r.mark
		r.mark = now
		r.seen.Starts++
		if now > a.deadline {
			r.answer(a, late)
			continue
		}
		if q := r.look(); r.limits.Outdated(a.p, q) {
			w.check.outdated(r, a, q)
			r.seen.Outdated++
			r.seen.Shed++
			r.refuse(a)
			continue
		}
		r.underWay++
		a.begun = now
		r.computes, r.until = a, now+time.Duration(float64(r.starts)*r.s.slow)
		w.traffic.enqueue(r.until, uint64(r.s.id), (*computedOf)(r))
	}
}

// computedOf is when the core has done what it is at.
type computedOf room

func (x *computedOf) happen() {
	r := (*room)(x)
	s, w := r.s, r.s.w
	switch {
	case s.room != r || !s.up:
		return
	case s.paused:
		s.do(func() { x.happen() })
		return
	case w.at < r.until: // more has come in meanwhile, which cost something
		w.traffic.enqueue(r.until, uint64(s.id), x)
		return
	}
	r.compute()
	a := r.computes
	r.computes = nil
	if r.pooled() {
		r.waiting = append(r.waiting, a)
		r.fill()
	} else {
		r.end(a)
	}
	r.start()
}

// giveUp ends handlers that have waited for a slot until their deadline.
func (r *room) giveUp() {
	for len(r.waiting) > 0 && r.s.w.at >= r.waiting[0].deadline {
		a := r.waiting[0]
		r.waiting = r.waiting[1:]
		r.end(a)
	}
}

// fill gives free slots to handlers.
func (r *room) fill() {
	r.giveUp()
	for r.slots < poolSlots && len(r.waiting) > 0 {
		a := r.waiting[0]
		r.waiting = r.waiting[1:]
		r.slots++
		w := r.s.w
		w.traffic.enqueue(w.at+time.Duration(float64(slotTakes)*r.s.slow), uint64(r.s.id), (*slotEnds)(a))
	}
}

// slotEnds is when a handler has done with its slot.
type slotEnds ask

func (x *slotEnds) happen() {
	a := (*ask)(x)
	r := a.in
	switch {
	case r.s.room != r || !r.s.up:
		a.lose()
	case r.s.paused:
		r.s.do(func() { x.happen() })
	default:
		r.compute()
		r.slots--
		r.end(a)
		r.fill()
	}
}

// end is that of a handler.
func (r *room) end(a *ask) {
	now := r.s.w.at
	r.underWay--
	if r.measured.served != nil && a.key != noKey {
		r.measured.served[a.key]++
	}
	r.seen.Ended++
	r.seen.Worked += now - a.begun
	how := served
	if now >= a.deadline {
		how = late
		if r.seen.Missed++; now <= a.deadline+overdueBy {
			r.seen.GaveUp++
		}
	}
	r.answer(a, how)
}

// elsewhere reports whether a request that is refused may be sent to another task.
func (r *room) elsewhere(a *ask) bool {
	x := r.s.state.Assignment
	return x != nil && x.NumTasks() > 1 && !r.attempts.Many(r.s.w.at, r.first, r.again) && (a.key == noKey || x.Lookup(r.s.w.traffic.keys[a.key]).Len() > 1)
}

func (r *room) answer(a *ask, how ending) {
	if how == served {
		r.s.w.check.served(r, a)
		if x := r.s.w.traffic.crowd; x != nil {
			x.count(&x.served, a.key, a.of, a.began)
		}
	}
	a.draining = r.s.draining
	a.end, a.level, a.elsewhere = how, r.told(), how == refused && r.elsewhere(a)
	a.back()
}

// die is the end of the process: what is in it is not answered.
func (r *room) die() {
	for _, all := range [][]*ask{r.queue, r.waiting} {
		for _, a := range all {
			a.lose()
		}
	}
	if r.computes != nil {
		r.computes.lose()
	}
}
