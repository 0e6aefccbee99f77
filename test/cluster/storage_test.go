package cluster

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slicer-project/slicer/assigner/generate"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"github.com/slicer-project/slicer/test/kit/assignersim"
)

const (
	job     = "job"
	storeID = 7
	// registration is how long a candidate stands without saying so again, said how
	// often it says so.
	registration, said = 3 * time.Second, time.Second
	// A request to a store that does not answer is given up after this.
	storePatience = 5 * time.Second
	// vacant is how long an assigner without a Distributor stays a candidate.
	vacant = 3 * time.Second
)

// storage is the store: one job, its newest assignment, what operators have
// ordered, and who stands as a candidate.
type storage struct {
	*host
	job        store.Job
	overrides  store.Overrides
	stored     *assignment.Assignment
	candidates map[string]*candidate
	seen       []store.Candidate // those, in order; nil when they have changed
	revision   int64
	// lossy is until when calls fail, be it that the request is lost or the answer.
	lossy time.Duration
}

type candidate struct {
	store.Candidate
	until   time.Duration
	watched bool // a part looks when that is over
}

// view is who stands, by name. It is not changed later.
func (s *storage) view() []store.Candidate {
	if s.seen == nil {
		s.seen = make([]store.Candidate, 0, len(s.candidates))
		for _, c := range s.candidates {
			s.seen = append(s.seen, c.Candidate)
		}
		slices.SortFunc(s.seen, func(x, y store.Candidate) int { return strings.Compare(x.ID, y.ID) })
	}
	return s.seen
}

// request is a call of a host to the store.
type request struct {
	s       *storage
	from    *host
	n, life uint64
	limit   time.Duration
	settled bool
	do      func() any
	done    func(answer any, ok bool)
	answer  any
}

// rpc carries a request to the store and its answer back. When the answer does
// not come it fails, whether or not the store has done its part; it may do that long
// after, too. One request may overtake another.
func (s *storage) rpc(from *host, do func() any, done func(answer any, ok bool)) {
	w := s.w
	w.seq++
	r := &request{s: s, from: from, n: w.seq, life: from.life, limit: w.at + storePatience, do: do, done: done}
	w.enqueue(w.at+delay(w.hash(r.n, 1)), r.n, (*arriving)(r))
}

func (r *request) finish(answer any, ok bool) {
	if r.settled || r.from.life != r.life {
		return
	}
	r.settled = true
	if !ok {
		r.s.w.check.failed(r.from)
	}
	if r.from.runs() {
		r.done(answer, ok)
	} else {
		r.from.do(func() { r.done(answer, ok) })
	}
}

// late has the request fail when patience is over, unless it has ended by then.
func (r *request) late() {
	if w := r.s.w; !r.settled {
		w.check.failed(r.from) // and again when it knows
		w.schedule(r.limit, r.n, func() { r.finish(nil, false) })
	}
}

// fails has the call come to nothing if the store is lossy, at once or late.
func (r *request) fails(h uint64) bool {
	switch {
	case r.s.w.at >= r.s.lossy || h%3 != 0:
		return false
	case h>>8%2 == 0:
		r.finish(nil, false)
	default:
		r.late()
	}
	return true
}

// arriving is a request that reaches the store.
type arriving request

func (x *arriving) happen() {
	r := (*request)(x)
	s, w := r.s, r.s.w
	switch {
	case w.cutOff(r.from, s.host):
		r.late()
		if h := w.hash(r.n, 3); h%2 == 0 && w.at < r.limit-storePatience+patient { // it may still get there
			w.enqueue(w.at+time.Second, r.n, x)
		}
	case !s.up:
		r.late()
	case r.fails(w.hash(r.n, 4)):
	case s.paused:
		r.late()
		s.host.do(r.serve)
	default:
		r.serve()
	}
}

// serve has the store do its part.
func (r *request) serve() {
	w := r.s.w
	r.answer = r.do()
	w.enqueue(w.at+delay(w.hash(r.n, 2)), r.n, (*answered)(r))
}

// answered is a request whose answer reaches its host.
type answered request

func (x *answered) happen() {
	r := (*request)(x)
	w := r.s.w
	switch {
	case w.cutOff(r.s.host, r.from):
		r.late()
	case !r.fails(w.hash(r.n, 5)):
		r.finish(r.answer, true)
	}
}

