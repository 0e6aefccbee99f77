package cluster

import (
	"time"

	"github.com/slicer-project/slicer/loadbalance/overload"
)

// What has to hold of requests, whatever else goes wrong.
const (
	// Within recovers after a task is asked for less than much of what it can do, nothing
	// critical is refused in its name, by the task or by a clerk that holds it back: what it can do
	// was not changed meanwhile, neither it nor the clerk has stopped, and they have reached each
	// other. Of less than little nothing at all is: at much requests that come together by chance
	// are refused now and then.
	recovers     = 10 * time.Second
	much, little = .8, .5
	// A clerk holds back for longer what a task has told it to ask for rarely, since it serves
	// little for so many clerks: if the pause between trial requests is above often, until it
	// believes no more what it heard last, for 10 s, from a task that was still full a moment ago.
	often, forgets = 4 * time.Second, 10*time.Second + recovers/2
	// goodput is the least share of what a task can do that is answered in time in a flood,
	// if nothing else goes wrong with it.
	goodput = .8
	// steadies is how long a flood has to be counted for that: a trial request that stands for many
	// moves the level, which takes a second to be right again.
	steadies = 2 * time.Second
	// A clerk sends again at most a tenth of its requests of the last ten seconds, or ten.
	againRatio, againFloor = .1, 10
)

// attemptCounts are a clerk's requests, and what it has sent again, by second.
type attemptCounts struct {
	second          int64
	requests, again [10]int
}

func (a *attemptCounts) add(now time.Duration, again bool) {
	for s := int64(now / time.Second); a.second < s; {
		a.second++
		a.requests[a.second%10], a.again[a.second%10] = 0, 0
	}
	if again {
		a.again[a.second%10]++
	} else {
		a.requests[a.second%10]++
	}
}

// sentAgain looks at how much a clerk sends again.
func (c *checker) sentAgain(by *clerkHost) {
	if by.asking.stock {
		return
	}
	requests, again := 0, 0
	for i := range by.asking.counts.requests {
		requests, again = requests+by.asking.counts.requests[i], again+by.asking.counts.again[i]
	}
	c.overload.again++
	if float64(again) > max(againRatio*float64(requests), againFloor) {
		c.w.fail("%s has sent %d requests again of the %d of the last ten seconds", by.name, again, requests)
	}
}

// overloads say how often there was something to check.
type overloads struct {
	floods, steady         int // tasks that were flooded, and of these those with nothing else amiss
	refused, held, expired int // requests in the name of a task: by it, by clerks, and by it as outdated
	quiet                  int // requests to tasks of which little has been asked for long enough
	again                  int // attempts
	goodput                float64
	// Windows of customers that were to get what they may: of all, of those that asked for more than
	// their limit, what share of it they got and got at the least, and of those that asked for less,
	// what share was refused.
	allotted, overLimit, withinLimit int
	ofLimit, leastOfLimit, lost      float64
	// Tasks that drained, of these those that did so in order, and requests that were sent to them
	// meanwhile, and afterwards.
	drains, drained, toDraining, turnedAway int
}

func (o *overloads) add(p overloads) {
	o.floods, o.steady, o.refused, o.held, o.expired = o.floods+p.floods, o.steady+p.steady, o.refused+p.refused, o.held+p.held, o.expired+p.expired
	o.allotted, o.overLimit, o.withinLimit = o.allotted+p.allotted, o.overLimit+p.overLimit, o.withinLimit+p.withinLimit
	o.ofLimit, o.leastOfLimit, o.lost = o.ofLimit+p.ofLimit, min(o.leastOfLimit, p.leastOfLimit), o.lost+p.lost
	o.drains, o.drained, o.toDraining, o.turnedAway = o.drains+p.drains, o.drained+p.drained, o.toDraining+p.toDraining, o.turnedAway+p.turnedAway
	o.quiet, o.again, o.goodput = o.quiet+p.quiet, o.again+p.again, o.goodput+p.goodput
}

