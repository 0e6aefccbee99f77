package limiter

import (
	"context"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/slicer-project/slicer/assignment/limiter/fair"
)

const (
	// MaxCalls is how many calls are answered at a time on one connection, streams included:
	// each costs three goroutines and some 20 KiB.
	MaxCalls = 1000
	// MaxCarried is how many gRPC lets any connection have: that of a carrier, see
	// HandshakesConfig, has the streams of many.
	MaxCarried = 10 * MaxCalls
	// MaxClientCalls is how many are answered at a time on all connections of one client,
	// unless HandshakesConfig.MaxClientCalls says otherwise.
	MaxClientCalls = 20 * MaxCalls
	// refusalEvery is how often a client may be refused something, and refusalBurst how often
	// at once, before its calls are refused without a look at what they ask for, and without a
	// lock that others wait for.
	refusalEvery, refusalBurst = 10 * time.Millisecond, MaxCalls
	// tooOften is how many refusals one counts for then, toward the end of its connection.
	tooOften = 10
)

// clients counts the calls of each client over all of its connections, and how often it was
// refused something. A client is that of KeyOfContext.
type clients struct {
	mu      sync.Mutex
	calls   map[string]int
	refused *fair.Rate
}

func newClients() *clients {
	return &clients{calls: make(map[string]int), refused: fair.NewRate(refusalEvery, refusalBurst)}
}

// suspect reports whether a client has used up half of the refusals that it may have. From then
// on it uses up one for each call: many calls come before the first of them is refused, and each
// is there with its goroutines until then.
func (c *clients) suspect(now time.Time, key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refused.Used(now, key) >= refusalBurst/2
}

// enter counts a call in, and reports how many there are with it.
func (c *clients) enter(key string) (calls int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[key]++
	return c.calls[key]
}

func (c *clients) leave(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls[key]--; c.calls[key] == 0 {
		delete(c.calls, key)
	}
}

// refuse counts a refusal, and reports whether that is not too often.
func (c *clients) refuse(now time.Time, key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refused.Allow(now, key)
}

// calls is what ServerOptions are made of.
type calls struct {
	held      string
	unlimited []string
}

// ServerOptions limit the calls of each connection that came through a listener of
// Handshakes to MaxCalls at a time, and those of one client, whatever its connections, to
// MaxClientCalls or what HandshakesConfig.MaxClientCalls says; unless Carrier allows it
// MaxCarried on each connection. More are refused with RESOURCE_EXHAUSTED, and after
// as many refusals (see Refuse) as MaxCalls the connection is closed. A client that is refused
// more than 100 times a second, and 1,000 times at once, is refused all calls until it has been refused
// less, and its connections are closed after 100; from half of that on each of its calls counts as a
// refusal. A call also releases its connection's Handshake, except one of the method held: its
// handler does that when the caller has been served. The calls of the services unlimited are not counted. The server's tap handle is
// among the options: it can have no other.
func ServerOptions(held string, unlimited ...string) []grpc.ServerOption {
	c := &calls{held, unlimited}
	return []grpc.ServerOption{
		grpc.MaxConcurrentStreams(MaxCarried + 100),
		grpc.InTapHandle(c.tap),
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			leave, err := c.enter(ctx, info.FullMethod)
			if err != nil {
				return nil, err
			}
			defer leave()
			return handler(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
			leave, err := c.enter(stream.Context(), info.FullMethod)
			if err != nil {
				return err
			}
			defer leave()
			return handler(srv, stream)
		}),
	}
}

// limited is the Handshake of a call's connection if its calls are counted, else nil.
func (c *calls) limited(ctx context.Context, method string) *Handshake {
	for _, service := range c.unlimited {
		if strings.HasPrefix(method, "/"+service+"/") {
			return nil
		}
	}
	return HandshakeOf(ctx)
}

// tapped is the context of a call that has used up a refusal when it came, or that enter is to
// refuse with err.
type tapped struct {
	context.Context
	err error
}