// tell has every assigner that lives hear of a change, sooner or later.
func (s *storage) tell(f func(a *assignerHost)) {
	for _, a := range s.w.assigners {
		s.tellOne(a.host, a.life, func() { f(a) })
	}
}

func (s *storage) tellOne(h *host, life uint64, f func()) {
	w := s.w
	w.seq++
	w.schedule(w.at+delay(w.hash(w.seq, uint64(h.id))), uint64(h.id), func() {
		switch {
		case h.life != life || !h.up:
		case w.cutOff(s.host, h) || !s.up:
			w.schedule(w.at+time.Second, uint64(h.id), func() { s.tellOne(h, life, f) })
		default:
			h.do(f)
		}
	})
}

func (s *storage) write(by *assignerHost, next *assignment.Assignment, overrides int64) error {
	if overrides != s.overrides.Version {
		return &store.ConflictError{Key: "orders of " + job, Current: s.overrides.Version}
	}
	prev := assignment.Generation(0)
	if s.stored != nil {
		prev = s.stored.Generation()
	}
	if next.Previous() != prev {
		return &store.ConflictError{Key: job, Current: int64(prev)}
	}
	s.w.wrote(by, s.stored, next)
	s.w.check.written(s.stored, next)
	if prev != 0 {
		s.w.check.spared(by, s.stored, next)
	}
	s.stored = next
	s.moved()
	return nil
}

// order changes what operators have ordered.
func (s *storage) order(change func(c *store.Overrides)) {
	c := s.overrides.Clone()
	c.Version++
	change(&c)
	if err := c.Validate(); err != nil {
		panic(err)
	}
	s.overrides = c
	s.w.check.look()
	s.moved()
}

// moved has the assigners and the Backup Distributors look at the job again.
func (s *storage) moved() {
	for _, b := range s.w.backups {
		s.tellOne(b.host, b.life, b.changed)
	}
	s.tell(func(a *assignerHost) { a.sim.StoreChanged(a.clock(), job); a.step() })
}

func (s *storage) changed() {
	s.revision++
	s.seen = nil
	s.w.check.look()
	cs, rev := s.view(), s.revision
	s.tell(func(a *assignerHost) { a.see(cs, rev) })
}

func (s *storage) register(c store.Candidate) {
	k := s.candidates[c.ID]
	if k == nil {
		k = &candidate{Candidate: c}
		s.candidates[c.ID] = k
		defer s.changed()
	}
	k.until = s.w.at + registration
	s.expire(k, registration)
}

// expire withdraws a candidate that has not said for long that it stands.
func (s *storage) expire(k *candidate, after time.Duration) {
	if k.watched {
		return
	}
	k.watched = true
	s.after(after, func() {
		k.watched = false
		switch left := k.until - s.w.at; {
		case s.candidates[k.ID] != k:
		case left > 0:
			s.expire(k, left)
		default:
			s.withdraw(k.ID)
		}
	})
}

func (s *storage) withdraw(id string) {
	if s.candidates[id] != nil {
		delete(s.candidates, id)
		s.changed()
	}
}

// assignerHost is an assigner's process.
type assignerHost struct {
	*host
	sim      *assignersim.Assigner
	seen     int64 // revision of the candidates
	standing bool
	alone    time.Duration // since when no Distributor is attached, -1 if one is
	// chargedAt is when the store's candidates last made it preferred.
	chargedAt time.Duration
	peers     map[*conn]*assignersim.Distributor
	over      []*conn // streams that are to be ended
}

func (a *assignerHost) clock() generate.Now {
	return generate.Now{Mono: a.mono(), Wall: a.wall()}
}

func newAssigner(w *world, name string) *assignerHost {
	a := &assignerHost{host: w.newHost(name)}
	a.due = a.step
	a.boot = func() {
		a.seen, a.standing, a.alone, a.peers, a.over = 0, false, 0, map[*conn]*assignersim.Distributor{}, nil
		a.sim = assignersim.New(name, storeID, a.clock())
		a.sim.StoreChanged(a.clock(), job)
		// What a watch says first.
		w.store.tellOne(a.host, a.life, func() { a.see(w.store.view(), w.store.revision) })
		a.stand()
		a.step()
	}
	return a
}

