package lease_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/lease/internal/table"
)

// wrong are rules that a simulated reader or assigner leaves out, each of which
// the simulation must notice.
type wrong struct {
	blindAcquire   bool // an acquire is carried out whatever the record says
	noReadersCheck bool // the guard is rewritten while it has readers
	lateDeadline   bool // the reader's deadline lies after the store's
	releaseFirst   bool // the release is sent, and belief ends later
	oldAnswers     bool // answers to an old session count for the new one
	letGo          bool // the guard is released before the bridge is held
	joinsAtOnce    bool // a job is joined again while what was left of it may yet be released
	forgetsLeft    bool // what an acquire may yet bring of a job that was left is forgotten
}

const (
	simJob    = "job"
	simKeys   = 12
	simTTL    = 100 * time.Millisecond
	simMargin = 10 * time.Millisecond
)

// violation is what the simulation found.
type violation struct{ what, detail string }

func (v *violation) Error() string { return v.what + ": " + v.detail }

// sim is a store, readers and assigners, and messages between them that are late or lost.
type sim struct {
	rng     *rand.Rand
	wrong   wrong
	now     time.Duration
	queue   []message
	store   *table.Table
	owners  map[assignment.Generation][simKeys]int
	newest  assignment.Generation
	readers []*reader
	writers []*writer
	calm    bool
	changes int
	err     error
}

type message struct {
	at time.Duration
	do func()
}

type reader struct {
	n        int
	up       bool
	paused   time.Duration // does nothing before
	core     *lease.Core
	leaving  bool
	left     []*lease.Core // of the job as it was left before, in this session
	waits    bool          // the core has no session until what was left is done with
	session  uint64
	life     int // counts crashes
	deadline time.Duration
	holding  lease.Holding
	lagging  lease.Holding // with releaseFirst: what it still believes in
	lagUntil time.Duration
	whole    bool // has met no fault since it last believed under a guard
	opening  bool
	backlog  []event       // of a stopped process
	granted  time.Duration // the deadline of a session that the core is yet to hear of
	current  uint64        // the session that the core has heard of
}

type event struct {
	core *lease.Core // nil: whichever there are when it is taken in
	lease.Event
}

type writer struct {
	session uint64
	token   lease.Token
	busy    bool
	waiting time.Duration // since when the step at hand waits
	life    int
}

func (s *sim) after(d time.Duration, do func()) { s.queue = append(s.queue, message{s.now + d, do}) }

// send carries out a request after a while, and brings its answer after another
// one; either may be lost.
func (s *sim) send(request func(), answer, lost func()) {
	out, back := s.delay(), s.delay()
	if s.drops() {
		s.after(40*time.Millisecond, lost)
		return
	}
	dropped := s.drops()
	s.after(out, func() {
		request()
		if !dropped {
			s.after(back, answer)
		}
	})
	if dropped {
		s.after(40*time.Millisecond, lost)
	}
}

func (s *sim) drops() bool { return !s.calm && s.rng.IntN(25) == 0 }

func (s *sim) delay() time.Duration {
	if s.wrong.oldAnswers && !s.calm && s.rng.IntN(4) == 0 { // only then does an answer outlive its session
		return time.Duration(s.rng.Int64N(int64(5 * simTTL)))
	}
	if !s.calm && s.rng.IntN(12) == 0 {
		return time.Duration(s.rng.Int64N(int64(150 * time.Millisecond)))
	}
	return time.Duration(s.rng.Int64N(int64(3 * time.Millisecond)))
}

// believes reports whether the reader believes in a key now: as a process would
// that reads the clock at this instant.
func (r *reader) believes(s *sim, key int) bool {
	h := r.holding
	if s.now < r.lagUntil {
		h = r.lagging
	}
	if !r.up || s.now >= r.deadline {
		return false
	}
	if h.Guard != 0 {
		return s.owners[h.Guard][key] == r.n
	}
	return h.From != 0 && s.owners[h.From][key] == r.n && s.owners[h.To][key] == r.n
}

