package limiter

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/peer"

	"github.com/slicer-project/slicer/assignment/limiter/fair"
)

// When a server has restarted all its clients come at once. What that costs is
// connections: handshakes and buffers on both sides, half a millisecond of CPU time
// each, and whatever else there is to do waits for as many of them as have begun. So a
// few are begun at a time, as many as keep the machine busy, and the next when one of
// them has been served: the pace is what the machine can do, whatever that is. And
// while a change is on its way to those that are connected, hardly any are begun at all.
//
// The others wait as a socket and a few hundred bytes, those of different clients in
// turn. A connection of which nothing has come takes no part in that.
const (
	// DefaultHandshakes is how many are under way at once, and DefaultFew how many while
	// those that are connected wait for a change.
	DefaultHandshakes, DefaultFew = 64, 2
	// HandshakeFor is how long one counts at most: it may be for something that is never
	// reported as served, or its other end may be slow.
	HandshakeFor = time.Second
	// PauseFor is how long a change holds others up at most: by then it is to have
	// reached all, and what does not read it is not to be waited for.
	PauseFor = time.Second
	// busyFor is how often HandshakesConfig.Busy is asked while connections wait.
	busyFor = 100 * time.Millisecond
	// silentFor is how long a connection may take to send its first byte.
	silentFor = 10 * time.Second
	// maxSilent are waited for at a time, maxSilentEach of them of one client: then the
	// oldest make way.
	maxSilent, maxSilentEach = 2048, 512
	// maxWaiting connections wait for a handshake: then the newest make way, of the
	// client that has the most.
	maxWaiting = 16384
)

// Why a connection was dropped.
const (
	DroppedSilent  = "silent"  // it sent nothing for 10 s, or there were more such
	DroppedMany    = "many"    // too many wait, and its client has the most of them
	DroppedStreams = "streams" // its client went on opening more streams than are allowed
)

// HandshakesConfig says what Handshakes allow and what is called when something changes.
type HandshakesConfig struct {
	// Most are under way at once, and Few while a change is on its way. Defaults:
	// DefaultHandshakes, DefaultFew.
	Most, Few int
	// Busy, if not nil, reports whether hardly any are to be begun for now, as while a change is on
	// its way: asked when one begins or is released, and from time to time.
	Busy func() bool
	// UntilSetUp: a Handshake is released when gRPC has set the connection up, handshake of TLS
	// and settings of HTTP/2 included, whatever comes then, and is not the connection's
	// address. grpc.Server takes the connection's deadline off then; were it not to, the pace
	// would be that of HandshakeFor.
	UntilSetUp bool
	// Carrier, if not nil, reports whether the connection of a call carries the calls of many:
	// then ServerOptions do not limit them to MaxCalls.
	Carrier func(ctx context.Context) bool
	// MaxClientCalls, if not nil, is how many calls the client of one may have at a time, in
	// place of the constant; below MaxCalls it is not asked.
	MaxClientCalls func(ctx context.Context) int
	// UnderWay, if not nil, is told how many are whenever that changes.
	UnderWay func(int)
	// Dropped, if not nil, is told why a connection was dropped.
	Dropped func(why string)
}

// Handshakes limit how many connections are being set up at once. All methods are safe
// for concurrent use.
type Handshakes struct {
	cfg     HandshakesConfig
	clients *clients

	mu     sync.Mutex
	fair   *fair.Limiter
	timer  *time.Timer
	last   uint64                // number given out
	conns  map[uint64]*Handshake // those that wait for their handshake
	pauses map[any]time.Time     // changes on their way, and until when they count
}

// NewHandshakes makes one. There is nothing to close; its listeners are.
func NewHandshakes(cfg HandshakesConfig) *Handshakes {
	if cfg.Most == 0 {
		cfg.Most = DefaultHandshakes
	}
	if cfg.Few == 0 {
		cfg.Few = DefaultFew
	}
	return &Handshakes{
		cfg: cfg, clients: newClients(),
		fair:  fair.New(fair.Config{Least: cfg.Most, Hold: HandshakeFor, Classes: 1, TakeOver: true}),
		conns: make(map[uint64]*Handshake), pauses: make(map[any]time.Time),
	}
}

// Handshake is a connection's way from its acceptance until it is released. It is the
// address of the connection's other end, too: that is how the handlers of its streams
// find it (see HandshakeOf).
type Handshake struct {
	net.Addr
	calls, refused atomic.Int64           // see ServerOptions
	client         atomic.Pointer[client] // see peer; nil before the first call

	of       *Handshakes
	id       uint64
	key      string
	listener *listener
	conn     net.Conn
	first    [1]byte
}

