package distributor

import (
	"slices"
	"sync"
	"time"

	"github.com/slicer-project/slicer/assignment"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// A Distributor that has just started, or whose store was wiped, has to send whole
// assignments to everybody. All at once they would fill its memory and its network,
// and a change that comes meanwhile would wait behind them. So wholes are sent in
// turns: to slicelets first, since they serve, then to the others in the order in
// which they came.
const (
	// maxWholeBytes is how much of whole assignments is on its way at once, as far
	// as it is not acknowledged; leastWholes are on their way whatever their size.
	maxWholeBytes = 64 << 20
	leastWholes   = 16
	// turnFor is how long one turn lasts at most: a subscriber that is slow to
	// acknowledge is not to hold up those behind it.
	turnFor = 2 * time.Second
)

// turns says who may be sent a whole assignment now. It has a lock of its own,
// taken after any other; otherwise it is pure.
type turns struct {
	// limit and least are maxWholeBytes and leastWholes, save in tests.
	limit, least int

	mu      sync.Mutex
	taken   map[uint64]turn    // by subscriber
	ending  []ending           // when turns end at the latest, soonest first
	bytes   int                // of all that are taken
	waiting map[uint64]*queued // by subscriber
	queues  [2][]*queued       // slicelets, and all others; those taken out are nil
	ready   map[*job][]uint64  // whose turn has come, and who do not know it yet
}

type turn struct {
	bytes int
	until time.Time
}

type ending struct {
	id    uint64
	until time.Time
}

// queued waits for its turn.
type queued struct {
	id    uint64
	job   *job
	bytes int
	gone  bool
}

func newTurns() *turns {
	return &turns{limit: maxWholeBytes, least: leastWholes, taken: make(map[uint64]turn), waiting: make(map[uint64]*queued), ready: make(map[*job][]uint64)}
}

// take says whether it is a subscriber's turn to be sent so many bytes; if not it
// waits, and its job hears of it when its turn has come.
func (t *turns) take(now time.Time, id uint64, role slicerv1.Role, j *job, bytes int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expire(now)
	if _, has := t.taken[id]; has {
		return true
	}
	if t.waiting[id] != nil {
		return false
	}
	if len(t.waiting) == 0 && t.room(bytes) {
		t.grant(now, id, bytes)
		return true
	}
	q := &queued{id: id, job: j, bytes: bytes}
	t.waiting[id] = q
	t.queues[groupOf(role)] = append(t.queues[groupOf(role)], q)
	t.next(now)
	j.poke() // it is to look when this turn may come
	return false
}

// done ends a subscriber's turn, or its waiting for one.
func (t *turns) done(now time.Time, id uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if u, has := t.taken[id]; has {
		delete(t.taken, id)
		t.bytes -= u.bytes
		t.next(now)
	}
	if q := t.waiting[id]; q != nil {
		q.gone = true
		delete(t.waiting, id)
	}
}

// come are those of a job whose turn has come since the last call.
func (t *turns) come(now time.Time, j *job) []uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expire(now)
	if len(t.ready) == 0 {
		return nil
	}
	ids := t.ready[j]
	delete(t.ready, j)
	return ids
}

// look says how many wait, and when a turn will be over at the latest for which
// somebody waits, zero if nobody waits.
func (t *turns) look() (waiting int, next time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.waiting) > 0 && len(t.ending) > 0 {
		next = t.ending[0].until
	}
	return len(t.waiting), next
}

// waits says whether a subscriber waits for its turn.
func (t *turns) waits(id uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.waiting[id] != nil
}

func (t *turns) room(bytes int) bool {
	return len(t.taken) < t.least || t.bytes+bytes <= t.limit
}

func (t *turns) grant(now time.Time, id uint64, bytes int) {
	until := now.Add(turnFor)
	t.taken[id] = turn{bytes, until}
	t.ending = append(t.ending, ending{id, until})
	t.bytes += bytes
}

// expire ends turns that have lasted for long enough.
func (t *turns) expire(now time.Time) {
	for len(t.ending) > 0 {
		e := t.ending[0]
		u, has := t.taken[e.id]
		if has && u.until.Equal(e.until) {
			if u.until.After(now) {
				break
			}
			delete(t.taken, e.id)
			t.bytes -= u.bytes
		}
		t.ending = t.ending[1:]
	}
	if len(t.ending) == 0 {
		t.ending = nil
	}
	t.next(now)
}

// next gives turns to those who wait, as far as there is room.
func (t *turns) next(now time.Time) {
	for i := range t.queues {
		for len(t.queues[i]) > 0 {
			q := t.queues[i][0]
			if !q.gone {
				if !t.room(q.bytes) {
					return
				}
				delete(t.waiting, q.id)
				t.grant(now, q.id, q.bytes)
				t.ready[q.job] = append(t.ready[q.job], q.id)
				q.job.poke()
			}
			t.queues[i] = t.queues[i][1:]
		}
		t.queues[i] = nil
	}
}

// forget drops what a job has not come for.
func (t *turns) forget(now time.Time, j *job) {
	for _, id := range t.come(now, j) {
		t.done(now, id)
	}
}

// wholeBytes is about what an assignment takes when it is sent whole.
func wholeBytes(a *assignment.Assignment) int { return 8*a.NumOwners() + 64*a.NumTasks() }

// takeTurns has those sent the whole whose turn has come.
func (j *job) takeTurns(now time.Time) (next time.Time) {
	ids := j.d.turns.come(now, j)
	slices.Sort(ids)
	for _, id := range ids {
		s := j.subs[id]
		if s == nil {
			j.d.turns.done(now, id)
			continue
		}
		j.kick(s)
		if !s.sending {
			j.d.turns.done(now, id) // it does not need it any more
		}
	}
	waiting, next := j.d.turns.look()
	j.d.metrics.turns.Set(float64(waiting))
	return next
}
