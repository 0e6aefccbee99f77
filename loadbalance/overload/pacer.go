package overload

import (
	"cmp"
	"math"
	"slices"
	"time"
)

const (
	// Tick is how often a Pacer is to be told what has happened: more often costs CPU, as
	// a timer that wakes an idle process each 5 ms takes 1 to 2 % of a core.
	Tick = 50 * time.Millisecond
	// EarlyTick is after what time it is to be told already if the queue has grown
	// (Limits.Grown): where far more is asked for all at once, most of what is critical that is
	// lost is so before the first Tick.
	EarlyTick = 2 * time.Millisecond
	// grown is by how many requests the queue is longer then, at least.
	grown = 12
	// leastWait is how long requests may wait to be started before any is refused.
	leastWait = 10 * time.Millisecond
	// leastStarts is the same in requests, where each takes long.
	leastStarts = 4
	// grace is how much longer a request may wait whose priority, and all above it, ask for
	// next to nothing: 1 + grace times. With 5 a server of which critical requests ask for
	// .86 refuses 2.5 % of them, with 10 1 %, with 20 .25 %, as they come in bursts; with 40
	// the latencies at ten times the load double (TestPacerFlood and TestPacer).
	grace = 20
	// Where more is asked for than can be done there is always something to be read, so a queue
	// is no reserve, and what is read waits for all that was started before. So as the ratio goes
	// from 1 to 1 + mostCrowd each may wait for so much less, in units of leastWait, and those
	// that may wait for long for at most crowding less for each 1 of it. With a mostCrowd of 2
	// critical requests suffer in a flood (TestPacerFlood), with a crowding that leaves 5 units
	// instead of 7 critical_plus ones do at three times the load (TestPacerBatches).
	crowding  = 17.5
	mostCrowd = .8
	// steep is by how much less grace is then, at most, where units are much more than leastWait,
	// as each takes long: those of which nearly as much is asked for as can be done would wait
	// for twice as long at ten times the load as at once it. Where units are leastWait that would
	// cost what is critical in a flood .4 % (TestPacerFlood).
	steep = .5
	// Where nearly as much is asked for of a criticality and those above as can be done, or more, some
	// of it is refused anyway, and those of it that wait for long make the readers and writers of
	// connections wait, too: as that ratio goes from nearly to 1 grace is by steeper less for all of it.
	// That is so as what arrives goes from flood times what can be done to 1 more: where clients hold
	// back the rest, a queue is a reserve, and without it the task is idle now and then. So half as long
	// is waited at three and ten times the load (TestPacerBatches). With a steeper of .8 the slowest
	// hundredth takes another fifth less, and of critical_plus .79 is served at ten times, not .84, on a
	// real server.
	steeper = .65
	nearly  = .85
	flood   = 1.5
	// While about as much is asked for as can be done, what is more than that may be so by chance, and
	// over in a moment: all may wait for slack units longer, and for less of that as the ratio goes
	// from slackFrom to slackTo. So a server at .85 or .9 of what it can do refuses a third of what it
	// would. With a slackTo of 1.2 .996 of what is critical_plus is served at once the load, not .999.
	slack     = 3
	slackFrom = .9
	slackTo   = 1.05
	// longWait is how long it is, in units of leastWait, that some wait for long.
	longWait = 2
	// waits is how often a request waits, each time about as long: to be read, to be
	// started, and for its answer to be written.
	waits = 3
	// patience is that of a client that sets no deadline.
	patience = time.Second

	// mostFull is the largest signal that counts.
	mostFull = 1e6

	// What arrives counts at once as far as that many hardly ever do by chance: what the last
	// one to so many Ticks have seen, less so many standard deviations of Poisson arrivals. With
	// a mean over askedOver alone the queue of a sudden load stays for three times as long.
	burstTicks = 4
	burstSigma = 2.5
	// mostLate is of how much time as many requests as usual may arrive late, all at once: what is older
	// its clients hardly wait for. Did they count as what is suddenly asked for, a server at .8 that
	// stands still for 200 ms in 5 s would refuse three times as many, and of critical ones seven times
	// (TestPacerPauses).
	mostLate = 500 * time.Millisecond

	// While little is asked for those that wait are started soon, so the spacing is less than
	// what is so when all wait. Two Ticks in which some waited all the time tell, if it was
	// suddenly times the mean or more in both; in one the process may have been stopped.
	suddenly = 1.5
	// farMore is how much more than can be done must be asked for, by what few have just taken, that
	// they tell: with 1.5 four that were slow by chance tell at .8x, now and then.
	farMore = 2

	// The means decay by these.
	spacingOver = time.Second
	askedOver   = 500 * time.Millisecond
	sharesOver  = 2 * time.Second
	endsOver    = 2 * time.Second
	clientsOver = 2 * time.Second

	// trialShare is how many trial requests there are to be for each request served.
	trialShare = .1
	// manyMissed is the share of requests that end after their deadline, or that handlers
	// themselves refuse, from which on handlers are taken to be what is full.
	manyMissed = .05
	// leastRoom is what share of that is left to those of which far more is asked for than
	// ends, and leastTakes how long it may be for them at least, in times of how long a handler
	// takes that waits for nothing, up to half of what is left: so much that what handlers wait for
	// is never idle. Were it idle less would end, and of what ends it is worked out how many may be
	// under way, so that still less would be let in.
	leastRoom  = .1
	leastTakes = 1.25
	// leastEnds is what share of those that end is taken to have kept busy what handlers wait
	// for, however many gave up.
	leastEnds = .05
	// A request is begun only if those that are under way leave it this share of its time.
	timely = .8

	// While clients are told to hold back, requests wait to be started next to all the time: of four
	// Ticks some do in .7 of one at least, where each takes 5 ms or less, and 500 us or more (with 20
	// ms, in .3 in one of a hundred). If for idleFor they do in less than mostSpare of each, what is
	// taken to be asked for is not any more, or is the same again: of clients that send three times what
	// is not served, a trial request stands for three times as many. As the level falls no more are held
	// back, and they stand for fewer. What is taken to be asked for falls by the factor idleGrows in a
	// second then, besides.
	mostSpare = .5

	// fullFor is for how long more must be asked for than can be done before clients are told to hold
	// some of it back: those that ask rarely do so for seconds. What is refused until then costs little.
	fullFor = 200 * time.Millisecond
	// levelTicks is for how many Ticks handlers must be too full for what clients are to hold back.
	levelTicks = 10
	// firstPause is that between two of a client as long as none have arrived.
	firstPause = time.Second

	// believedFor is for how long after a level was told requests below it may stand for
	// others.
	believedFor = 2 * time.Second
)