// letIn is a request for which a task had room: behind what, and how long it would wait.
type letIn struct {
	c    overload.Criticality
	q    overload.Queue
	left time.Duration
}

// watched is what the checker knows of a room.
type watched struct {
	// letIn are those since the last tick.
	letIn []letIn
	// Of the flood that goes on:
	shares       shares
	inTime, came int // came: requests, be it that clerks hold them back; taken: attempts
	taken        int
	// could is how many it could have answered if that cost nothing, by the second: of one in which
	// more comes than it can do no other has a use. now is of the second that began at second.
	could  float64
	now    int
	second time.Duration
}

// sends looks at whether a clerk sends a request to a task, or holds it back in its name.
func (c *checker) sends(a *ask, ok bool) {
	if !ok {
		c.overload.held++
		if a.customer != nil {
			a.customer.allotted.roomless = c.w.at
		}
		c.counted(a.to, a)
		within := recovers
		if a.from.asking.tasks[a.to.at].pause > often {
			within = forgets
		}
		if c.w.at-c.w.toldLateAt(a.from) < within {
			return
		}
		c.refuses(a, within, "%s holds back a request of priority %d to %s", a.from.name, a.p, a.to.name)
	}
}

// toldLateAt is when a clerk's Distributor and the assigners have last begun or ceased to reach each
// other. What was held up meanwhile arrives in one moment, the oldest first, so that levels that are
// long over may be told for a second.
func (w *world) toldLateAt(c *clerkHost) (at time.Duration) {
	d, ok := w.servers[c.server()]
	for _, a := range w.assigners {
		if ok {
			at = max(at, w.changed(d.host, a.host))
		}
	}
	return at
}

// countTo ends a second that is over.
func (k *watched) countTo(began, end time.Duration) {
	k.second = began
	if lasted := end - began; lasted >= time.Second {
		k.could += min(float64(k.now), lasted.Seconds()*capacity)
		k.now, k.second = 0, end
	}
}

// counted counts a request that was let in or refused in the name of a task in a flood.
func (c *checker) counted(s *sliceletHost, a *ask) {
	if f := c.w.traffic.flood; f != nil && c.w.at >= f.counts && s.room != nil && a.sent <= 1 {
		k := &s.room.watched
		k.countTo(max(f.counts, k.second), c.w.at)
		k.came++
		k.now++
	}
}

// admitted looks at what becomes of a request that a task has taken.
func (c *checker) admitted(r *room, a *ask, q overload.Queue, left time.Duration, v overload.Verdict) {
	is, k := letIn{a.of, q, left}, &r.watched
	c.counted(r.s, a)
	if left >= 0 && a.sent == 1 {
		k.shares.count(a.of, v != overload.Served)
	}
	if f := c.w.traffic.flood; f != nil && c.w.at >= f.counts {
		k.taken++
	}
	switch v {
	case overload.Served:
		k.letIn = append(k.letIn, is)
		if r.s.ratio.below(c.w.at, much, recovers) {
			c.overload.quiet++
		}
		return
	case overload.Shed:
		for _, o := range k.letIn {
			if o.c < is.c && o.q.Len >= q.Len && o.q.First >= q.First && o.q.UnderWay >= q.UnderWay && o.left <= left {
				c.w.fail("%s refuses a %s request behind %d that wait and %d under way, and lets in a %s one behind %d and %d at the same moment",
					r.s.name, is.c, q.Len, q.UnderWay, o.c, o.q.Len, o.q.UnderWay)
			}
		}
	case overload.Late:
		if left < 0 { // its clerk waits no longer
			return
		}
	}
	c.overload.refused++
	c.refuses(a, recovers, "%s refuses a request of priority %d (%s) behind %d that wait for %s and %d under way", r.s.name, a.p, v, q.Len, q.First, q.UnderWay)
}

// outdated looks at a request that is refused after all.
func (c *checker) outdated(r *room, a *ask, q overload.Queue) {
	c.overload.expired++
	c.refuses(a, recovers, "%s refuses a request of priority %d that it had let in, before %d that wait", r.s.name, a.p, q.Len)
}

