package subscriber

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/slicer-project/slicer/assignment/subscriber/protocol"
	"github.com/slicer-project/slicer/assignment/trace"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// loop carries out what the core decides. A link's goroutine, or a caller's, tells the core
// under mu what has happened; a goroutine of the loop's own (run) tells it the time.
type loop struct {
	s      *Subscriber
	wake   chan struct{} // holds a token when run is to look again
	cache  *cacheWriter  // nil without a cache file
	ctx    context.Context
	cancel context.CancelFunc // of the links
	wg     sync.WaitGroup     // links

	mu     sync.Mutex
	core   *protocol.Core
	links  map[protocol.Link]*link
	cached cacheEntry // offered last
	due    time.Time  // when run will tell the core the time; zero: never
	closed bool       // the core is told nothing more
}

func newLoop(s *Subscriber, c *protocol.Core) *loop {
	l := &loop{s: s, core: c, links: make(map[protocol.Link]*link), wake: make(chan struct{}, 1)}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	if s.cfg.CacheFile != "" {
		l.cache = startCacheWriter(s.cfg.CacheFile, s.log)
		l.cached = l.entry(c.State())
	}
	return l
}

// start publishes what is there from the beginning, and begins.
func (l *loop) start() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.publishLocked()
	l.stepLocked(func(now time.Time) { l.core.Start(now) })
	go l.run()
}

// run tells the core the time when something is due, until the subscriber closes.
func (l *loop) run() {
	defer close(l.s.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var due <-chan time.Time
		if at := l.nextDue(); !at.IsZero() {
			timer.Reset(time.Until(at))
			due = timer.C
		}
		select {
		case <-l.wake:
		case <-due:
			l.step(func(now time.Time) { l.core.Tick(now) })
		case <-l.s.closing:
			l.shutdown()
			return
		}
	}
}

func (l *loop) nextDue() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.due = l.core.Wake()
	return l.due
}

// step tells the core something, and carries out what it decides.
func (l *loop) step(tell func(now time.Time)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stepLocked(tell)
}

func (l *loop) stepLocked(tell func(now time.Time)) {
	if l.closed {
		return
	}
	tell(time.Now())
	l.carryOutLocked(l.core.Actions())
	// What is due later than run waits for, it will see then.
	if at := l.core.Wake(); !at.IsZero() && (l.due.IsZero() || at.Before(l.due)) {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

// report takes a slicelet's newest report.
func (l *loop) report(r *slicerv1.Report) {
	l.step(func(now time.Time) { l.core.Report(now, r) })
}

// handle takes what a link says.
func (l *loop) handle(e event) {
	l.step(func(now time.Time) {
		k := l.links[e.id]
		switch {
		case k == nil: // it was cut
		case e.ended:
			k.setUp.End(e.err)
			l.core.Ended(now, e.id, e.err)
		case e.linked:
			k.linked = true
			k.setUp.End(nil)
			l.core.Linked(now, e.id)
		default:
			a, err := k.asm.Take(e.got, l.core.Base(e.id))
			l.core.Received(now, e.id, e.got, a, err)
		}
	})
}

func (l *loop) carryOutLocked(actions []protocol.Action) {
	for _, a := range actions {
		switch a.Do {
		case protocol.Dial:
			l.dialLocked(a)
		case protocol.Send:
			if k := l.links[a.Link]; k != nil {
				k.out.put(outgoing{a.Message, a.Made})
			}
		case protocol.Cut:
			if k := l.links[a.Link]; k != nil {
				k.cancel()
				k.setUp.End(context.Canceled)
				delete(l.links, a.Link)
			}
		case protocol.Publish:
			l.publishLocked()
		case protocol.Note:
			args := []any{}
			if a.Err != nil {
				args = append(args, "error", a.Err)
			}
			l.s.log.Log(context.Background(), a.Level, a.Text, args...)
		}
	}
}

func (l *loop) dialLocked(a protocol.Action) {
	ctx, cancel := context.WithCancel(l.ctx)
	k := newLink(a.Link, cancel, l.s.cfg.Parts)
	ctx, k.setUp = trace.Start(ctx, l.s.cfg.Tracer, "slicer.connect", slog.String("job", l.s.cfg.Job), slog.String("server", a.Addr))
	if via := l.links[a.Via]; via != nil {
		k.conn = via.conn.join()
	}
	l.links[a.Link] = k
	l.s.log.Debug("connecting", "server", a.Addr)
	l.wg.Go(func() {
		defer cancel()
		k.run(ctx, a.Addr, l.s.opts, l.handle)
	})
}

// publishLocked makes the core's state visible to callers.
func (l *loop) publishLocked() {
	s := l.s
	state, count := l.core.State(), l.core.Counters()
	before := s.state.Load()
	changed := before == nil || before.Assignment != state.Assignment
	s.state.Store(&state)
	s.count.Store(&count)
	if changed && before != nil {
		s.log.Info("assignment", "generation", state.Assignment.Generation(), "source", state.Source,
			"slices", state.Assignment.NumSlices(), "tasks", state.Assignment.NumTasks())
	}
	if s.cfg.Observe != nil {
		s.cfg.Observe(state)
	}
	s.mu.Lock()
	close(s.stateChanged)
	s.stateChanged = make(chan struct{})
	if changed {
		close(s.changed)
		s.changed = make(chan struct{})
	}
	s.mu.Unlock()
	l.keepLocked(state)
}

// entry is what the cache file is to hold.
func (l *loop) entry(s State) cacheEntry {
	return cacheEntry{s.Assignment, s.Status.Mode, s.ClientIndex, clientHash(l.s.cfg.ClientID)}
}

// keepLocked writes the cache file if there is something new.
func (l *loop) keepLocked(s State) {
	if e := l.entry(s); l.cache != nil && e.assignment != nil && e != l.cached {
		l.cached = e
		l.cache.offer(e)
	}
}

// shutdown ends all links, the good ones with a goodbye, and waits for
// everything that was started.
func (l *loop) shutdown() {
	l.mu.Lock()
	l.closed = true
	for _, k := range l.links {
		if k.linked {
			k.out.goodbye()
		} else {
			k.cancel()
			k.setUp.End(context.Canceled)
		}
	}
	l.mu.Unlock()
	deadline := time.AfterFunc(goodbyeTimeout, l.cancel)
	l.wg.Wait()
	deadline.Stop()
	l.cancel()
	if l.cache != nil {
		l.cache.close()
	}
	l.s.log.Log(context.Background(), slog.LevelDebug, "closed")
}