// Pacer decides which requests a task has no room for, so that it goes on serving what it
// can, at nearly its usual latency, however many arrive. What it goes by is the queue of
// requests that have arrived and that no goroutine has begun to work on: how many there are
// times the mean time between two such starts while one waits is how long a request waits
// that arrives now. That is exact, has no lag, and does not count requests that are refused;
// where the CPU is taken by others, or handlers are slow, requests start at longer
// intervals. The reciprocal of the interval is what the task can do, and what is asked for,
// divided by that, says how much of each priority fits.
//
// (The book goes by an executor's load average, the number of threads that can run, and by
// thresholds for each criticality: Site Reliability Engineering, chapter 21, "Utilization
// Signals" and "Criticality". Those refuse in healthy times or let the queue grow. Cohorts
// and levels are DAGOR's: Zhou et al., Overload Control for Scaling WeChat Microservices,
// SoCC 2018.)
//
// The zero value has seen nothing. It is not safe for concurrent use; what it returns is.
type Pacer struct {
	busy, starts float64 // s that the process computed while some waited, and how many; decayed
	slow         starts  // of the last Tick, if some waited all the time in it, and for long
	all          starts  // since some waited all the time
	outdated     int     // that do not count as started yet
	taken        taken
	rates        rates
	shares       [Priorities]float64
	ends         ends
	clients      float64       // that send trial requests, by their rate and pause; decayed
	told         time.Duration // the pause
	levels       [levelTicks]Priority
	ticks        int
	levelAt      time.Duration // when the next of the levels begins
	full         time.Duration // for how long more is asked for than can be done
	spare        time.Duration // for how long there has been room though clients hold back
	highest      believed      // of the levels of the last believedFor, about
	now          time.Duration
}

