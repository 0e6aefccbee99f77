package cluster

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/subscriber/protocol"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// subscriberHost is what clerks and slicelets have in common.
type subscriberHost struct {
	*host
	sub   *protocol.Core
	conns []linked
	state protocol.State
	// As looked at last:
	link     protocol.Source
	held     holding
	peer     string
	linkedAt time.Duration // when the one that serves last changed
	// hear is called when the state has changed, if it is not nil.
	hear func()
}

// begin starts the protocol in a new process.
func (s *subscriberHost) begin(cfg protocol.Config) {
	cfg.Job = job
	for _, d := range s.w.distributors {
		cfg.Distributors = append(cfg.Distributors, d.name+".example:1")
	}
	for _, b := range s.w.backups {
		cfg.Backups = append(cfg.Backups, b.name+".example:1")
	}
	cfg.Seed = xxhash.Sum64String(cfg.ClientID)
	s.sub = protocol.New(cfg, nil, 0, -1)
	s.conns, s.link, s.peer, s.linkedAt = nil, 0, "", s.w.at
	s.sub.Start(s.now())
	s.act()
}

// server is the name of what serves.
func (s *subscriberHost) server() string {
	name, _, _ := strings.Cut(s.state.Peer, ".")
	return name
}

// linked is a connection and what the protocol calls it. There are three at most.
type linked struct {
	link protocol.Link
	*conn
}

// conn is nil if there is no such connection.
func (s *subscriberHost) conn(link protocol.Link) *conn {
	for _, c := range s.conns {
		if c.link == link {
			return c.conn
		}
	}
	return nil
}

func (s *subscriberHost) unlink(link protocol.Link) {
	s.conns = slices.DeleteFunc(s.conns, func(c linked) bool { return c.link == link })
}

// act carries out what the protocol asks for.
func (s *subscriberHost) act() {
	for actions := s.sub.Actions(); len(actions) > 0; actions = s.sub.Actions() {
		for _, a := range actions {
			switch a.Do {
			case protocol.Dial:
				s.dial(a)
			case protocol.Send:
				if c := s.conn(a.Link); c != nil {
					c.send(0, a.Message)
				}
			case protocol.Cut:
				if c := s.conn(a.Link); c != nil {
					c.close(0)
				}
				s.unlink(a.Link)
			case protocol.Publish:
				if s.state = s.sub.State(); s.state.Peer != s.peer {
					s.peer, s.linkedAt = s.state.Peer, s.w.at
				}
				s.w.check.published(s)
				if s.hear != nil {
					s.hear()
				}
			}
		}
	}
	if at := s.sub.Wake(); !at.IsZero() {
		s.wake(sinceEpoch(at))
	}
}

func (s *subscriberHost) tick() {
	s.sub.Tick(s.now())
	s.act()
}

func (s *subscriberHost) dial(a protocol.Action) {
	name, _, _ := strings.Cut(a.Addr, ".")
	to := s.w.servers[name]
	sub, link, asm := s.sub, a.Link, new(assembler)
	ended := func(err error) {
		s.unlink(link)
		sub.Ended(s.now(), link, err)
		s.act()
	}
	s.w.dial(s.host, to.host, func(m any) {
		r := m.(*slicerv1.WatchResponse)
		got, err := asm.take(&s.w.decoder, r.GetChunk(), r.GetTrailer(), sub.Base(link))
		sub.Received(s.now(), link, r, got, err)
		s.act()
	}, ended, to.accept, func(c *conn, err error) {
		if err != nil {
			ended(err)
			return
		}
		s.conns = append(s.conns, linked{link, c})
		sub.Linked(s.now(), link)
		s.act()
	})
}

// clerkHost is a client's process.
type clerkHost struct {
	subscriberHost
	at     int // which clerk it is
	asking *asking
}

func newClerk(w *world, name string) *clerkHost {
	c := &clerkHost{subscriberHost: subscriberHost{host: w.newHost(name)}, at: len(w.clerks)}
	c.due, c.subscriberHost.hear = c.tick, c.hear
	c.boot = func() {
		c.asking = c.newAsking()
		c.begin(protocol.Config{Role: protocol.Clerk, ClientID: fmt.Sprintf("%s-%d", name, c.life)})
	}
	return c
}

// sliceletHost is a server's process.
type sliceletHost struct {
	subscriberHost
	task     assignment.Task
	draining bool
	leaving  leaving
	sequence uint64
	saying   func()                 // says how it is
	measured *assignment.Assignment // that load is of
	version  int
	load     *slicerv1.LoadReport

	at           int // which slicelet it is
	room         *room
	ratio        ratio
	slow, signal float64
	became       time.Duration // when these changed
}

