package assigner

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/slicer-project/slicer/assignment/backoff"
	"github.com/slicer-project/slicer/assignment/store"
)

const (
	// checkEvery is how often a store is asked whether it works, and checkWithin how
	// long its answer may take.
	checkEvery  = 2 * time.Second
	checkWithin = 3 * time.Second
)

// health is how a store fares. A watch goes on through an outage in silence, and a job
// that has nothing to write does not notice one, so the store is asked.
type health struct {
	mu          sync.Mutex
	read, write outcome
	entry       store.Registration // nil if the assigner is no candidate
	refusal     error              // why there is none although the assigner wants to be one
	rewritten   int                // by entries that are no more
}

// outcome is what came of the last check of one kind.
type outcome struct {
	checked bool
	err     error
	good    time.Time // when it last went well, zero if never
}

func (o *outcome) set(now time.Time, err error) (turned bool) {
	turned = !o.checked || (o.err == nil) != (err == nil)
	o.checked, o.err = true, err
	if err == nil {
		o.good = now
	}
	return turned
}

func (o *outcome) up() bool { return o.checked && o.err == nil }

// checked takes in what came of a round of checks. It reports whether either is another
// than before.
func (h *health) checked(now time.Time, read, write error) (turned bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r, w := h.read.set(now, read), h.write.set(now, write)
	return r || w
}

// outcomes are those of the last checks.
func (h *health) outcomes() (read, write outcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.read, h.write
}

// candidacy notes the assigner's entry as a candidate, nil if there is none, and why there
// is none although it wants to be one.
func (h *health) candidacy(entry store.Registration, refusal error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.entry != nil && h.entry != entry {
		n, _ := h.entry.State()
		h.rewritten += n
	}
	h.entry, h.refusal = entry, refusal
}

// registration reports whether the assigner is a candidate. The error is why it is not
// although it wants to; rewritten is how often its entries had to be written anew.
func (h *health) registration() (registered bool, rewritten int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.entry == nil {
		return false, h.rewritten, h.refusal
	}
	n, err := h.entry.State()
	return err == nil, h.rewritten + n, err
}

// problem is what keeps the assigner from deciding for the jobs of the store, nil if
// nothing that is known.
func (h *health) problem() error {
	read, write := h.outcomes()
	_, _, err := h.registration()
	switch {
	case read.err != nil:
		return fmt.Errorf("it cannot be read, last %s: %w", ago(read.good), read.err)
	case write.err != nil:
		return fmt.Errorf("it cannot be written, last %s, and nothing is decided (what only reads is answered): %w", ago(write.good), write.err)
	case err != nil:
		return fmt.Errorf("the assigner is not registered in it, so that others decide: %w", err)
	}
	return nil
}

func ago(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return time.Since(t).Round(time.Second).String() + " ago"
}

// decides reports whether the assigner can decide for the jobs of the store: it can write
// there, and the others know it.
func (h *health) decides() bool {
	registered, _, _ := h.registration()
	_, write := h.outcomes()
	return registered && write.up()
}

// watchHealth asks the store whether it works, again and again.
func (s *storeWatch) watchHealth() {
	for {
		read := s.check(false)
		write := read
		if read == nil {
			write = s.check(true)
		}
		if s.a.ctx.Err() != nil {
			return
		}
		if s.health.checked(time.Now(), read, write) {
			switch {
			case read != nil:
				s.log.Error("the store cannot be read", "error", read)
			case write != nil:
				s.log.Error("the store cannot be written", "error", write)
			default:
				s.log.Info("the store can be read and written")
			}
		}
		if !backoff.Sleep(s.a.ctx, checkEvery) {
			return
		}
	}
}

func (s *storeWatch) check(write bool) error {
	ctx, cancel := context.WithTimeout(s.a.ctx, checkWithin)
	defer cancel()
	return s.backend.Check(ctx, write)
}