// starts are how many requests were started while some waited, and for how many seconds the
// process computed meanwhile.
type starts struct{ busy, n float64 }

// Seen is what has happened at a task since the last Tick.
type Seen struct {
	// Over is how long that is, above 0.
	Over time.Duration
	// Busy is for how long of it at least one request waited to be started, and Starts how
	// many were started after they had waited.
	Busy   time.Duration
	Starts int
	// Outdated is how many of these were refused after all, as Limits.Outdated said.
	Outdated int
	// Computed is for how long of Over the process ran, of each of its processors: its CPU time
	// by how many these are. 0 is not known: then what others take of the CPU counts as if each
	// request took longer.
	Computed time.Duration
	// Waiting is how many requests wait to be started now.
	Waiting int
	// Asked is how many requests arrived, by priority, with those for which they stand.
	// Arrived is how many they are without those, by criticality, Sheddable first, and Trials
	// how many trial requests.
	Asked   *[Priorities]uint32
	Arrived [CriticalPlus]int
	Trials  int
	// GaveUp is how many of the missed ended with their deadline: they may have waited all
	// the time, and kept nothing busy.
	GaveUp int
	// Shed is how many requests were refused.
	Shed int
	// Ended is how many handlers ended that did not refuse, Missed how many of them after the
	// deadline of their request, and Refused how many refused.
	Ended, Missed, Refused int
	// Worked is for how long those that ended were under way, together.
	Worked time.Duration
	// UnderWay is how many handlers there are now.
	UnderWay int
	// HeavyKeys reports whether requests are ranked by HeavyKeys.
	HeavyKeys bool
	// Clients is about how many the task may have, which says how many may send trial
	// requests before any have; 0 if it is not known.
	Clients int
	// Signal is the largest of other signals that say how full the task is, 1 being as full
	// as it may be; 0 if there are none.
	Signal float64
}

// Limits say what a task has room for, until the next Tick. It does not change, so any
// number of goroutines may ask it. The zero value refuses nothing but what is late.
type Limits struct {
	// Spacing is the mean time between two starts while a request waits, without what others
	// take of the CPU for a moment.
	Spacing time.Duration
	// Asked is how many requests are asked for, a second.
	Asked float64
	// Level is what clients are told: the highest priority of which requests are refused,
	// and the pause by which trial requests are a tenth of what is served.
	Level Level

	// Each is the mean time between two ends of handlers that did not refuse. It is 0 unless
	// many end too late, or refuse: then it is not the CPU that is full but what handlers
	// wait for.
	Each time.Duration

	flooded float64 // how far more arrives than can be done, 0 to 1
	given   float64 // what share of the CPU the process has while others take some of it for long, else 1
	can     float64 // how many handlers can end in a second; 0 unless Each says that they are full
	least   float64 // how long a request may take whatever its priority, in ns, up to half of its time
	signal  float64
	grown   int                 // from how many that wait on a Tick is to be early
	lately  Priority            // the highest level that was told lately
	fits    Priority            // from which on there is usually room for all; 0 is not known
	share   [Priorities]float32 // of what is asked for, that is at a priority or above
}