// HandshakeOf is that of a call's connection, nil if it did not come through a listener
// of Handshakes.
func HandshakeOf(ctx context.Context) *Handshake {
	p, _ := peer.FromContext(ctx)
	if p == nil {
		return nil
	}
	s, _ := p.Addr.(*Handshake)
	return s
}

// Release says that the connection has been set up, or is closed: another one may be
// begun. It may be called on nil, and more than once.
func (s *Handshake) Release() {
	if s == nil {
		return
	}
	h := s.of
	h.mu.Lock()
	defer h.mu.Unlock()
	h.paceLocked(time.Now())
	h.fair.Release(time.Now(), s.id)
	delete(h.conns, s.id)
	h.settleLocked()
}

// Pause makes Handshakes begin hardly any until Resume is called with the same key, or
// for PauseFor.
func (h *Handshakes) Pause(now time.Time, key any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pauses[key] = now.Add(PauseFor)
	h.limitLocked(now)
}

// Resume ends a Pause.
func (h *Handshakes) Resume(now time.Time, key any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.pauses, key)
	h.limitLocked(now)
}

// Paused reports whether a change is on its way.
func (h *Handshakes) Paused() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.pausedUntilLocked(time.Now()).IsZero()
}

// UnderWay is how many handshakes are.
func (h *Handshakes) UnderWay() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.fair.Holding()
}

// pausedUntilLocked is when the first of the changes on their way counts no more, zero
// if none does.
func (h *Handshakes) pausedUntilLocked(now time.Time) (until time.Time) {
	for key, at := range h.pauses {
		if !at.After(now) {
			delete(h.pauses, key)
		} else if until.IsZero() || at.Before(until) {
			until = at
		}
	}
	return until
}

func (h *Handshakes) limitLocked(now time.Time) {
	if h.pausedUntilLocked(now).IsZero() && !h.busy() {
		h.fair.Limit(now, h.cfg.Most)
	} else {
		h.fair.Limit(now, h.cfg.Few)
	}
	h.settleLocked()
}

func (h *Handshakes) busy() bool { return h.cfg.Busy != nil && h.cfg.Busy() }

// paceLocked is limitLocked if nothing else says when to look.
func (h *Handshakes) paceLocked(now time.Time) {
	if h.cfg.Busy != nil {
		h.limitLocked(now)
	}
}

// settleLocked hands out the connections whose handshake may begin, and is called again
// when the next place is released by itself.
func (h *Handshakes) settleLocked() {
	for ids := h.fair.Granted(); len(ids) > 0; ids = h.fair.Granted() {
		for _, id := range ids {
			s := h.conns[id]
			delete(h.conns, id)
			// A client that has given up would only cost time, while others give up.
			if alive(s.conn) {
				s.listener.deliver(s)
				continue
			}
			h.fair.Release(time.Now(), id)
			s.listener.forget(s)
			s.conn.Close()
		}
	}
	if h.cfg.UnderWay != nil {
		h.cfg.UnderWay(h.fair.Holding())
	}
	now := time.Now()
	next := h.fair.Next()
	if until := h.pausedUntilLocked(now); !until.IsZero() && (next.IsZero() || until.Before(next)) {
		next = until
	}
	if soon := now.Add(busyFor); h.cfg.Busy != nil && h.fair.Waiting() > 0 && (next.IsZero() || soon.Before(next)) {
		next = soon
	}
	switch {
	case next.IsZero() && h.timer != nil:
		h.timer.Stop()
	case next.IsZero():
	case h.timer == nil:
		h.timer = time.AfterFunc(next.Sub(now), h.late)
	default:
		h.timer.Reset(next.Sub(now))
	}
}

// late is called when something has taken for long enough.
func (h *Handshakes) late() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.limitLocked(time.Now())
}

// begin hands a connection out that has sent something, at once or when it is its turn.
func (h *Handshakes) begin(s *Handshake) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.paceLocked(time.Now())
	if h.fair.Acquire(time.Now(), s.id, s.key, 0, 1) {
		s.listener.deliver(s)
	} else {
		h.conns[s.id] = s
		if len(h.conns) > maxWaiting {
			h.dropLongestLocked()
		}
	}
	h.settleLocked()
}

// dropLongestLocked drops the newest of the client of which the most wait.
func (h *Handshakes) dropLongestLocked() {
	id, ok := h.fair.Longest()
	if !ok {
		return
	}
	s := h.conns[id]
	h.fair.Release(time.Now(), id)
	delete(h.conns, id)
	s.listener.forget(s)
	h.drop(s.conn, DroppedMany)
}

func (h *Handshakes) drop(c net.Conn, why string) {
	c.Close()
	if h.cfg.Dropped != nil {
		h.cfg.Dropped(why)
	}
}

func (h *Handshakes) number() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last++
	return h.last
}