// ticked ends what is the same moment.
func (c *checker) ticked(r *room) {
	r.watched.letIn = r.watched.letIn[:0]
	r.watched.shares.moment()
}

// refuses looks at whether a request may be refused in the name of a task of which little has
// been asked for so long.
func (c *checker) refuses(a *ask, within time.Duration, format string, args ...any) {
	w, s, bar := c.w, a.to, little
	if a.of >= overload.Critical {
		bar = much
	}
	if !s.runs() || !a.from.runs() || w.at-max(s.wellAt, a.from.wellAt, w.changed(s.host, a.from.host)) < within ||
		w.apart(s.host, a.from.host) || !s.ratio.below(w.at, bar, within) {
		return
	}
	args = append(args, s.ratio.now, w.at-s.ratio.since)
	w.fail(format+", of which %.2f of what it can do is asked for, for %s", args...)
}

// served counts an answer in time.
func (c *checker) served(r *room, a *ask) {
	if f := c.w.traffic.flood; f != nil && c.w.at >= f.counts {
		r.watched.inTime++
	}
}

// flooded is when a flood begins.
func (c *checker) flooded() {
	for _, s := range c.w.slicelets {
		if s.room != nil {
			s.room.watched = watched{letIn: s.room.watched.letIn}
		}
	}
}

// reached reports whether all clerks have run and reached a task all the time since.
func (w *world) reached(s *sliceletHost, since time.Duration) bool {
	for _, c := range w.clerks {
		if !c.runs() || max(c.wellAt, w.changed(c.host, s.host)) > since || w.apart(c.host, s.host) {
			return false
		}
	}
	return true
}

// floodEnds looks at what each task did in a flood: of what is more critical it has refused no
// larger share in the same moments, but for chance, and it has served nearly what it could.
func (c *checker) floodEnds(f *flood) {
	for _, s := range c.w.slicelets {
		if s.room == nil {
			continue
		}
		if why := s.room.watched.shares.unfair(); why != "" {
			c.w.fail("%s has refused since %s %s", s.name, f.began, why)
		}
		if !s.draining || s.leaving.began < f.began {
			c.servedMost(f, s)
		}
	}
}

// drains looks at what a task that begins to drain did in the flood that goes on: from now on others
// are asked for what it was.
func (c *checker) drains(s *sliceletHost) {
	if f := c.w.traffic.flood; f != nil && s.room != nil {
		c.servedMost(f, s)
	}
}

// servedMost looks at whether a task has served nearly what it could in a flood.
func (c *checker) servedMost(f *flood, s *sliceletHost) {
	lasted := c.w.at - f.counts
	if !s.runs() || s.ratio.now < 1 || lasted <= 0 {
		return
	}
	shows := time.Duration(0) // after so long that it is full
	if s.room.pooled() {
		shows = patience // when handlers have waited for too long
	}
	c.overload.floods++
	k := &s.room.watched
	can := (lasted - time.Duration(k.taken)*s.room.takeIn()).Seconds() * capacity
	switch {
	case max(s.wellAt, s.ratio.full, s.became) > f.began, s.slow != 1, s.signal != 0, !c.w.reached(s, f.began):
		return // something else goes wrong
	case lasted < steadies+shows, float64(k.came) < 1.2*can, can < lasted.Seconds()*capacity/2:
		return // too little or too much to say anything: refusing takes time, too
	}
	k.could += min(float64(k.now), (c.w.at-max(f.counts, k.second)).Seconds()*capacity)
	can = min(can, k.could)
	c.overload.steady++
	c.overload.goodput += float64(k.inTime) / can
	if float64(k.inTime) < goodput*(can-shows.Seconds()*capacity) {
		c.w.fail("%s has answered %d requests in time since %s, of %d that came and %.0f that it could have", s.name, k.inTime, f.counts, k.came, can)
	}
}