// Tick takes what has happened, and returns what follows.
func (p *Pacer) Tick(s Seen) *Limits {
	over := max(s.Over, time.Millisecond)
	s.Signal = min(max(s.Signal, 0), mostFull)
	keep := func(time time.Duration) float64 { return math.Exp(-over.Seconds() / time.Seconds()) }
	k := keep(spacingOver)
	given := p.taken.tick(s, over)
	busy := s.computed()
	p.outdated += max(s.Outdated, 0) // which took no time
	none := min(p.outdated, max(s.Starts, 0))
	s.Starts, p.outdated = s.Starts-none, p.outdated-none
	p.busy, p.starts = p.busy*k+busy.Seconds(), p.starts*k+float64(s.Starts)
	was := p.slow
	if over >= Tick {
		p.slow = starts{}
	}
	if over >= Tick && s.Starts > 0 && s.Busy > over*9/10 && busy.Seconds()*p.starts > suddenly*p.busy*float64(s.Starts) {
		if p.slow = (starts{busy.Seconds(), float64(s.Starts)}); was.n > 0 {
			p.busy, p.starts = p.slow.busy+was.busy, p.slow.n+was.n
		}
	}
	var now, all byCriticality
	k = keep(sharesOver)
	for i := range p.shares {
		n, c := 0., Priority(i).Criticality()-Sheddable
		if s.Asked != nil {
			n = float64(s.Asked[i])
		}
		now[c] += n
		p.shares[i] = p.shares[i]*k + n
		all[c] += p.shares[i]
	}
	usual := all
	for i := range usual {
		usual[i] *= (1 - k) / over.Seconds()
	}
	p.forget(s, over)
	rate := p.rates.tick(s.Arrived, now, usual, over, keep(askedOver))
	p.allBusy(s, busy, over, rate.sum())
	spacing := 0.
	if p.starts > 0 {
		spacing = p.busy / p.starts / given
	}
	l := &Limits{Spacing: time.Duration(spacing * float64(time.Second)), Asked: rate.sum(), given: given, signal: s.Signal}
	if l.grown = grown; spacing > 0 {
		l.grown = max(l.grown, int(leastWait.Seconds()/spacing))
	}
	l.grown += max(s.Waiting, 0)
	p.ends.tick(s, over, keep(endsOver), l)
	p.now += over
	if all.sum() < 1e-9 || l.Asked <= 0 {
		return l
	}
	l.fits = l.roomFrom(&usual)
	above, atEnd := 0., Priority(0)
	if p.full += min(over, longestTick); l.Asked*l.Spacing.Seconds() <= 1 {
		p.full = 0
	}
	tells := p.full >= fullFor || p.told > 0
	for i := Priorities - 1; i >= 0; i-- {
		q := Priority(i)
		if c := q.Criticality() - Sheddable; all[c] > 0 {
			above += rate[c] * p.shares[i] / all[c]
		}
		l.share[i] = float32(above / l.Asked)
		if l.Level.Below == 0 && (l.ratioOf(q) > 1 && tells || l.signal*l.shareOf(q) > 1) {
			l.Level.Below = q
		}
		if atEnd == 0 && l.ratioAtEnd(q) > 1 {
			atEnd = q
		}
	}
	l.flooded = min(max(p.rates.sentShare()*l.ratioOf(0)-flood, 0), 1)
	// By keys it may be few that ask for too much, of which clients do not know: they are told
	// what handlers were too full for all the while, as one trial request that stands for many
	// makes the level jump.
	if p.now >= p.levelAt {
		p.levelAt = p.now + Tick*9/10
		p.ticks++
		p.levels[p.ticks%levelTicks] = atEnd
	}
	p.levels[p.ticks%levelTicks] = min(p.levels[p.ticks%levelTicks], atEnd)
	if s.HeavyKeys {
		// Without what ranks last there is room. If clients held back some of the other requests,
		// by cohort, it would be those for light keys, too, and the task would not know any more how
		// much is asked for of which key, as a trial request stands for others by its own key.
		for i := range p.levels {
			p.levels[i] -= p.levels[i] % Cohorts
		}
	}
	l.Level.Below = max(l.Level.Below, slices.Min(p.levels[:]))
	if k = keep(max(clientsOver, p.told)); p.told == 0 {
		p.clients = max(p.clients, float64(s.Clients))
	}
	p.clients = p.clients*k + float64(max(s.Trials, 0))*p.told.Seconds()/over.Seconds()*(1-k)
	p.told = 0
	if l.Level.Below > 0 {
		p.told = firstPause
		if p.clients >= .5 {
			served := l.Asked / max(l.ratioOf(0), l.signal, l.ratioAtEnd(0))
			p.told = time.Duration(min(p.clients/(trialShare*served), MostPause.Seconds()) * float64(time.Second))
		}
		l.Level.Pause = p.told
		l.Level = l.Level.bounded()
		p.told = l.Level.Pause
	}
	if l.Level.Below >= p.highest.Below || p.now >= p.highest.until {
		p.highest = believed{l.Level, p.now + believedFor}
	}
	l.lately = p.highest.Below
	return l
}

