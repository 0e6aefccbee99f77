package clerkgrpc

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/internal/flight"
	"github.com/slicer-project/slicer/loadbalance/overload"
)

type routeOfContext struct{}

// route is what an RPC is routed by, and where it went. The interceptor makes it,
// the picker reads it.
type route struct {
	key   string
	hash  assignment.SliceKey
	keyed bool
	// stream: it says its generation itself. sent is the one that goes with it, nil if none does yet;
	// the picker knows whether it is the one. Of others the picker has one say it for those after it
	// on its connection.
	stream bool
	sent   *generation
	// last is where the newest attempt went, nil if none went anywhere.
	last atomic.Pointer[conn]
	// full are those that had no room before, but for the newest.
	full [assignment.MaxRetryAttempts - 2]*conn
	// job is whose task the first attempt went to, nil before.
	job atomic.Pointer[job]
	// flight is told where attempts go, if the RPC may be carried out twice.
	flight *flight.Flight
	labels overload.Labels
	// drawn says that the cohort was drawn here, and does not go with it yet.
	drawn bool
}

// tried is where an RPC has been sent before, as far as it is better sent elsewhere now.
type tried struct {
	last *conn
	full [assignment.MaxRetryAttempts - 2]*conn
}

func (t *tried) has(c *conn) bool { return c == t.last || slices.Contains(t.full[:], c) }

// tried may be called of nil.
func (r *route) tried() tried {
	if r == nil {
		return tried{}
	}
	return tried{r.last.Load(), r.full}
}

// customer may be called of nil.
func (r *route) customer() string {
	if r == nil {
		return ""
	}
	return r.labels.Customer
}

// routed is the context of an RPC. It is the route as well, to spare an allocation.
type routed struct {
	context.Context
	route    route
	attempts int // since tasks had no room for it
}

// Value is context.Context's.
func (c *routed) Value(key any) any {
	if key == (routeOfContext{}) {
		return &c.route
	}
	return c.Context.Value(key)
}

// start finds the key of an RPC, for its context c.
func (s *source) start(ctx context.Context, c *routed, method string, request any) error {
	if s.err != nil {
		return s.err
	}
	c.Context = ctx
	r := &c.route
	r.stream = request == nil
	r.key, r.keyed = s.find(ctx, method, request)
	if !r.keyed && s.fields != nil {
		r.key, r.keyed = s.fields.Find(method, request)
	}
	if !r.keyed && s.cfg.Keyless == RefuseKeyless {
		return status.Error(codes.InvalidArgument, s.missing(method))
	}
	if r.keyed {
		if err := assignment.CheckKey(r.key); err != nil {
			return status.Errorf(codes.InvalidArgument, "clerkgrpc: %v", err)
		}
		r.hash = assignment.KeyOf(r.key)
	}
	if n := clerk.AttemptOf(ctx); n > 0 {
		ctx = withAttempt(ctx, n)
		c.Context = ctx
	}
	r.labels = s.labels(ctx)
	add := appendLabels(make([]string, 0, 10), r.labels)
	if name := s.cfg.SendKey; r.keyed && name != "" {
		// In KeyHeader a percent sign begins what slicerproxy has encoded.
		if !printable(r.key) || name == KeyHeader && strings.Contains(r.key, "%") {
			name += binSuffix
		}
		// Metadata of the picker's would be dearer: gRPC copies all of it then.
		add = append(add, name, r.key)
	}
	if r.keyed && r.stream {
		if r.sent = s.generation.Load(); r.sent != nil {
			add = append(add, GenerationHeader, r.sent.text)
		}
	}
	if len(add) > 0 {
		c.Context = metadata.AppendToOutgoingContext(ctx, add...)
	}
	return nil
}

// generation is one as it travels.
type generation struct {
	text string
	// metadata is the same for RPCs that it does not go with yet. It is dearer: gRPC copies all
	// metadata of an RPC to which the picker adds some.
	metadata metadata.MD
}

func newGeneration(g assignment.Generation) *generation {
	text := strconv.FormatInt(int64(g), 10)
	return &generation{text: text, metadata: metadata.Pairs(GenerationHeader, text)}
}

func (s *source) find(ctx context.Context, method string, request any) (key string, ok bool) {
	if key, ok = clerk.KeyOf(ctx); ok {
		return key, true
	}
	if s.cfg.Header != "" {
		if v := metadata.ValueFromOutgoingContext(ctx, s.cfg.Header); len(v) > 0 {
			return v[0], true
		}
	}
	if s.cfg.Key != nil {
		return s.cfg.Key(method, request)
	}
	return "", false
}

func (s *source) missing(method string) string {
	tried := []string{"clerk.WithKey"}
	if s.cfg.Header != "" {
		tried = append(tried, fmt.Sprintf("the metadata %q", s.cfg.Header))
	}
	if s.cfg.Key != nil {
		tried = append(tried, "Config.Key")
	}
	if s.fields != nil {
		tried = append(tried, fmt.Sprintf("the fields %s", s.fields))
	}
	return fmt.Sprintf("clerkgrpc: %s has no key: %s gives none", method, strings.Join(tried, " or "))
}

// printable reports whether a key can travel as it is.
func printable(key string) bool {
	for i := range len(key) {
		if c := key[i]; c < ' ' || c > '~' {
			return false
		}
	}
	return key == "" || key[0] != ' ' && key[len(key)-1] != ' '
}
