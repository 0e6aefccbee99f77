package ratelimit

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/test/examples/ratelimit/quota"
	"github.com/slicer-project/slicer/test/examples/ratelimit/wire"
)

const (
	parts = 64 // of a table, each with a lock of its own
	// DefaultMaxLimits is how many limits a server keeps, unless ServerConfig says otherwise.
	DefaultMaxLimits = 1 << 20
	// maxShares is how many frontends may share a limit.
	maxShares = 10000
	// strayAfter is how long a limit may be here that belongs to another task, as one that
	// has come before the assignment.
	strayAfter = 10 * time.Second
	// moveTries and movePause are how often limits are offered to their next owner, and how
	// long the server waits in between.
	moveTries = 5
	movePause = 100 * time.Millisecond
	callLimit = time.Second // of one call
)

// ServerConfig is what a Server needs.
type ServerConfig struct {
	// Slicelet says which limits are the server's. It is the caller's, which closes it first.
	Slicelet *slicelet.Slicelet
	// DialOptions are for connections to other servers, to which limits move.
	DialOptions []grpc.DialOption
	// MaxLimits is how many limits the server keeps, 1 to 1e8; 0 stands for DefaultMaxLimits.
	// Reports of more are refused, and frontends go on without an owner.
	MaxLimits int
	// Logger may be nil: then it is slog.Default().
	Logger *slog.Logger
}

// Server is the owner of some limits. It is what wire.RegisterLimiterServer registers.
type Server struct {
	wire.UnimplementedLimiterServer
	cfg   ServerConfig
	start time.Time
	parts [parts]part
	stop  context.CancelFunc
	wg    sync.WaitGroup

	mu      sync.Mutex
	arrived []arrival // since a short while
}

// part is some of the limits.
type part struct {
	mu     sync.Mutex
	limits map[string]*limit
}

type limit struct {
	quota.Bucket
	key     assignment.SliceKey
	touched time.Duration
}

// arrival is a range that has come, from an owner that may have died.
type arrival struct {
	assignment.Slice
	until time.Duration
}