// roomFrom is the priority from which on there is room for all that is usually asked for, at least 1.
func (l *Limits) roomFrom(usual *byCriticality) (p Priority) {
	above, all := 0., usual.sum()
	for i := len(usual) - 1; i >= 0; i-- {
		above += usual[i]
		if max(above*l.Spacing.Seconds(), l.signal*above/all, l.toEnds(above)) > 1 {
			return Priority(i+1) * Cohorts
		}
	}
	return 1
}

// allBusy takes how long the process computed while requests waited all the time, and forgets what
// each took before if by that there is room for all, and by how long each takes now far too much is
// asked for.
func (p *Pacer) allBusy(s Seen, busy, over time.Duration, asked float64) {
	if s.Starts <= 0 || !s.waited(over) {
		p.all = starts{}
		return
	}
	// That a request was started may be known only later, but no more end than were.
	p.all.busy, p.all.n = p.all.busy+busy.Seconds(), p.all.n+float64(max(s.Starts, s.Ended))
	if s.Computed > 0 && p.all.n >= leastStarts && asked*p.busy <= p.starts && asked*p.all.busy > farMore*p.all.n {
		p.busy, p.starts = p.all.busy, p.all.n
	}
}

// forget forgets what was asked for while clients are told to hold back some of it, and there is
// room.
func (p *Pacer) forget(s Seen, over time.Duration) {
	if p.told == 0 || p.ends.full || s.Signal > 1 || s.Busy.Seconds() > mostSpare*over.Seconds() {
		p.spare = 0
		return
	}
	if p.spare += over; p.spare >= idleFor {
		p.rates.forget(math.Pow(idleGrows, -over.Seconds()))
	}
}

// Grown reports whether so many wait that a Tick is due that would not be due yet.
func (l *Limits) Grown(q Queue) bool { return l.grown > 0 && q.Len >= l.grown }

// Reranked forgets how much is asked for at each priority: requests like those before have
// others from now on.
func (p *Pacer) Reranked() { p.shares = [Priorities]float64{} }

// Can is how many handlers can end in a second, 0 unless it is they that are full.
func (l *Limits) Can() float64 { return l.can }

// StandIns calls count with the priorities at which those requests count that a trial request
// of a priority stands for, besides itself, and how many count there: evenly at those of its
// criticality that are refused, as all of the trial request's own would make the level jump.
// One of a priority that was not refused lately stands for none: its client has nothing to hold
// back, whatever it says.
func (l *Limits) StandIns(p Priority, n int, count func(Priority, int)) {
	const parts = 8
	if p >= l.lately {
		return
	}
	first := p - p%Cohorts
	cohorts := min(max(l.Level.Below, first+1)-first, Cohorts)
	for i := range parts {
		count(first+cohorts*Priority(2*i+1)/(2*parts), (n+parts-1-i)/parts)
	}
}

// Verdict is what becomes of a request.
type Verdict uint8

const (
	// Served: there is room for it.
	Served Verdict = iota
	// Late: its client would not wait for the answer.
	Late
	// Shed: what is asked for at its priority and above is more than the task can do.
	Shed
)

// String is served, late or shed.
func (v Verdict) String() string { return [...]string{"served", "late", "shed"}[min(v, Shed)] }

// Queue is what waits to be started: how many requests, and how long the process has computed,
// as Seen.Computed says it, since the first of them came (if that is not known, how long it has
// waited); and how many handlers are under way.
type Queue struct {
	Len      int
	First    time.Duration
	UnderWay int
}

// Admit says what becomes of a request that arrives behind a queue, and whose deadline
// leaves it so much time; 0 is no deadline.
func (l *Limits) Admit(p Priority, q Queue, left time.Duration) Verdict {
	wait := l.wait(q)
	switch {
	case left < 0, wait > MayWait(left):
		return Late
	case q.Len > 0 && wait > l.may(p), l.signal*l.shareOf(p) > 1, l.tooMany(p, q.UnderWay, left):
		return Shed
	}
	return Served
}

// MayWait is how long a request may wait to be started whose deadline leaves it so much time, 0 for
// none, so that there is enough left for all else.
func MayWait(left time.Duration) time.Duration { return cmp.Or(left, patience) / waits }

