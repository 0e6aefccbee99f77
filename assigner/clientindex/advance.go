package clientindex

import (
	"cmp"
	"slices"
	"time"
)

// Never is when nothing is due.
const Never = time.Duration(1<<63 - 1)

// Advance does what is due, and returns when it is to be called again at the
// latest: Never if there is nothing to wait for.
func (t *Table) Advance(now time.Duration) (wake time.Duration) {
	t.tick(now)
	t.expire()
	wake = Never
	if len(t.gone) > 0 {
		wake = t.gone[0].at + t.cfg.FreeAfter
	}
	if t.mine && !t.giving {
		if at := t.settledAt(); at > t.now {
			return min(wake, at)
		}
		t.begin()
	}
	return wake
}

// settledAt is when enough has been heard to begin, Never while there is none to hear.
func (t *Table) settledAt() time.Duration {
	if len(t.distributors) == 0 {
		return Never
	}
	for _, s := range t.distributors {
		if !s.complete {
			return t.began + t.cfg.SnapshotWait
		}
	}
	return t.began + t.cfg.Settle
}

// begin gives an index to the clients that have waited for one, the oldest first.
func (t *Table) begin() {
	t.giving = true
	var without []*client
	for _, c := range t.clients {
		if c.index < 0 && len(c.carriers) > 0 {
			without = append(without, c)
		}
	}
	slices.SortFunc(without, func(c, o *client) int {
		return cmp.Or(cmp.Compare(c.since, o.since), cmp.Compare(c.id, o.id))
	})
	for _, c := range without {
		t.give(c)
		t.tell(c)
	}
}

// expire forgets the clients that have been gone for long enough.
func (t *Table) expire() {
	for t.trim(); len(t.gone) > 0 && t.gone[0].at+t.cfg.FreeAfter <= t.now; t.trim() {
		t.forget(t.gone[0].client)
	}
}

// evict makes room for one more by forgetting the client that has been gone the longest.
func (t *Table) evict() bool {
	t.trim()
	if len(t.gone) == 0 {
		return false
	}
	t.forget(t.gone[0].client)
	return true
}

func (t *Table) forget(c *client) {
	if c.index >= 0 {
		t.indexes.free(c.index)
	}
	delete(t.clients, c.id)
}

// trim drops the clients from the front of gone that are not to be forgotten then.
func (t *Table) trim() {
	for len(t.gone) > 0 && t.back(t.gone[0]) {
		t.gone = t.gone[1:]
	}
	if len(t.gone) == 0 {
		t.gone = nil
	}
}

// back reports whether a client has come back since, or has gone once more, which is
// another departure, or is forgotten.
func (t *Table) back(d departure) bool {
	return len(d.carriers) > 0 || d.left != d.nth || t.clients[d.id] != d.client
}