func (a *assignerHost) see(cs []store.Candidate, revision int64) {
	if revision < a.seen {
		return
	}
	a.seen = revision
	a.sim.Candidates(a.clock(), cs, revision)
	a.step()
}

// stand keeps the assigner a candidate while it has a Distributor.
func (a *assignerHost) stand() {
	s := a.w.store
	attached := a.sim.HasDistributor()
	switch {
	case attached:
		a.alone = -1
	case a.alone < 0:
		a.alone = a.w.at
	}
	switch {
	case attached || a.standing && a.w.at-a.alone < vacant:
		a.standing = true
		c := store.Candidate{ID: a.name, Address: a.name + ".example:1"}
		s.rpc(a.host, func() any { s.register(c); return nil }, func(any, bool) {})
	case a.standing:
		a.standing = false
		s.rpc(a.host, func() any { s.withdraw(a.name); return nil }, func(any, bool) {})
	}
	a.after(said, a.stand)
}

type read struct {
	job       store.Job
	overrides store.Overrides
	stored    *assignment.Assignment
}

// step has the assigner do what is due.
func (a *assignerHost) step() {
	ask, next := a.sim.Step(a.clock())
	a.wake(a.born + next)
	s := a.w.store
	for _, q := range ask {
		if q.Write == nil {
			s.rpc(a.host, func() any { return read{s.job, s.overrides, s.stored} }, func(x any, ok bool) {
				l := generate.Loaded{Err: store.ErrUnavailable}
				if ok {
					r := x.(read)
					l = generate.Loaded{Exists: true, Job: r.job, StoreID: storeID, Assignment: r.stored, Overrides: r.overrides}
				}
				a.sim.Loaded(a.clock(), job, l)
				a.step()
			})
			continue
		}
		s.rpc(a.host, func() any { return s.write(a, q.Write, q.Overrides) }, func(x any, ok bool) {
			err := error(store.ErrUnavailable)
			if ok {
				err, _ = x.(error)
			}
			a.sim.Written(a.clock(), job, err)
			if err == nil {
				a.w.check.decided(a)
			}
			a.step()
		})
	}
}

// accept takes a Distributor's connection.
func (a *assignerHost) accept(c *conn) (recv func(any), ended func(error)) {
	recv = func(m any) {
		switch m := m.(type) {
		case *slicerv1.DistributorHello:
			p, err := a.sim.Attached(a.clock(), m, func(out *slicerv1.AttachResponse) { c.send(1, out) }, func() { a.over = append(a.over, c) })
			if err != nil {
				a.w.fail("%s refuses a hello: %v", a.name, err)
			}
			a.peers[c] = p
			a.hangUp() // on the stream before
			a.w.check.look()
		case *slicerv1.AttachRequest:
			if p := a.peers[c]; p != nil {
				a.sim.FromDistributor(a.clock(), p, m)
			}
			if r := m.GetReports(); r != nil && r.Job == "" {
				return // a sign of life: nothing is due because of it
			}
		}
		a.step()
	}
	return recv, func(error) {
		if p := a.peers[c]; p != nil {
			delete(a.peers, c)
			a.w.check.look()
			a.sim.Detached(a.clock(), p)
			a.step()
		}
	}
}

// hangUp ends the streams that are to be ended.
func (a *assignerHost) hangUp() {
	over := a.over
	a.over = nil
	for _, c := range over {
		p := a.peers[c]
		delete(a.peers, c)
		a.sim.Detached(a.clock(), p)
		c.close(1)
	}
}

// wrote notes what a new generation is about.
func (w *world) wrote(by *assignerHost, prev, next *assignment.Assignment) {
	var b strings.Builder
	for pos, t := range next.Tasks() {
		was := assignment.TaskUnknown
		if prev != nil {
			if p, ok := prev.Position(t.Name); ok {
				if was = prev.Task(p).State; prev.Task(p).Same(t) && was == t.State {
					continue
				}
			}
		}
		if b.Len() < 200 {
			fmt.Fprintf(&b, ", %s/%.4x %s to %s", t.Name, next.Task(pos).Incarnation, was, t.State)
		}
	}
	w.note("%s writes %d%s", by.name, next.Generation(), b.String())
}
