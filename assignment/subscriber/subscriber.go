package subscriber

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/subscriber/protocol"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// goodbyeTimeout is how long Close waits for a server to end the stream. The
// server sees our end of it at once; this is for the message to get out.
const goodbyeTimeout = time.Second

// Subscriber holds the newest assignment of a job. All methods are safe for
// concurrent use.
type Subscriber struct {
	cfg  Config
	log  *slog.Logger
	opts []grpc.DialOption

	state atomic.Pointer[State]
	count atomic.Pointer[Counters]

	mu           sync.Mutex
	changed      chan struct{} // closed and replaced when the assignment changes
	stateChanged chan struct{} // the same for any change of state

	loop    *loop // nil if the assignment is static
	closing chan struct{}
	close   sync.Once
	done    chan struct{} // the loop has ended
}

// New validates the config, reads the cache file, and starts. It does not wait
// for a server. A cache file that cannot be used is logged and ignored.
func New(cfg Config) (*Subscriber, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	log := cfg.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &Subscriber{
		cfg: cfg, log: log.With("job", cfg.Job, "client", cfg.ClientID),
		opts:    dialOptions(cfg.DialOptions),
		changed: make(chan struct{}), stateChanged: make(chan struct{}),
		closing: make(chan struct{}), done: make(chan struct{}),
	}
	if cfg.Static != nil {
		s.startStatic()
		return s, nil
	}
	var cached *cacheEntry
	if cfg.CacheFile != "" {
		var err error
		if cached, err = readCache(cfg.CacheFile, cfg.Job); err != nil {
			s.log.Warn("cache file ignored", "path", cfg.CacheFile, "error", err)
		}
		if cached != nil && !cfg.reads(cached.assignment) {
			s.log.Info("cache file ignored: it has the part for a task", "path", cfg.CacheFile, "task", cached.assignment.Part())
			cached = nil
		}
	}
	s.loop = newLoop(s, newCore(&s.cfg, cached))
	s.loop.start()
	return s, nil
}

// startStatic publishes the only assignment that there will be.
func (s *Subscriber) startStatic() {
	index := -1
	if i := s.cfg.ClientIndex; i != nil {
		index = int(*i)
	}
	state := protocol.Static(s.cfg.Static, index)
	s.state.Store(&state)
	s.count.Store(new(Counters))
	if s.cfg.Observe != nil {
		s.cfg.Observe(state)
	}
}

// reads reports whether an assignment is whole, or the part that will do.
func (c *Config) reads(a *assignment.Assignment) bool {
	return a.Part() == "" || c.Parts && a.Part() == c.Task.Name
}

// newCore begins with what the cache file had, nil for nothing.
func newCore(cfg *Config, cached *cacheEntry) *protocol.Core {
	client := clientHash(cfg.ClientID)
	p := protocol.Config{
		Job: cfg.Job, Role: cfg.Role, ClientID: cfg.ClientID, Zone: cfg.Zone, Task: cfg.Task, First: cfg.First,
		ClientIndex: cfg.ClientIndex, Parts: cfg.Parts,
		// Subscribers that share a name, against the rules, must not wait in step.
		Seed: rand.Uint64(),
	}
	var near, nearBackups []string
	p.Distributors, near = addresses(cfg.Distributors, cfg.Zone)
	p.Backups, nearBackups = addresses(cfg.Backups, cfg.Zone)
	p.Near = append(near, nearBackups...)
	if cached == nil {
		return protocol.New(p, nil, 0, -1)
	}
	index := -1
	if cached.client == client {
		index = cached.index
	}
	return protocol.New(p, cached.assignment, cached.mode, index)
}

// State is what is known now. It takes no lock and does not allocate.
func (s *Subscriber) State() *State { return s.state.Load() }

// Counters counts what happened since the start.
func (s *Subscriber) Counters() Counters { return *s.count.Load() }

// Changed returns a channel that is closed at the next change of the
// assignment. Call it again for the one after.
func (s *Subscriber) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// StateChanged is Changed for any change of state.
func (s *Subscriber) StateChanged() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stateChanged
}

// Ready waits for an assignment, be it from the cache file. Its error matches
// ctx's, or ErrClosed, and what State.Err is.
func (s *Subscriber) Ready(ctx context.Context) error {
	return s.Await(ctx, "an assignment", func(st *State) bool { return st.Assignment != nil })
}

// Await waits until the state is as wanted; what says in words what that is.
// Its error matches ctx's, or ErrClosed, and what State.Err is.
func (s *Subscriber) Await(ctx context.Context, what string, wanted func(*State) bool) error {
	for {
		changed := s.StateChanged()
		if wanted(s.State()) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return s.why(what, context.Cause(ctx))
		case <-s.done:
			return s.why(what, ErrClosed)
		}
	}
}

func (s *Subscriber) why(what string, err error) error {
	if reason := s.State().Err; reason != nil {
		return fmt.Errorf("job %q: waiting for %s: %w: %w", s.cfg.Job, what, err, reason)
	}
	return fmt.Errorf("job %q: waiting for %s: %w", s.cfg.Job, what, err)
}

// Report hands over a slicelet's newest report, made just now. It is sent to the
// Distributor if there is one, and with the hello to the next. It does not wait for the
// network: the newest takes the place of one that was not sent yet. The report must not
// be changed afterwards; AgeMs is filled in when it is sent.
func (s *Subscriber) Report(r *slicerv1.Report) {
	if s.loop != nil {
		s.loop.report(r)
	}
}

// Close says goodbye to the server and waits, at most about a second, until all
// has ended. The last state stays.
func (s *Subscriber) Close() error {
	s.close.Do(func() {
		close(s.closing)
		if s.loop == nil {
			close(s.done)
		}
	})
	<-s.done
	return nil
}
