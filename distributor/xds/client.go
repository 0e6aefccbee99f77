package xds

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/distributor/internal/handlers"
	xdsv3 "github.com/slicer-project/slicer/proto/xds/v3"
)

// announcedFor is how long clusters that were announced may be unknown to a client before
// routes lead there nevertheless.
const announcedFor = 5 * time.Second

// askAgain is how long a job that does not exist is not asked for again.
const askAgain = 5 * time.Second

// client is one client's stream. It costs the handler's goroutine, which watches the feeds,
// and one that receives; a third one sends, and lives only while there is something to send,
// so that a client that does not read can be told to go.
type client struct {
	s      *Service
	in     introduction
	stream serverStream

	*handlers.Signals

	mu      sync.Mutex // taken before any job's
	session session
	members map[string]*member    // by job
	claimed assignment.Generation // whose routes it said to have when it came
	came    time.Time
	sending bool
	left    bool
}

// member is a client's part in one job.
type member struct {
	*job
	feed    Feed // nil while there is no such job
	askAt   time.Time
	changed <-chan struct{}
	// endpoints are the client's own, made of an assignment.
	endpoints   *resource
	endpointsOf *assignment.Assignment

	accepted *resource // the routes that it has accepted last
	// knownBy is when the clusters that these announce are taken for known, whatever it asks for.
	knownBy  time.Time
	refuses  bool // it refused the routes that it was sent last
	refusing bool // it counts as such, whatever of
	said     standing
}

// standing is what a feed is told.
type standing struct {
	waited  bool
	refuses bool
	gen     assignment.Generation
	of      *resource // the routes that it is held for
}

func newClient(s *Service, in introduction, stream serverStream) *client {
	return &client{s: s, in: in, stream: stream, came: time.Now(), Signals: handlers.NewSignals(), members: make(map[string]*member)}
}

// leave ends the client's part in all jobs.
func (c *client) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = true
	for _, m := range c.members {
		m.out(time.Now())
	}
}

// out ends a client's part in a job.
func (m *member) out(now time.Time) {
	if m.feed != nil {
		m.feed.Leave(now)
	}
	m.leave(m.refusing)
}

// run sends the client what it lacks until its stream ends.
func (c *client) run() error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		now := time.Now()
		at, err := c.follow(now)
		if err != nil {
			return err
		}
		due, err := c.step(now)
		if err != nil {
			return err
		}
		if at = handlers.Sooner(at, due); at.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(at.Sub(now))
		}
		if err, over := c.wait(timer.C); over {
			return err
		}
	}
}

// wait returns when there is something to do, or with over that the stream is to end.
func (c *client) wait(timer <-chan time.Time) (err error, over bool) {
	const done, closing = 0, 1
	cases := make([]reflect.SelectCase, 0, 4+len(c.members))
	add := func(ch any) {
		cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(ch)})
	}
	add(c.Ended())
	add(c.s.handlers.Done())
	add(c.Notified())
	add(timer)
	for _, m := range c.members {
		if m.changed != nil {
			add(m.changed)
		}
	}
	switch chosen, _, _ := reflect.Select(cases); chosen {
	case done:
		return c.Err(), true
	case closing:
		return handlers.ErrClosing, true
	}
	return nil, false
}

// follow enters the jobs that the client has asked for, leaves others, and takes what is
// newest of each. It returns when to look again. members is changed by it alone.
func (c *client) follow(now time.Time) (at time.Time, err error) {
	c.mu.Lock()
	wanted := c.session.jobs()
	c.mu.Unlock()
	if len(wanted) > maxJobs {
		return at, status.Errorf(codes.ResourceExhausted, "%d jobs are asked for on one stream, at most %d are allowed", len(wanted), maxJobs)
	}
	for name, m := range c.members {
		if !slices.Contains(wanted, name) {
			c.remove(now, name, m)
		}
	}
	for _, name := range wanted {
		m := c.members[name]
		if m == nil {
			m = c.add(name)
		}
		again, err := c.update(now, m)
		if err != nil {
			return at, err
		}
		at = handlers.Sooner(at, again)
	}
	return at, nil
}

