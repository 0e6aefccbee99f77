package subscriber

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/slicer-project/slicer/assignment/subscriber/protocol"
)

// loop carries out what the core decides. One goroutine owns it, and core with it.
type loop struct {
	s      *Subscriber
	core   *protocol.Core
	links  map[protocol.Link]*link
	events chan event
	cache  *cacheWriter // nil without a cache file
	cached cacheEntry   // offered last

	ctx    context.Context // of the links
	cancel context.CancelFunc
	wg     sync.WaitGroup // links
}

func newLoop(s *Subscriber, c *protocol.Core) *loop {
	l := &loop{s: s, core: c, links: make(map[protocol.Link]*link), events: make(chan event, 16)}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	if s.cfg.CacheFile != "" {
		l.cache = startCacheWriter(s.cfg.CacheFile, s.log)
		l.cached = l.entry(c.State())
	}
	return l
}

func (l *loop) run() {
	defer close(l.s.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	l.core.Start(time.Now())
	for {
		l.carryOut(l.core.Actions())
		var due <-chan time.Time
		if w := l.core.Wake(); !w.IsZero() {
			timer.Reset(time.Until(w))
			due = timer.C
		}
		select {
		case e := <-l.events:
			l.handle(e)
		case r := <-l.s.report:
			l.core.Report(r.made, r.Report)
		case <-due:
			l.core.Tick(time.Now())
		case <-l.s.closing:
			l.shutdown()
			return
		}
	}
}

func (l *loop) handle(e event) {
	now, k := time.Now(), l.links[e.id]
	switch {
	case k == nil: // it was cut
	case e.ended:
		l.core.Ended(now, e.id, e.err)
	case e.linked:
		k.linked = true
		l.core.Linked(now, e.id)
	default:
		a, err := k.asm.Take(e.got, l.core.Base(e.id))
		l.core.Received(now, e.id, e.got, a, err)
	}
}

func (l *loop) carryOut(actions []protocol.Action) {
	for _, a := range actions {
		switch a.Do {
		case protocol.Dial:
			l.dial(a)
		case protocol.Send:
			if k := l.links[a.Link]; k != nil {
				k.out.put(outgoing{a.Message, a.Made})
			}
		case protocol.Cut:
			if k := l.links[a.Link]; k != nil {
				k.cancel()
				delete(l.links, a.Link)
			}
		case protocol.Publish:
			l.publish()
		case protocol.Note:
			args := []any{}
			if a.Err != nil {
				args = append(args, "error", a.Err)
			}
			l.s.log.Log(context.Background(), a.Level, a.Text, args...)
		}
	}
}

func (l *loop) dial(a protocol.Action) {
	ctx, cancel := context.WithCancel(l.ctx)
	k := newLink(a.Link, cancel)
	if via := l.links[a.Via]; via != nil {
		k.conn = via.conn.join()
	}
	l.links[a.Link] = k
	l.s.log.Debug("connecting", "server", a.Addr)
	l.wg.Go(func() {
		defer cancel()
		k.run(ctx, a.Addr, l.s.opts, l.events)
	})
}

// publish makes the core's state visible to callers.
func (l *loop) publish() {
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
	l.keep(state)
}

// entry is what the cache file is to hold.
func (l *loop) entry(s State) cacheEntry {
	return cacheEntry{s.Assignment, s.Status.Mode, s.ClientIndex, clientHash(l.s.cfg.ClientID)}
}

// keep writes the cache file if there is something new.
func (l *loop) keep(s State) {
	if e := l.entry(s); l.cache != nil && e.assignment != nil && e != l.cached {
		l.cached = e
		l.cache.offer(e)
	}
}

// shutdown ends all links, the good ones with a goodbye, and waits for
// everything that was started.
func (l *loop) shutdown() {
	deadline := time.NewTimer(goodbyeTimeout)
	defer deadline.Stop()
	for id, k := range l.links {
		if k.linked {
			k.out.goodbye()
		} else {
			k.cancel()
			delete(l.links, id)
		}
	}
	for len(l.links) > 0 {
		select {
		case e := <-l.events:
			if e.ended {
				delete(l.links, e.id)
			}
			continue
		case <-deadline.C:
		}
		break
	}
	l.cancel()
	l.wg.Wait()
	if l.cache != nil {
		l.cache.close()
	}
	l.s.log.Log(context.Background(), slog.LevelDebug, "closed")
}
