package assigner

import (
	"context"
	"sync"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/backoff"
	"github.com/slicer-project/slicer/assignment/store"
)

const (
	// usageEvery is how often a store is asked for the room that it takes.
	usageEvery  = 30 * time.Second
	usageWithin = 10 * time.Second
	// A store that keeps so many revisions, and was not compacted for so long, grows
	// without end.
	uncompactedMost = 10_000
	uncompactedFor  = 2 * time.Hour
	// minCompact and maxCompact bound Config.Compact.
	minCompact = 10 * time.Second
	maxCompact = 24 * time.Hour
)

// CheckCompact reports why a Config.Compact is not allowed.
func CheckCompact(d time.Duration) error {
	if d != 0 && (d < minCompact || d > maxCompact) {
		return &assignment.FieldError{Field: "compact", Value: d, Allowed: "0, or 10s to 24h"}
	}
	return nil
}

// past knows which revision was the newest at some moments, and so what is old enough to
// be compacted away. Pure.
type past struct {
	marks []pastMark // in order of time
	done  int64      // compacted up to here
}

type pastMark struct {
	at  time.Duration
	rev int64
}

// observe takes in the newest revision, and returns the newest that is older than keep; 0
// if there is none, or that has been compacted already.
func (p *past) observe(now, keep time.Duration, rev int64) int64 {
	if n := len(p.marks); n > 0 && rev < p.marks[n-1].rev {
		*p = past{} // another database: it was restored, or wiped
	}
	p.marks = append(p.marks, pastMark{now, rev})
	old := 0
	for old < len(p.marks)-1 && p.marks[old+1].at <= now-keep {
		old++
	}
	p.marks = p.marks[old:]
	if m := p.marks[0]; m.at <= now-keep && m.rev > p.done {
		return m.rev
	}
	return 0
}

// growth notices a store that nothing compacts. Pure.
type growth struct {
	seen      bool
	compacted int64
	since     time.Duration // when compacted last changed, or was first seen
	warned    time.Duration
}

// observe reports whether it is time to warn, which it is once in uncompactedFor.
func (g *growth) observe(now time.Duration, u store.Usage) bool {
	if !g.seen || u.Compacted != g.compacted {
		*g = growth{seen: true, compacted: u.Compacted, since: now, warned: now}
	}
	if u.Uncompacted < uncompactedMost || now-g.warned < uncompactedFor {
		return false
	}
	g.warned = now
	return true
}

// room is how much room a store takes, as it was when it was last asked.
type room struct {
	mu    sync.Mutex
	usage store.Usage
	known bool
}

func (r *room) set(u store.Usage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.usage, r.known = u, true
}

func (r *room) get() (u store.Usage, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.usage, r.known
}

// watchRoom asks a store that keeps what was overwritten for the room that it takes, and
// warns when nothing compacts it.
func (s *storeWatch) watchRoom(c store.Compactor) {
	var g growth
	for {
		ctx, cancel := context.WithTimeout(s.a.ctx, usageWithin)
		u, err := c.Usage(ctx)
		cancel()
		switch {
		case s.a.ctx.Err() != nil:
			return
		case err != nil:
			s.log.Info("the store does not tell how much room it takes", "error", err)
		default:
			s.room.set(u)
			if g.observe(s.a.now().Mono, u) {
				s.log.Warn("nothing compacts the store: it will fill", "revisions", u.Uncompacted, "bytes", u.Size, "quota", u.Quota, "for", uncompactedFor.String(), "use", c.CompactsBy())
			}
		}
		if !backoff.Sleep(s.a.ctx, usageEvery) {
			return
		}
	}
}

// compact drops what was overwritten so long ago, again and again, for all users of the
// store's database. Several assigners may do so: that it is done already is no error.
func (s *storeWatch) compact(c store.Compactor, keep time.Duration) {
	var p past
	every := min(max(keep/10, time.Second), usageEvery)
	for backoff.Sleep(s.a.ctx, every) {
		ctx, cancel := context.WithTimeout(s.a.ctx, usageWithin)
		rev, err := c.Revision(ctx)
		if err == nil {
			if to := p.observe(s.a.now().Mono, keep, rev); to > 0 {
				if err = c.Compact(ctx, to); err == nil {
					p.done = to
					s.log.Debug("store compacted", "revision", to, "newest", rev)
				}
			}
		}
		cancel()
		if err != nil && s.a.ctx.Err() == nil {
			s.log.Warn("the store is not compacted", "error", err)
		}
	}
}
