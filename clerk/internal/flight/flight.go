// Package flight ends requests that are under way at a task when the task is said
// to be dead, so that those that may be carried out twice can go to the next owner
// instead of waiting for an answer that does not come.
package flight

import (
	"context"
	"errors"
	"sync"
)

// ErrDead is why the context of a Flight ends when its task does.
var ErrDead = errors.New("the task is said to be dead")

// Group is what is under way at one incarnation of a task. The zero value is
// empty. All methods are safe for concurrent use.
type Group struct {
	mu    sync.Mutex
	first *Flight
	dead  bool
}

// Flight is one attempt of a request. All methods are safe for concurrent use.
type Flight struct {
	cancel context.CancelCauseFunc

	mu    sync.Mutex // taken before a group's
	group *Group
	over  bool
	// In the group's list, guarded by its lock.
	before, after *Flight
	listed        bool
}

// New begins an attempt. End has to be called, or else ctx is held on to.
func New(ctx context.Context) (context.Context, *Flight) {
	ctx, cancel := context.WithCancelCause(ctx)
	return ctx, &Flight{cancel: cancel}
}

// Of is one that cancel ends, for attempts on what outlives them: between two it has to Leave.
func Of(cancel context.CancelCauseFunc) *Flight { return &Flight{cancel: cancel} }

// At says which task the attempt is at now. If it is dead, the attempt ends.
func (f *Flight) At(g *Group) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over || f.group == g {
		return
	}
	f.leave()
	f.group = g
	if !g.add(f) {
		f.cancel(ErrDead)
	}
}

// Land says that the task has begun to answer: its death does not end the attempt
// any more.
func (f *Flight) Land() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.leave()
	f.over = true
}

// Leave says that the attempt is at no task: the death of none ends it, until it is At one again. cancel
// may be called once more, by a death of a moment before.
func (f *Flight) Leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.leave()
}

// End ends the attempt and its context.
func (f *Flight) End() {
	f.Land()
	f.cancel(nil)
}

// Fail ends the attempt's context for a reason of its user's.
func (f *Flight) Fail(why error) { f.cancel(why) }

func (f *Flight) leave() {
	if f.group != nil {
		f.group.remove(f)
		f.group = nil
	}
}

func (g *Group) add(f *Flight) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.dead {
		return false
	}
	f.before, f.after, f.listed = nil, g.first, true
	if g.first != nil {
		g.first.before = f
	}
	g.first = f
	return true
}

func (g *Group) remove(f *Flight) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !f.listed {
		return
	}
	if f.before != nil {
		f.before.after = f.after
	} else {
		g.first = f.after
	}
	if f.after != nil {
		f.after.before = f.before
	}
	f.before, f.after, f.listed = nil, nil, false
}

// Die ends all that is under way, and what comes late.
func (g *Group) Die() {
	g.mu.Lock()
	g.dead = true
	f := g.first
	g.first = nil
	var all []*Flight
	for f != nil {
		next := f.after
		f.before, f.after, f.listed = nil, nil, false
		all = append(all, f)
		f = next
	}
	g.mu.Unlock()
	for _, f := range all {
		f.cancel(ErrDead)
	}
}