func (s *sim) check() {
	for key := range simKeys {
		owner := -1
		for _, r := range s.readers {
			if !r.believes(s, key) {
				continue
			}
			if owner >= 0 && s.err == nil {
				s.err = &violation{"I1", fmt.Sprintf("at %s key %d is believed in by %d (%+v) and %d (%+v)", s.now, key, owner, s.readers[owner].holding, r.n, r.holding)}
			}
			owner = r.n
		}
	}
	for _, r := range s.readers {
		r.whole = r.whole && s.now < r.deadline
		if r.whole && r.up && (r.holding == lease.Holding{}) && s.err == nil {
			s.err = &violation{"I2", fmt.Sprintf("at %s reader %d lost its keys without a fault", s.now, r.n)}
		}
		if r.holding.Guard != 0 && s.now < r.deadline {
			r.whole = true
		}
	}
}

// step gives a reader an event.
func (s *sim) step(r *reader, e lease.Event) { s.tell(r, event{nil, e}) }

func (s *sim) tell(r *reader, e event) {
	if !r.up {
		return
	}
	if s.now < r.paused || len(r.backlog) > 0 {
		r.backlog = append(r.backlog, e)
		if len(r.backlog) == 1 {
			s.resume(r, r.life)
		}
		return
	}
	s.handle(r, e)
}

// resume gives a stopped reader, when it goes on, what has come meanwhile, in order.
func (s *sim) resume(r *reader, life int) {
	s.after(max(r.paused-s.now, 0), func() {
		if r.life != life {
			return
		}
		for len(r.backlog) > 0 && s.now >= r.paused {
			e := r.backlog[0]
			r.backlog = r.backlog[1:]
			s.handle(r, e)
		}
		if len(r.backlog) > 0 {
			s.resume(r, life)
		}
	})
}

func (s *sim) handle(r *reader, e event) {
	if e.Kind == lease.Opened && e.Session != r.current {
		r.current, r.deadline, r.left, r.waits = e.Session, r.granted, nil, false
	}
	cores := append([]*lease.Core{r.core}, r.left...)
	switch {
	case s.wrong.oldAnswers:
		cores = cores[:1]
	case e.core != nil:
		cores = slices.DeleteFunc(cores, func(c *lease.Core) bool { return c != e.core })
	}
	for _, e.core = range cores {
		s.feed(r, e)
	}
	s.rejoin(r)
}

// rejoin gives the job that was joined again the session, as soon as what was left
// before is done with.
func (s *sim) rejoin(r *reader) {
	r.left = slices.DeleteFunc(r.left, (*lease.Core).Left)
	if r.waits && r.current == r.session && (len(r.left) == 0 || s.wrong.joinsAtOnce) {
		r.waits = false
		s.feed(r, event{r.core, lease.Event{Kind: lease.Opened, Session: r.current}})
	}
}

// feed has a core take an event in, and carries out what it answers.
func (s *sim) feed(r *reader, e event) {
	if s.wrong.oldAnswers && r.session != 0 && (e.Kind == lease.Acquired) {
		e.Session = r.session
	}
	for _, a := range e.core.Step(s.now, s.now < r.deadline, e.Event) {
		s.act(r, e.core, a)
	}
	if at, ok := e.core.Wake(); ok {
		core, life := e.core, r.life
		s.after(max(at-s.now, 0)+time.Microsecond, func() {
			if again, ok := core.Wake(); ok && again == at && r.life == life {
				s.tell(r, event{core, lease.Event{Kind: lease.Tick}})
			}
		})
	}
	if e.core == r.core && (r.leaving || e.Kind == lease.Leave) {
		r.leaving, r.whole = true, false
		s.depart(r, e.Event)
	}
}

func (s *sim) act(r *reader, core *lease.Core, a lease.Action) {
	life, retry := r.life, time.Duration(1+s.rng.IntN(20))*time.Millisecond
	answer := func(e lease.Event) {
		if r.life == life || s.wrong.oldAnswers {
			s.tell(r, event{core, e})
		}
	}
	switch a.Kind {
	case lease.Believe:
		if s.wrong.releaseFirst && (r.holding != lease.Holding{}) {
			r.lagging, r.lagUntil = r.holding, s.now+20*time.Millisecond
		}
		r.holding = a.Holding
	case lease.Fetch:
		s.after(s.delay(), func() {
			if s.drops() {
				r.whole = false
				answer(lease.Event{Kind: lease.NotInHand, Generation: a.Generation, Retry: retry})
				return
			}
			answer(lease.Event{Kind: lease.InHand, Generation: a.Generation})
		})
	default:
		s.ask(r.session, a, retry, answer)
	}
}