type tappedKey struct{}

func (t *tapped) Value(key any) any {
	if key == (tappedKey{}) {
		return t
	}
	return t.Context.Value(key)
}

func tappedOf(ctx context.Context) *tapped {
	t, _ := ctx.Value(tappedKey{}).(*tapped)
	return t
}

// tap refuses the calls of a client that was refused too often, and those of a connection that has
// MaxCalls: before there is a goroutine, before their message is read, and no faster than the
// client takes the answers. It runs in the goroutine that reads from the connection, so that little
// more is read of one that is closed for its refusals.
func (c *calls) tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	h := c.limited(ctx, info.FullMethodName)
	if h == nil {
		return ctx, nil
	}
	now, key, many := time.Now(), KeyOfContext(ctx), h.calls.Load() >= MaxCalls
	if !many && !h.of.clients.suspect(now, key) || h.carries(ctx) {
		return ctx, nil
	}
	var err error
	switch {
	case many:
		err = errManyCalls
		Refuse(ctx)
	case h.of.clients.refuse(now, key):
		return &tapped{ctx, nil}, nil
	default:
		err = h.peer(ctx).refusal
		h.refuse(tooOften)
	}
	if _, ends := ctx.Deadline(); ends {
		// gRPC would hold on to the context until then.
		return &tapped{ctx, err}, nil
	}
	if info.FullMethodName != c.held {
		h.Release()
	}
	return ctx, err
}

var errManyCalls = status.Errorf(codes.ResourceExhausted, "%d calls and streams on one connection, no more are answered at a time: open another connection", MaxCalls)

// enter counts a call in, which is to leave, or returns why it is refused.
func (c *calls) enter(ctx context.Context, method string) (leave func(), err error) {
	if method != c.held {
		HandshakeOf(ctx).Release()
	}
	if t := tappedOf(ctx); t != nil && t.err != nil {
		return nil, t.err
	}
	h := c.limited(ctx, method)
	if h == nil {
		return func() {}, nil
	}
	key := KeyOfContext(ctx)
	n, calls := h.calls.Add(1), h.of.clients.enter(key)
	leave = func() {
		h.calls.Add(-1)
		h.of.clients.leave(key)
	}
	if n <= MaxCalls && calls <= MaxCalls || h.carries(ctx) {
		return leave, nil
	}
	if n > MaxCalls {
		err = errManyCalls
	} else if most := h.most(ctx); calls > most {
		err = status.Errorf(codes.ResourceExhausted, "%s has %d calls and streams here, no more are answered at a time", key, most)
	} else {
		return leave, nil
	}
	leave()
	Refuse(ctx)
	return nil, err
}

// carries reports whether the connection's calls are those of many.
func (s *Handshake) carries(ctx context.Context) bool {
	return s.of.cfg.Carrier != nil && s.of.cfg.Carrier(ctx)
}

// most is how many calls the client of one may have.
func (s *Handshake) most(ctx context.Context) int {
	if s.of.cfg.MaxClientCalls == nil {
		return MaxClientCalls
	}
	return s.of.cfg.MaxClientCalls(ctx)
}

// Refuse counts a call that was refused since its client makes, or has, too many. A connection
// on which that goes on is closed: refusing costs time, too. Those that carry the calls of
// many are not, nor those that did not come through a listener of Handshakes.
func Refuse(ctx context.Context) {
	s := HandshakeOf(ctx)
	if s == nil || s.carries(ctx) {
		return
	}
	if tappedOf(ctx) != nil || s.of.clients.refuse(time.Now(), KeyOfContext(ctx)) {
		s.refuse(1)
	} else {
		s.refuse(tooOften)
	}
}

// refuse counts toward the end of the connection.
func (s *Handshake) refuse(count int64) {
	if n := s.refused.Add(count); n >= MaxCalls && n-count < MaxCalls {
		s.of.drop(s.conn, DroppedStreams)
	}
}
