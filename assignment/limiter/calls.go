package limiter

import (
	"context"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

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

// enter counts a call in, and reports how many there are with it, and whether the client was refused
// too often of late.
func (c *clients) enter(now time.Time, key string) (calls int, refused bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[key]++
	if refused = !c.refused.Allow(now, key); !refused {
		c.refused.GiveBack(key)
	}
	return c.calls[key], refused
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

// ServerOptions limit the calls of each connection that came through a listener of
// Handshakes to MaxCalls at a time, and those of one client, whatever its connections, to
// MaxClientCalls or what HandshakesConfig.MaxClientCalls says; unless Carrier allows it
// MaxCarried on each connection. More are refused with RESOURCE_EXHAUSTED, and after
// as many refusals (see Refuse) as MaxCalls the connection is closed. A client that is refused
// more than 100 times a second, and 1,000 times at once, is refused all calls until it has been refused
// less, and its connections are closed after 100. A call also releases its connection's
// Handshake, except one of the method held: its handler does that when the caller has
// been served. The calls of the services unlimited are not counted.
func ServerOptions(held string, unlimited ...string) []grpc.ServerOption {
	enter := func(ctx context.Context, method string) (leave func(), err error) {
		h := HandshakeOf(ctx)
		if h == nil {
			return func() {}, nil
		}
		if method != held {
			h.Release()
		}
		for _, service := range unlimited {
			if strings.HasPrefix(method, "/"+service+"/") {
				return func() {}, nil
			}
		}
		key := KeyOfContext(ctx)
		calls, refused := h.of.clients.enter(time.Now(), key)
		leave = func() {
			h.calls.Add(-1)
			h.of.clients.leave(key)
		}
		n := h.calls.Add(1)
		if n <= MaxCalls && calls <= MaxCalls && !refused || h.carries(ctx) {
			return leave, nil
		}
		switch most := h.most(ctx); {
		case n > MaxCalls:
			err = status.Errorf(codes.ResourceExhausted, "%d calls and streams on one connection, no more are answered at a time: open another connection", MaxCalls)
		case calls > MaxCalls && calls > most:
			err = status.Errorf(codes.ResourceExhausted, "%s has %d calls and streams here, no more are answered at a time", key, most)
		case refused:
			err = status.Errorf(codes.ResourceExhausted, "%s asks too often for more than it may have: %d refusals a second are allowed, and %d at once", key, time.Second/refusalEvery, refusalBurst)
		default:
			return leave, nil
		}
		leave()
		Refuse(ctx)
		return nil, err
	}
	return []grpc.ServerOption{
		grpc.MaxConcurrentStreams(MaxCarried + 100),
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			leave, err := enter(ctx, info.FullMethod)
			if err != nil {
				return nil, err
			}
			defer leave()
			return handler(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
			leave, err := enter(stream.Context(), info.FullMethod)
			if err != nil {
				return err
			}
			defer leave()
			return handler(srv, stream)
		}),
	}
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
	count := int64(1)
	if !s.of.clients.refuse(time.Now(), KeyOfContext(ctx)) {
		count = tooOften
	}
	if n := s.refused.Add(count); n >= MaxCalls && n-count < MaxCalls {
		s.of.drop(s.conn, DroppedStreams)
	}
}