// ask brings an acquire or a release to the store.
func (s *sim) ask(id uint64, a lease.Action, retry time.Duration, to func(lease.Event)) {
	answer := func(e lease.Event) {
		e.Session, e.Claim = id, a.Claim
		to(e)
	}
	switch a.Kind {
	case lease.AcquireClaim:
		var e lease.Event
		s.send(func() {
			s.expire()
			if s.wrong.blindAcquire {
				e = lease.Event{Kind: lease.Acquired}
				return
			}
			seen, ok, err := s.store.Acquire(s.now, id, simJob, a.Claim)
			switch {
			case err != nil:
				e = lease.Event{Kind: lease.Gone}
			case ok:
				e = lease.Event{Kind: lease.Acquired}
			default:
				e = lease.Event{Kind: lease.Refused, Seen: seen}
			}
		}, func() { answer(e) }, func() { answer(lease.Event{Kind: lease.Unknown, Retry: retry}) })
	case lease.ReleaseClaim:
		var e lease.Event
		s.send(func() {
			s.expire()
			if _, err := s.store.Release(s.now, id, simJob, a.Claim); err != nil {
				e = lease.Event{Kind: lease.Gone}
				return
			}
			e = lease.Event{Kind: lease.Released}
		}, func() { answer(e) }, func() { answer(lease.Event{Kind: lease.Unknown, Release: true, Retry: retry}) })
	}
}

func (s *sim) expire() { s.store.Expire(s.now) }

// keep opens, renews and gives up a reader's session, and looks at the records for it.
func (s *sim) keep(r *reader) {
	s.after(20*time.Millisecond, func() { s.keep(r) })
	if !r.up || s.now < r.paused || r.opening {
		return
	}
	life, sent := r.life, s.now
	margin := simMargin
	if s.wrong.lateDeadline {
		margin = -4 * simTTL
	}
	if r.session == 0 {
		r.opening = true
		var id uint64
		var granted time.Duration
		s.send(func() {
			s.expire()
			id, granted, _ = s.store.Open(s.now, simTTL, map[string]time.Duration{simJob: time.Hour})
		}, func() {
			if r.life == life {
				r.opening, r.session = false, id
				r.granted = sent + granted - margin
				s.step(r, lease.Event{Kind: lease.Opened, Session: id})
				s.step(r, lease.Event{Kind: lease.Looked, Session: id, Seen: s.store.Seen(simJob)})
			}
		}, func() {
			if r.life == life {
				r.opening = false
			}
		})
		return
	}
	id := r.session
	var granted time.Duration
	var err error
	s.send(func() { s.expire(); granted, err = s.store.KeepAlive(s.now, id) }, func() {
		if r.life != life || r.session != id {
			return
		}
		if err != nil {
			r.session, r.deadline, r.whole = 0, 0, false
			s.step(r, lease.Event{Kind: lease.Gone, Session: id})
			return
		}
		if r.current != id {
			r.granted = max(r.granted, sent+granted-margin)
			return
		}
		if r.deadline <= s.now { // it is over, whatever the store says
			r.session, r.deadline, r.whole = 0, 0, false
			s.step(r, lease.Event{Kind: lease.Gone, Session: id})
			return
		}
		r.deadline = max(r.deadline, sent+granted-margin)
	}, func() {})
}

// watch brings what has changed, in order: what is not yet seen waits behind what is.
func (s *sim) watch(r *reader) {
	s.after(2*time.Millisecond+s.delay(), func() { s.watch(r) })
	if r.up && r.session != 0 {
		s.step(r, lease.Event{Kind: lease.Looked, Session: r.session, Seen: s.store.Seen(simJob)})
	}
}

