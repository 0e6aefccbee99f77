package subscriber

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// loop carries out what core decides. One goroutine owns it, and core with it.
type loop struct {
	s      *Subscriber
	core   *core
	links  map[linkID]*link
	events chan event
	cache  *cacheWriter // nil without a cache file
	cached cacheEntry   // offered last

	ctx    context.Context // of the links
	cancel context.CancelFunc
	wg     sync.WaitGroup // links
}

func newLoop(s *Subscriber, c *core) *loop {
	l := &loop{s: s, core: c, links: make(map[linkID]*link), events: make(chan event, 16)}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	if s.cfg.CacheFile != "" {
		l.cache = startCacheWriter(s.cfg.CacheFile, s.log)
		l.cached = l.entry()
	}
	return l
}

func (l *loop) run() {
	defer close(l.s.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	l.core.start(time.Now())
	for {
		l.carryOut(l.core.take())
		var due <-chan time.Time
		if w := l.core.wake(); !w.IsZero() {
			timer.Reset(time.Until(w))
			due = timer.C
		}
		select {
		case e := <-l.events:
			l.handle(e)
		case r := <-l.s.report:
			l.core.newReport(r)
		case <-due:
			l.core.tick(time.Now())
		case <-l.s.closing:
			l.shutdown()
			return
		}
	}
}

func (l *loop) handle(e event) {
	now := time.Now()
	switch {
	case e.ended:
		l.core.ended(e.id, e.err, now)
	case e.linked:
		l.core.linked(e.id, now)
	default:
		l.core.received(e.id, e.got, now)
	}
}

func (l *loop) carryOut(actions []action) {
	for _, a := range actions {
		switch a.do {
		case dial:
			l.dial(a)
		case send:
			if k := l.links[a.link]; k != nil {
				k.out.put(outgoing{a.msg, a.made})
			}
		case cut:
			if k := l.links[a.link]; k != nil {
				k.cancel()
				delete(l.links, a.link)
			}
		case publish:
			l.publish()
		case note:
			args := []any{}
			if a.err != nil {
				args = append(args, "error", a.err)
			}
			l.s.log.Log(context.Background(), a.level, a.text, args...)
		}
	}
}

func (l *loop) dial(a action) {
	ctx, cancel := context.WithCancel(l.ctx)
	k := newLink(a.link, cancel)
	if via := l.links[a.via]; via != nil {
		k.conn = via.conn.join()
	}
	l.links[a.link] = k
	l.s.log.Debug("connecting", "server", a.addr)
	l.wg.Go(func() {
		defer cancel()
		k.run(ctx, a.addr, l.s.opts, l.events)
	})
}

// publish makes the core's state everybody's.
func (l *loop) publish() {
	s := l.s
	state, count := l.core.state(), l.core.count
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
	close(s.news)
	s.news = make(chan struct{})
	if changed {
		close(s.changed)
		s.changed = make(chan struct{})
	}
	s.mu.Unlock()
	l.keep()
}

// entry is what the cache file is to hold.
func (l *loop) entry() cacheEntry {
	c := l.core
	return cacheEntry{c.held, c.status.Mode, c.index, clientHash(l.s.cfg.ClientID)}
}

// keep has the cache file written if there is something new.
func (l *loop) keep() {
	if e := l.entry(); l.cache != nil && e.assignment != nil && e != l.cached {
		l.cached = e
		l.cache.offer(e)
	}
}

// shutdown ends all links, the good ones with a goodbye, and waits for
// everything that was started.
func (l *loop) shutdown() {
	deadline := time.NewTimer(goodbyeTimeout)
	defer deadline.Stop()
	for _, id := range []linkID{l.core.dist.link, l.core.back.link, l.core.scout.link} {
		k := l.links[id]
		if k == nil {
			continue
		}
		if l.core.lane(id).phase == dialing {
			k.cancel()
			delete(l.links, id)
			continue
		}
		k.out.goodbye()
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
