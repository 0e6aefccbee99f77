package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slicer-project/slicer/assignment"
)

// What a job asks of the store and of its Fetch, each in a goroutine of its
// own: at most one acquire and one release of each kind are under way, and a
// fetch for each generation that guard and bridge name.

// acquire is not cut short when the job is closed: what it has taken must be
// known, to be released. Nor is release: what may come late bars the claim.
func (j *Job) acquire(h *held, c Claim) {
	ctx, cancel := context.WithTimeout(context.Background(), h.ttl/2)
	defer cancel()
	e := Event{Kind: Acquired, Session: h.session.ID(), Claim: c}
	seen, ok, err := h.session.Acquire(ctx, j.cfg.Job, c)
	switch {
	case errors.Is(err, ErrLost):
		e.Kind = Gone
		h.doubt()
	case errors.Is(err, ErrSuspended):
		e.Kind, e.Seen, e.Retry = Refused, seen, retry(h.ttl)
	case err != nil:
		e.Kind, e.Retry = Unknown, retry(h.ttl)
	case !ok:
		e.Kind, e.Seen = Refused, seen
	}
	j.answer(j.ctx, answer{Event: e, err: err})
}

func (j *Job) release(h *held, c Claim) {
	ctx, cancel := context.WithTimeout(context.Background(), h.ttl/2)
	defer cancel()
	e := Event{Kind: Released, Session: h.session.ID(), Claim: c}
	err := h.session.Release(ctx, j.cfg.Job, c)
	switch {
	case errors.Is(err, ErrLost):
		e.Kind = Gone
		h.doubt()
	case err != nil:
		e.Kind, e.Release, e.Retry = Unknown, true, retry(h.ttl)
	}
	j.answer(j.ctx, answer{Event: e, err: err})
}

func (j *Job) fetch(g assignment.Generation, ttl time.Duration) {
	ctx, cancel := context.WithTimeout(j.wanted, ttl/2)
	defer cancel()
	a, err := j.cfg.Fetch(ctx, g)
	if err == nil && (a == nil || a.Job() != j.cfg.Job || a.Generation() != g) {
		err = fmt.Errorf("fetched another assignment than generation %d of %s", g, j.cfg.Job)
	}
	if err != nil {
		j.r.cfg.Logger.Warn("assignment not to be had", "job", j.cfg.Job, "generation", int64(g), "error", err)
		j.answer(j.wanted, answer{Event: Event{Kind: NotInHand, Generation: g, Retry: retry(ttl)}})
		return
	}
	j.answer(j.wanted, answer{Event: Event{Kind: InHand, Generation: g}, hand: a})
}