// write has an assigner do what is called for.
func (s *sim) write(w *writer) {
	s.after(time.Millisecond+s.delay()/4, func() { s.write(w) })
	s.expire()
	if w.busy {
		return
	}
	if w.session == 0 {
		w.session = s.store.OpenWriter(s.now, simTTL)
		w.token = 0
	}
	if _, err := s.store.KeepAlive(s.now, w.session); err != nil {
		w.session = 0
		return
	}
	if w.token == 0 {
		token, err := s.store.Lead(s.now, w.session, simJob)
		if err != nil {
			return
		}
		w.token = token
	}
	read := s.store.State(simJob)
	wanted := s.newest
	if !s.calm && (s.newest <= read.Guard.Generation || s.newest == 0) && s.rng.IntN(4) == 0 {
		s.newest++
		s.owners[s.newest] = s.assign()
		wanted = s.newest
	}
	step := lease.Next(read, wanted)
	if step.Kind == lease.Idle {
		return
	}
	if step.Wait && w.waiting == 0 {
		w.waiting = s.now
	}
	if step.Wait && s.now < w.waiting+60*time.Millisecond {
		return
	}
	w.waiting = 0
	w.busy = true
	life, token := w.life, w.token
	var err error
	done := func() {
		if w.life == life {
			w.busy = false
		}
	}
	s.send(func() {
		s.expire()
		if s.wrong.noReadersCheck && step.Kind == lease.Rewrite {
			if o, e := step.Outcome(read.Records); e == nil && s.store.State(simJob).Records == read.Records {
				s.store.Write(s.now, simJob, o.Records)
			}
			return
		}
		o, e := s.store.Prepare(simJob, token, read, step)
		if err = e; err == nil {
			s.store.Write(s.now, simJob, o.Records)
			s.changes++
		}
	}, func() {
		done()
		if w.life == life && errors.Is(err, lease.ErrDeposed) {
			w.token = 0
		}
	}, done)
}

func (s *sim) assign() (owners [simKeys]int) {
	owners = s.owners[s.newest-1]
	for range 1 + s.rng.IntN(simKeys) {
		owners[s.rng.IntN(simKeys)] = s.rng.IntN(len(s.readers))
	}
	return owners
}

// trouble crashes and pauses a process now and then.
func (s *sim) trouble() {
	s.after(time.Duration(s.rng.Int64N(int64(60*time.Millisecond))), s.trouble)
	if s.calm {
		return
	}
	r := s.readers[s.rng.IntN(len(s.readers))]
	kinds := 7
	if s.wrong.oldAnswers {
		kinds = 6 // without the last one: rare enough as it is
	}
	switch s.rng.IntN(kinds) {
	case 0: // dies
		r.up, r.whole, r.session, r.opening, r.left = false, false, 0, false, nil
		r.holding, r.deadline, r.backlog = lease.Holding{}, 0, nil
		r.leaving, r.waits = false, false
		r.life++
	case 1: // starts
		s.start(r)
	case 2: // is stopped, perhaps for longer than its lease
		r.paused, r.whole = s.now+time.Duration(s.rng.Int64N(int64(4*simTTL))), false
	case 3, 4: // an assigner dies; what it sent may still arrive
		w := s.writers[s.rng.IntN(len(s.writers))]
		w.life++
		w.session, w.token, w.busy, w.waiting = 0, 0, false, 0
	case 6: // leaves the job, to take part in it again
		s.tell(r, event{r.core, lease.Event{Kind: lease.Leave}})
	}
}

// depart is what Job.Close and Join do: the job is joined again once each release
// has been answered, or one is lost. It has a session when all of that is done with.
func (s *sim) depart(r *reader, e lease.Event) {
	if !r.core.Left() && !r.core.Resting() && (e.Kind != lease.Unknown || !e.Release) && s.now < r.deadline {
		return
	}
	r.leaving = false
	if !s.wrong.forgetsLeft {
		r.left = append(r.left, r.core)
	}
	r.core = s.core()
	r.waits = r.current != 0 && r.current == r.session
}

func (s *sim) start(r *reader) {
	if r.up {
		return
	}
	r.up, r.core = true, s.core()
}

func (s *sim) core() *lease.Core {
	patience := time.Second // long enough for a few lost messages, which are no excuse for a gap
	if s.wrong.letGo {
		patience = 0
	}
	return lease.NewCore(patience)
}