func (c *client) add(name string) *member {
	m := &member{job: c.s.enterJob(name)}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.members[name] = m
	return m
}

func (c *client) remove(now time.Time, name string, m *member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.members, name)
	m.out(now)
}

// update takes what is newest of a job, and returns when to ask again.
func (c *client) update(now time.Time, m *member) (again time.Time, err error) {
	if m.feed == nil && m.askAt.After(now) {
		return m.askAt, nil
	}
	feed := m.feed
	if feed == nil {
		if feed, err = c.s.source.Join(c.stream.Context(), m.name, c.in.name); err != nil {
			return c.without(now, m, err)
		}
		c.mu.Lock()
		m.feed, m.said = feed, standing{}
		c.mu.Unlock()
	}
	a, changed, wait, err := feed.Newest(now)
	if err != nil {
		return c.without(now, m, err)
	}
	m.changed = changed
	if a != nil {
		m.set(now, a, feed.Terms)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	m.askAt = time.Time{}
	if wait > 0 {
		again = now.Add(wait)
	}
	return again, nil
}

// without goes on without a job that does not exist. Another error is returned.
func (c *client) without(now time.Time, m *member, err error) (again time.Time, _ error) {
	if status.Code(err) != codes.NotFound {
		return again, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.feed != nil {
		m.feed.Leave(now)
	}
	m.feed, m.changed, m.askAt, m.accepted = nil, nil, now.Add(askAgain), nil
	return m.askAt, nil
}

// step tells the feeds how far the client is, and begins to send what is due. It returns when
// to look again.
func (c *client) step(now time.Time) (at time.Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.members {
		c.tellLocked(now, m)
	}
	if c.session.late(now) {
		return at, status.Errorf(codes.DeadlineExceeded, "an answer has been neither read nor answered for %s", answerWithin)
	}
	if c.sending {
		return now.Add(answerWithin), nil // whatever is on its way is late by then
	}
	a, at := c.session.next(now, func(k kind, name string) (*resource, verdict) { return c.findLocked(now, k, name) })
	for _, m := range c.members {
		if m.accepted == nil && c.claimed > 0 && now.Before(c.came.Add(announcedFor)) {
			at = handlers.Sooner(at, c.came.Add(announcedFor))
		}
		if m.accepted != nil && m.accepted.base != nil && m.knownBy.After(now) {
			at = handlers.Sooner(at, m.knownBy)
		}
	}
	if a != nil {
		c.sending = true
		c.s.handlers.Go(func() { c.send(a) })
		at = now.Add(answerWithin)
	}
	return at, nil
}

// tellLocked tells a job's feed what the client holds, if that has changed.
func (c *client) tellLocked(now time.Time, m *member) {
	if m.feed == nil {
		return
	}
	// One that has accepted nothing routes nowhere: were it waited for, a client that never
	// answers could hold up every drain.
	is := standing{waited: c.session.asks(routes, m.name) && !m.refuses && (m.accepted != nil || c.claimed > 0), refuses: m.refuses}
	if is.waited && m.accepted != nil {
		is.gen, is.of = m.holds(m.accepted, c.in.style), m.accepted.bare()
		if is.of == m.said.of {
			is.gen = max(is.gen, m.said.gen) // they may have been those of newer generations, too
		}
	} else if is.waited {
		is.gen = c.claimed
	}
	switch {
	case is == m.said:
		return
	case is.waited:
		m.feed.Holds(now, is.gen)
	case m.refuses:
		m.feed.Refuses(now)
	default:
		m.feed.Observes(now)
	}
	m.said = is
}

func (c *client) findLocked(now time.Time, k kind, name string) (*resource, verdict) {
	job, ok := jobOf(name)
	if !ok {
		return nil, isKnown
	}
	m := c.members[job]
	switch {
	case m == nil:
		return nil, isPending
	case m.feed == nil && !m.askAt.IsZero():
		return nil, isKnown
	case m.feed == nil:
		return nil, isPending
	}
	r, v := m.find(now, k, name, c.in.flavor, func(a *assignment.Assignment) *resource { return m.endpointsFor(a, c.in.number) })
	if k != routes || v != isKnown || r == nil {
		return r, v
	}
	if m.accepted == nil {
		return c.firstLocked(now, m, r)
	}
	if next := m.toward(m.accepted, c.in.style); next != r {
		return next, v
	}
	if m.accepted.base != nil && now.Before(m.knownBy) && !c.knowsLocked(m.accepted.uses) {
		return m.accepted, v
	}
	return r, v
}

// firstLocked are the routes of a job that a client is sent first. One that has some from an
// earlier stream asks for the clusters that these lead to: it is sent no routes before it has
// been told of these, or for a while.
func (c *client) firstLocked(now time.Time, m *member, newest *resource) (*resource, verdict) {
	if c.claimed == 0 || !now.Before(c.came.Add(announcedFor)) {
		return newest, isKnown
	}
	asks := c.session.asksOf(clusters, m.name)
	if len(asks) == 0 || !c.knowsLocked(asks) {
		return nil, isPending
	}
	return m.toArriving(asks, c.in.style), isKnown
}

// knowsLocked reports whether the client has asked for clusters and has accepted them.
func (c *client) knowsLocked(names []string) bool {
	t := &c.session.of[clusters]
	for _, name := range names {
		if _, told := t.sent[name]; !told {
			return false
		}
	}
	return !t.flying && !t.refused
}

// endpointsFor are the client's own.
func (m *member) endpointsFor(a *assignment.Assignment, number uint64) *resource {
	if a != m.endpointsOf {
		m.endpointsOf = a
		if r := newResource(m.name, a.Generation(), endpoints, anyEndpoints(a, number)); !r.equal(m.endpoints) {
			m.endpoints = r
		}
	}
	return m.endpoints
}

func (c *client) send(a *answer) {
	m := &xdsv3.DiscoveryResponse{
		VersionInfo: strconv.FormatInt(int64(a.version), 10), TypeUrl: typeURLs[a.kind], Nonce: a.nonce,
		ControlPlane: &xdsv3.ControlPlane{Identifier: c.s.id},
	}
	for _, r := range a.resources {
		m.Resources = append(m.Resources, r.body)
	}
	if err := c.stream.Send(m); err != nil {
		c.End(err)
		return
	}
	c.mu.Lock()
	c.sending = false
	for _, r := range a.resources {
		if m := c.members[r.job]; m != nil {
			m.sent(len(r.body.Value))
		}
	}
	c.mu.Unlock()
	c.Notify()
}

// receive takes what the client says until its stream ends.
func (c *client) receive() {
	for {
		m, err := c.stream.Recv()
		if err == nil {
			err = c.handle(time.Now(), m)
		}
		if err != nil {
			c.End(handlers.EndOf(err))
			return
		}
		c.Notify()
	}
}

// handle takes one request.
func (c *client) handle(now time.Time, m *xdsv3.DiscoveryRequest) error {
	if n := proto.Size(m); n > maxRequest {
		return invalid("request", &assignment.FieldError{Field: "size", Value: fmt.Sprintf("%d bytes", n), Allowed: fmt.Sprintf("at most %d", maxRequest)})
	}
	r, err := checkRequest(m, now)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left {
		return nil
	}
	if r.kind == routes && r.nonce == "" {
		c.claimed = r.version
	}
	said := c.session.take(now, r)
	if said != nil {
		c.answeredLocked(now, said)
	}
	return nil
}

// answeredLocked counts what a client says of an answer, for each job that is in it.
func (c *client) answeredLocked(now time.Time, said *reply) {
	counted := make(map[string]bool)
	for _, r := range said.sent {
		m := c.members[r.job]
		if m == nil {
			continue
		}
		if said.kind == routes {
			if m.refuses = said.refused != ""; !m.refuses {
				m.accepted, m.knownBy = r, now.Add(announcedFor)
			}
		}
		if counted[r.job] {
			continue
		}
		counted[r.job] = true
		was := m.refusing
		if said.refused != "" {
			m.refusing = true
			m.refused(now, was, c.in.name, said.kind, said.refused)
			continue
		}
		m.refusing = c.session.refusing()
		m.job.accepted(was, m.refusing)
	}
}
