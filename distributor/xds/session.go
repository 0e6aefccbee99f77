package xds

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/distributor/internal/handlers"
)

const (
	// replyAfter is how long an answer to what is asked for anew waits for more of it.
	replyAfter = 10 * time.Millisecond
	// changeGap is the least time between two answers of a type that were not asked for.
	changeGap = time.Second
	// Answers that are asked for: so many at once, and then one in replyEvery.
	replyBurst = 64
	replyEvery = 100 * time.Millisecond
	// answerWithin is how long a client may take to read an answer and to accept or refuse
	// it. It is patient: many may be sent much at once, and one that is let go comes back.
	answerWithin = 2 * time.Minute
)

// whole reports whether an answer has all resources of its type that the client asked for:
// one that is missing does not exist.
func (k kind) whole() bool { return k == listeners || k == clusters }

// order is that in which types are sent, so that a client knows what a route leads to.
var order = [numKinds]kind{clusters, endpoints, listeners, routes}

// request is what a client says, checked.
type request struct {
	kind  kind
	names []string // in order, each once
	nonce string
	// version is what it says that it holds, 0 for nothing that makes sense.
	version assignment.Generation
	// refused says why it does not accept the answer of that nonce, "" if it does.
	refused string
}

// answer is what a client is to be sent.
type answer struct {
	kind      kind
	version   assignment.Generation
	nonce     string
	resources []*resource
}

// reply is what a request says of an answer.
type reply struct {
	kind    kind
	sent    []*resource
	refused string
}

// session is one stream's place in the protocol: what the client has asked for, was sent and
// has accepted. Pure, and not safe for concurrent use.
type session struct {
	of     [numKinds]asked
	nonces uint64
	// credit is when all of replyBurst is free again.
	credit time.Time
}

// asked is what a session knows of one type.
type asked struct {
	names     []string
	sent      map[string]*resource // by name; nil: it was told that there is none
	changedAt time.Time            // when something was asked for that it was told nothing of
	nonce     string               // of the last answer
	flight    []*resource          // what that had, while the client has not answered
	flying    bool
	flightAt  time.Time
	lastAt    time.Time
	refused   bool // the last answer
}

// take takes a request. It returns what that says of the answer on its way, nil if nothing.
func (s *session) take(now time.Time, r request) *reply {
	t := &s.of[r.kind]
	if t.sent == nil {
		t.sent = make(map[string]*resource)
	}
	t.names = r.names
	maps.DeleteFunc(t.sent, func(name string, _ *resource) bool {
		_, ok := slices.BinarySearch(t.names, name)
		return !ok
	})
	for _, name := range t.names {
		if _, told := t.sent[name]; !told && t.changedAt.IsZero() {
			t.changedAt = now
		}
	}
	if !t.flying || r.nonce != t.nonce {
		return nil
	}
	said := &reply{r.kind, t.flight, r.refused}
	t.flying, t.flight, t.refused = false, nil, r.refused != ""
	return said
}

// next is the answer that is due, nil if none is; at is when to look again, unless something
// happens before; zero for never.
func (s *session) next(now time.Time, find func(k kind, name string) (*resource, verdict)) (a *answer, at time.Time) {
	for _, k := range order {
		a, due := s.nextOf(now, k, find)
		if a != nil {
			return a, time.Time{}
		}
		at = handlers.Sooner(at, due)
	}
	return nil, at
}

func (s *session) nextOf(now time.Time, k kind, find func(k kind, name string) (*resource, verdict)) (*answer, time.Time) {
	t := &s.of[k]
	if t.flying {
		return nil, t.flightAt.Add(answerWithin)
	}
	fresh, changed, pending := false, false, false
	resources := make(map[string]*resource)
	for _, name := range t.names {
		last, told := t.sent[name]
		r, v := find(k, name)
		if v == isPending && !told {
			pending = true
			continue
		}
		if v != isKnown {
			r = last
		}
		switch {
		case !told && (r != nil || k.whole()):
			fresh = true
		case r == last || r.equal(last) || r == nil && !k.whole():
			if !k.whole() {
				continue
			}
		default:
			changed = true
		}
		resources[name] = r
	}
	if !fresh && !changed || pending && k.whole() {
		return nil, time.Time{}
	}
	due := t.lastAt.Add(changeGap)
	if fresh && !t.refused {
		due = t.changedAt.Add(replyAfter)
		if free := s.credit.Add(-(replyBurst - 1) * replyEvery); free.After(due) {
			due = free
		}
	}
	if due.After(now) {
		return nil, due
	}
	if fresh {
		s.credit = later(s.credit, now).Add(replyEvery)
	}
	return s.send(now, k, resources), time.Time{}
}

// send notes that the client is sent resources, and says how.
func (s *session) send(now time.Time, k kind, resources map[string]*resource) *answer {
	t := &s.of[k]
	s.nonces++
	a := &answer{kind: k, nonce: strconv.FormatUint(s.nonces, 10)}
	t.nonce, t.flight, t.flying, t.flightAt, t.lastAt, t.changedAt = a.nonce, nil, true, now, now, time.Time{}
	for _, name := range slices.Sorted(maps.Keys(resources)) {
		r := resources[name]
		t.sent[name] = r
		if r == nil {
			continue
		}
		a.resources = append(a.resources, r)
		a.version = max(a.version, r.gen)
	}
	t.flight = a.resources
	return a
}

// late reports whether the client has not answered for too long.
func (s *session) late(now time.Time) bool {
	for k := range s.of {
		if t := &s.of[k]; t.flying && now.Sub(t.flightAt) >= answerWithin {
			return true
		}
	}
	return false
}

// jobs are those that the client has asked for anything of, in order.
func (s *session) jobs() (all []string) {
	for k := range s.of {
		for _, name := range s.of[k].names {
			if job, ok := jobOf(name); ok {
				all = append(all, job)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// asks reports whether the client has asked for a resource.
func (s *session) asks(k kind, name string) bool {
	_, ok := slices.BinarySearch(s.of[k].names, name)
	return ok
}

// asksOf are the resources of a job that the client has asked for, in order.
func (s *session) asksOf(k kind, job string) (names []string) {
	for _, name := range s.of[k].names {
		if of, ok := jobOf(name); ok && of == job {
			names = append(names, name)
		}
	}
	return names
}

// refusing reports whether the last answer of any type was refused.
func (s *session) refusing() bool {
	for k := range s.of {
		if s.of[k].refused {
			return true
		}
	}
	return false
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