// Outdated reports whether a request that was served is to be refused after all when a handler is to
// begin with it: so many wait behind it that those wait for long of which less is asked for, and
// one that came now with its priority would not be let in while any waits. So what was let in
// before it was known that far more is asked for than can be done takes next to no time.
func (l *Limits) Outdated(p Priority, q Queue) bool {
	return q.Len > 0 && l.may(p) <= 0 && l.wait(q) > longWait*max(leastWait, leastStarts*l.Spacing)
}

// tooMany reports whether so many handlers are under way that one more would not end in
// time: by Little's law they say how long it takes. Where more is asked for at a priority and
// above than ends, it may find fewer. A request without a deadline has time.
func (l *Limits) tooMany(p Priority, underWay int, left time.Duration) bool {
	return left > 0 && l.takes(underWay) > l.mayTake(p, left)
}

// takes is how long a request takes where so many are under way, 0 if handlers are not full.
func (l *Limits) takes(underWay int) float64 { return float64(underWay) * float64(l.Each) }

// mayTake is how long it may be for a priority.
func (l *Limits) mayTake(p Priority, left time.Duration) float64 {
	all := timely * float64(left)
	return max(all*max(min(2-l.ratioAtEnd(p), 1), leastRoom), min(l.least, all/2))
}

// Hopeless reports whether a request could not be answered in time even if none waited: its
// client asks for nothing that could be done.
func (l *Limits) Hopeless(left time.Duration) bool {
	return left < 0 || left > 0 && left/waits < l.Spacing
}

// Pressure is how near a request of this priority is to being refused, 0 to 1.
func (l *Limits) Pressure(p Priority, q Queue) float64 {
	by := max(min(l.signal*l.shareOf(p), 1), l.takes(q.UnderWay)/l.mayTake(p, patience))
	if may := l.may(p); q.Len > 0 {
		by = max(by, float64(l.wait(q))/float64(max(may, 1)))
	}
	return min(by, 1)
}

func (l *Limits) shareOf(p Priority) float64 { return float64(l.share[min(p, Priorities-1)]) }

// ratioOf is what is asked for at a priority or above, to what can be done.
func (l *Limits) ratioOf(p Priority) float64 {
	return l.Asked * l.shareOf(p) * l.Spacing.Seconds()
}

// ratioAtEnd is what is asked for at a priority or above, to what handlers end.
func (l *Limits) ratioAtEnd(p Priority) float64 { return l.toEnds(l.Asked * l.shareOf(p)) }

// toEnds is what is asked for, a second, to what handlers end, 0 if they are not full.
func (l *Limits) toEnds(asked float64) float64 {
	if l.can == 0 {
		return 0
	}
	return asked / l.can
}

// wait is how long a request waits that comes behind a queue: by its length and, where the
// load has risen since the last Tick, by what is known of its first. That does not count as if
// each took longer than leastWait: when a process that was stopped goes on, few have waited for
// long, and its CPU time may not be known.
func (l *Limits) wait(q Queue) time.Duration {
	if q.Len <= 0 {
		return 0
	}
	first := time.Duration(min(float64(q.First)/cmp.Or(l.given, 1), math.MaxInt64/2))
	return max(time.Duration(min(float64(q.Len)*float64(l.Spacing), math.MaxInt64/2)), min(first, time.Duration(q.Len)*leastWait))
}

// may is how long a request of a priority may wait. It is below 0 if what is asked for
// there and above is more than twice what can be done: then it is served only while none
// waits.
func (l *Limits) may(p Priority) time.Duration {
	r, crowd := l.ratioOf(p), min(max(l.ratioOf(0)-1, 0), mostCrowd)
	unit := float64(max(leastWait, leastStarts*l.Spacing))
	room := 2 - r
	if r < 1 {
		whole := (l.ratioOf(p-p%Cohorts) - nearly) / (1 - nearly)
		less := max(steep*crowd*(1-float64(leastWait)/unit), steeper*min(whole, l.flooded))
		room = min(1+grace*(1-less)*(1-r), 1+grace-crowding*crowd)
	}
	room += slack*min(max((slackTo-l.ratioOf(0))/(slackTo-slackFrom), 0), 1) - crowd
	return time.Duration(unit * max(room, -1))
}