// NewServer makes a Server and listens to the slicelet. Errors name the field that is not
// allowed (*assignment.FieldError).
func NewServer(cfg ServerConfig) (*Server, error) {
	if cfg.Slicelet == nil {
		return nil, &assignment.FieldError{Field: "Slicelet", Value: nil, Allowed: "a slicelet"}
	}
	if cfg.MaxLimits == 0 {
		cfg.MaxLimits = DefaultMaxLimits
	}
	if cfg.MaxLimits < 1 || cfg.MaxLimits > 1e8 {
		return nil, &assignment.FieldError{Field: "MaxLimits", Value: cfg.MaxLimits, Allowed: "1 to 1e8"}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Server{cfg: cfg, start: time.Now(), stop: stop}
	for i := range s.parts {
		s.parts[i].limits = make(map[string]*limit)
	}
	s.wg.Go(func() { s.sweep(ctx) })
	cfg.Slicelet.Listen(s)
	return s, nil
}

// Close ends the server's own work. Close the slicelet first, which calls it, and stop the
// gRPC server.
func (s *Server) Close() {
	s.stop()
	s.wg.Wait()
}

func (s *Server) now() time.Duration { return time.Since(s.start) }

func (s *Server) part(k assignment.SliceKey) *part { return &s.parts[uint64(k)%parts] }

// Limits is how many limits are here.
func (s *Server) Limits() (n int) {
	for i := range s.parts {
		p := &s.parts[i]
		p.mu.Lock()
		n += len(p.limits)
		p.mu.Unlock()
	}
	return n
}

// Report implements wire.LimiterServer.
func (s *Server) Report(_ context.Context, q *wire.ReportRequest) (*wire.ReportResponse, error) {
	if len(q.Reports) > batch {
		return nil, status.Errorf(codes.InvalidArgument, "%d reports, want at most %d", len(q.Reports), batch)
	}
	a := &wire.ReportResponse{Answers: make([]*wire.Answer, len(q.Reports))}
	answers := make([]wire.Answer, len(q.Reports))
	for i, r := range q.Reports {
		report := quota.Report{Limit: quota.Limit{Rate: r.GetRate(), Burst: r.GetBurst()}, Demand: r.GetDemand(),
			Rate: r.GetLent(), Tokens: r.GetTokens(), Total: r.GetTotal(), Fresh: r.GetFresh()}
		if err := assignment.CheckKey(r.GetKey()); err != nil || !report.Valid() {
			return nil, status.Errorf(codes.InvalidArgument, "report %d, of %q, is not one of a share", i, assignment.Clip(r.GetKey(), 100))
		}
		a.Answers[i] = &answers[i]
		answer, ok := s.report(q.Session, r.GetKey(), report)
		if !ok {
			answers[i].Refused = true
			continue
		}
		answers[i].Rate, answers[i].Tokens, answers[i].Cap = answer.Rate, answer.Tokens, answer.Cap
		answers[i].Soon, answers[i].Shared = answer.Soon, answer.Shared
	}
	return a, nil
}

func (s *Server) report(session uint64, key string, r quota.Report) (a quota.Answer, ok bool) {
	h := s.cfg.Slicelet.Handle(key)
	p := s.part(h.Key())
	p.mu.Lock()
	defer p.mu.Unlock()
	if !h.AssignedContinuously() { // asked with the lock held: else its limits may have departed meanwhile
		return a, false
	}
	now := s.now()
	l := p.limits[key]
	if l == nil {
		if len(p.limits) >= (s.cfg.MaxLimits+parts-1)/parts {
			return a, false
		}
		l = &limit{Bucket: quota.NewBucket(now, r.Limit, s.learning(now, h.Key())), key: h.Key()}
		p.limits[key] = l
	}
	l.touched = now
	return l.Report(now, session, r), true
}

// learning is until when frontends may have parts of a limit of which nothing is known here.
func (s *Server) learning(now time.Duration, k assignment.SliceKey) (until time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.arrived {
		if a.Contains(k) {
			until = max(until, a.until)
		}
	}
	return until
}

// SlicesChanged implements slicelet.Listener: it gives what has departed to its next owner,
// and Slicelet.Drain waits for that.
func (s *Server) SlicesChanged(ctx context.Context, c slicelet.Change) {
	now := s.now()
	s.mu.Lock()
	var still []arrival
	for _, a := range s.arrived {
		if a.until > now {
			still = append(still, a)
		}
	}
	for _, r := range c.Arrived {
		still = append(still, arrival{r.Slice, now + quota.LearnFor})
	}
	s.arrived = still
	s.mu.Unlock()
	var wg sync.WaitGroup
	for address, states := range s.depart(c.Departed) {
		wg.Go(func() {
			if err := s.move(ctx, address, states); err != nil {
				s.cfg.Logger.Warn("limits are lost to their next owner, which learns them from the frontends", "limits", len(states), "task", address, "error", err)
			}
		})
	}
	wg.Wait()
}

// depart takes the limits of ranges out, by the address of their next owner.
func (s *Server) depart(ranges []slicelet.Range) map[string][]*wire.State {
	to := make(map[string][]*wire.State)
	if len(ranges) == 0 {
		return to
	}
	for i := range s.parts {
		p := &s.parts[i]
		p.mu.Lock()
		for key, l := range p.limits {
			for _, r := range ranges {
				if !r.Contains(l.key) {
					continue
				}
				if len(r.To) > 0 {
					to[r.To[0].Address] = append(to[r.To[0].Address], stateOf(key, l.State(s.now())))
				}
				delete(p.limits, key)
				break
			}
		}
		p.mu.Unlock()
	}
	return to
}

func stateOf(key string, s quota.State) *wire.State {
	w := &wire.State{Key: key, Rate: s.Limit.Rate, Burst: s.Limit.Burst, Level: s.Level, Shares: make([]*wire.Share, len(s.Shares))}
	for i, h := range s.Shares {
		w.Shares[i] = &wire.Share{Session: h.Session, Rate: h.Rate, Tokens: h.Tokens, Cap: h.Cap, Demand: h.Demand, Total: h.Total, Age: int64(h.Age)}
	}
	return w
}

// move sends limits to a server.
func (s *Server) move(ctx context.Context, address string, states []*wire.State) error {
	conn, err := grpc.NewClient("passthrough:///"+address, s.cfg.DialOptions...)
	if err != nil {
		return err
	}
	defer conn.Close()
	to := wire.NewLimiterClient(conn)
	for len(states) > 0 {
		n := min(len(states), batch/8) // of many shares each
		for try := 1; ; try++ {
			call, cancel := context.WithTimeout(ctx, callLimit)
			_, err = to.Move(call, &wire.MoveRequest{States: states[:n]})
			cancel()
			if err == nil {
				break
			}
			if try == moveTries {
				return err
			}
			select {
			case <-time.After(movePause << (try - 1)):
			case <-ctx.Done():
				return errors.Join(err, context.Cause(ctx))
			}
		}
		states = states[n:]
	}
	return nil
}

// Move implements wire.LimiterServer. A limit may come before the assignment by which it is
// the server's.
func (s *Server) Move(_ context.Context, q *wire.MoveRequest) (*wire.MoveResponse, error) {
	if len(q.States) > batch {
		return nil, status.Errorf(codes.InvalidArgument, "%d states, want at most %d", len(q.States), batch)
	}
	for i, w := range q.States {
		state := quota.State{Limit: quota.Limit{Rate: w.GetRate(), Burst: w.GetBurst()}, Level: w.GetLevel()}
		if len(w.GetShares()) <= maxShares {
			for _, h := range w.GetShares() {
				state.Shares = append(state.Shares, quota.ShareState{Session: h.GetSession(), Rate: h.GetRate(), Tokens: h.GetTokens(), Cap: h.GetCap(),
					Demand: h.GetDemand(), Total: h.GetTotal(), Age: time.Duration(h.GetAge())})
			}
		}
		if err := assignment.CheckKey(w.GetKey()); err != nil || len(w.GetShares()) > maxShares || !state.Valid() {
			return nil, status.Errorf(codes.InvalidArgument, "state %d, of %q, is not one of a limit", i, assignment.Clip(w.GetKey(), 100))
		}
		s.merge(w.GetKey(), state)
	}
	return &wire.MoveResponse{}, nil
}

func (s *Server) merge(key string, state quota.State) {
	k := assignment.KeyOf(key)
	p := s.part(k)
	p.mu.Lock()
	defer p.mu.Unlock()
	now := s.now()
	l := p.limits[key]
	if l == nil {
		if len(p.limits) >= (s.cfg.MaxLimits+parts-1)/parts {
			return
		}
		l = &limit{Bucket: quota.NewBucket(now, state.Limit, now), key: k}
		p.limits[key] = l
	}
	l.touched = now
	l.Merge(now, state)
}

// sweep forgets limits of which there is nothing to know, and those of other tasks.
func (s *Server) sweep(ctx context.Context) {
	for i := 0; ; i = (i + 1) % parts {
		select {
		case <-time.After(10 * time.Second / parts):
		case <-ctx.Done():
			return
		}
		p := &s.parts[i]
		p.mu.Lock()
		now := s.now()
		for key, l := range p.limits {
			if l.Idle(now) || now-l.touched > strayAfter && !s.cfg.Slicelet.IsAffinitized(key) {
				delete(p.limits, key)
			}
		}
		p.mu.Unlock()
	}
}
