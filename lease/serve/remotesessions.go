package serve

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/lease/internal/rpc"
)

// Bounds of what one caller of LeaseService may have, so that none shuts the
// others out. A caller is the identity of its certificate, or its address (see
// limiter.KeyOf).
const (
	MaxPeerSessions       = 1 << 13 // of one caller
	MaxConnectionSessions = 256     // opened over one connection
	MaxConnectionWatches  = 256     // at a time over one connection
)

// errFull: the caller has as many as it may.
var errFull = fmt.Errorf("%w: as many as there may be", lease.ErrUnavailable)

// errReplaced ends a watch when the session has begun another one of the job.
var errReplaced = errors.New("the session watches the job anew")

// ticket is the right to a session: random, and told to its holder alone.
type ticket [16]byte

// remoteSession is a session that was opened over gRPC.
type remoteSession struct {
	id      uint64
	ticket  ticket
	origin  rpc.Origin
	tasks   map[string]string    // by job: as which one the session takes part, if that is known
	may     map[string]rpc.Asked // by job: that its holder may own it
	watches map[string]*watch    // by job
	// repeated is when an answer has told last that what its watches have told is so still.
	repeated time.Time
}

type watch struct {
	end  context.CancelCauseFunc
	told lease.Seen // last
}

// remoteSessions are the sessions that were opened over gRPC. Sessions of this process are
// not among them, so no ticket leads to those. The store's lock guards it.
type remoteSessions struct {
	byTicket map[ticket]*remoteSession
	byID     map[uint64]*remoteSession
	peers    map[string]int // sessions
	opened   map[string]int // sessions, by connection
	watching map[string]int // watches, by connection
}

func newRemoteSessions() *remoteSessions {
	return &remoteSessions{byTicket: map[ticket]*remoteSession{}, byID: map[uint64]*remoteSession{}, peers: map[string]int{}, opened: map[string]int{}, watching: map[string]int{}}
}

// room reports whether a caller may open another session.
func (g *remoteSessions) room(o rpc.Origin) error {
	switch {
	case g.peers[o.Peer] >= MaxPeerSessions:
		return fmt.Errorf("%w: %d sessions of %s", errFull, MaxPeerSessions, o.Peer)
	case g.opened[o.Connection] >= MaxConnectionSessions:
		return fmt.Errorf("%w: %d sessions of one connection", errFull, MaxConnectionSessions)
	}
	return nil
}

// admit makes a session of the table a caller's.
func (g *remoteSessions) admit(id uint64, o rpc.Origin, tasks map[string]string) ticket {
	x := &remoteSession{id: id, origin: o, tasks: maps.Clone(tasks), watches: map[string]*watch{}}
	rand.Read(x.ticket[:])
	g.byTicket[x.ticket], g.byID[id] = x, x
	g.peers[o.Peer]++
	g.opened[o.Connection]++
	return x.ticket
}

// name notes as which task a session takes part in a job.
func (g *remoteSessions) name(id uint64, job, task string) {
	x := g.byID[id]
	if x == nil || x.tasks[job] == task {
		return
	}
	if x.tasks == nil {
		x.tasks = map[string]string{}
	}
	x.tasks[job] = task
}

// allow notes that a session's holder may own a job.
func (g *remoteSessions) allow(id uint64, job string, as rpc.Asked) {
	if x := g.byID[id]; x != nil {
		if x.may == nil {
			x.may = map[string]rpc.Asked{}
		}
		x.may[job] = as
	}
}

// find returns the session that a ticket is the right to. Whatever is wrong with
// it, the answer is the same. (A lookup in a map whose hash is seeded at random
// tells nothing of 128 random bits by the time that it takes.)
func (g *remoteSessions) find(t []byte, o rpc.Origin) (*remoteSession, error) {
	if len(t) != len(ticket{}) {
		return nil, lease.ErrLost
	}
	if x := g.byTicket[ticket(t)]; x != nil && x.origin.Caller.Identity == o.Caller.Identity {
		return x, nil
	}
	return nil, lease.ErrLost
}

// drop forgets a session that is over, and ends its watches.
func (g *remoteSessions) drop(id uint64) {
	x := g.byID[id]
	if x == nil {
		return
	}
	delete(g.byID, id)
	delete(g.byTicket, x.ticket)
	down(g.peers, x.origin.Peer)
	down(g.opened, x.origin.Connection)
	for _, w := range x.watches {
		w.end(lease.ErrLost)
	}
}

// watch begins the one watch of a job that a session has; a former one ends.
func (g *remoteSessions) watch(x *remoteSession, job, connection string, end context.CancelCauseFunc) (*watch, error) {
	if g.watching[connection] >= MaxConnectionWatches {
		return nil, fmt.Errorf("%w: %d watches of one connection", errFull, MaxConnectionWatches)
	}
	g.watching[connection]++
	if before := x.watches[job]; before != nil {
		before.end(errReplaced)
	}
	w := &watch{end: end}
	x.watches[job] = w
	return w, nil
}

// endWatch ends a session's watch of a job, if it has one.
func (g *remoteSessions) endWatch(id uint64, job string, why error) {
	if x := g.byID[id]; x != nil && x.watches[job] != nil {
		x.watches[job].end(why)
	}
}

// unwatch is the end of a watch.
func (g *remoteSessions) unwatch(x *remoteSession, job, connection string, w *watch) {
	down(g.watching, connection)
	if x.watches[job] == w {
		delete(x.watches, job)
	}
}

func down(counts map[string]int, key string) {
	if counts[key]--; counts[key] <= 0 {
		delete(counts, key)
	}
}