func newSlicelet(w *world, name string) *sliceletHost {
	s := &sliceletHost{subscriberHost: subscriberHost{host: w.newHost(name)}, at: len(w.slicelets), slow: 1}
	w.named[name] = s
	s.due, s.subscriberHost.hear = s.tick, s.limit
	s.saying = func() {
		s.sub.Report(s.now(), s.report())
		s.act()
		s.beat()
	}
	s.boot = func() {
		s.task = assignment.Task{Name: name, Incarnation: w.hash(uint64(s.id), s.life) | 1, Address: name + ".example:1", Weight: 1}
		s.draining, s.leaving, s.sequence, s.measured, s.load = false, leaving{}, 0, nil, nil
		s.room = newRoom(s)
		s.begin(protocol.Config{Role: protocol.Slicelet, ClientID: fmt.Sprintf("%s-%d", name, s.life), Task: s.task, First: s.report()})
		s.beat()
	}
	s.die = func() {
		s.room.die()
		w.check.died(s)
	}
	return s
}

func (s *sliceletHost) beat() {
	s.after(between(s.w.hash(uint64(s.id), uint64(s.w.at)), 900*time.Millisecond, 1100*time.Millisecond), s.saying)
}

func (s *sliceletHost) report() *slicerv1.Report {
	s.sequence++
	state := assignment.TaskRunning
	if s.draining {
		state = assignment.TaskDraining
	}
	level := s.room.measure()
	return &slicerv1.Report{
		Sequence: s.sequence, State: wire.StateToProto(state), Load: s.metered(),
		Level: uint32(level.Below), PauseMs: uint32(level.Pause.Milliseconds()), Customers: s.customers(),
	}
}

// metered is the load that the keys bring, without noise.
func (s *sliceletHost) metered() *slicerv1.LoadReport {
	if s.w.traffic.crowd != nil {
		return s.room.demand()
	}
	a := s.state.Assignment
	if a == s.measured && s.version == s.w.load.version {
		return s.load
	}
	s.measured, s.version, s.load = a, s.w.load.version, nil
	if pos, ok := s.place(); ok {
		s.load = s.w.load.of(a)[pos]
	}
	return s.load
}

// place is where the assignment in hand names this very process.
func (s *sliceletHost) place() (pos int, ok bool) {
	a := s.state.Assignment
	if a == nil {
		return 0, false
	}
	pos, ok = a.Position(s.task.Name)
	return pos, ok && a.Task(pos).Incarnation == s.task.Incarnation
}

func owns(a *assignment.Assignment, pos int) bool {
	for i := range a.NumSlices() {
		if a.Replicas(i).Has(pos) {
			return true
		}
	}
	return false
}

// load is what keys are asked for, and how often.
type load struct {
	keys    []assignment.SliceKey
	rates   []float64
	version int
	rng     *rand.Rand
	// cached are the reports of all tasks of an assignment, at a version.
	cached []*slicerv1.LoadReport
	on     *assignment.Assignment
	seen   int
	// slices and tasks are room for what is worked out anew.
	slices []float64
	tasks  []assignment.Load
}

func newLoad(rng *rand.Rand) *load {
	l := &load{rng: rng}
	for range 200 {
		l.keys = append(l.keys, assignment.SliceKey(rng.Uint64()>>1))
	}
	l.shift()
	return l
}

// shift makes other keys hot.
func (l *load) shift() {
	l.rates = make([]float64, len(l.keys))
	for rank, k := range l.rng.Perm(len(l.keys)) {
		l.rates[k] = 1000 / math.Pow(float64(rank+1), 1)
	}
	l.version++
}

// of is what each task of an assignment measures.
func (l *load) of(a *assignment.Assignment) []*slicerv1.LoadReport {
	if a == l.on && l.seen == l.version {
		return l.cached
	}
	l.slices = append(l.slices[:0], make([]float64, a.NumSlices())...)
	for i, k := range l.keys {
		l.slices[a.Find(k)] += l.rates[i]
	}
	l.tasks = slices.Grow(l.tasks[:0], a.NumTasks())[:a.NumTasks()]
	tasks := l.tasks
	for pos := range tasks {
		tasks[pos] = assignment.Load{Ranges: tasks[pos].Ranges[:0], Rate: tasks[pos].Rate[:0]}
	}
	for i, rate := range l.slices {
		r := a.Replicas(i)
		for k := range r.Len() {
			t, share := &tasks[r.Position(k)], rate/float64(r.Len())
			t.Ranges, t.Rate, t.Total = append(t.Ranges, a.Slice(i)), append(t.Rate, share), t.Total+share
		}
	}
	l.cached, l.on, l.seen = make([]*slicerv1.LoadReport, len(tasks)), a, l.version
	for pos := range tasks {
		t := &tasks[pos]
		t.Generation, t.Window, t.Parts = a.Generation(), time.Second, 1
		l.cached[pos] = wire.LoadToProto(t)
	}
	return l.cached
}
