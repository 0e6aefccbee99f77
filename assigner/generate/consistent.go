package generate

import (
	"errors"
	"fmt"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/lease"
)

// A job in consistent mode is decided on in one order only, that of package
// lease: take the job lease (Lead), read the store (Load), complete what is under
// way and bring what is stored in force (Change), and only then decide (Plan),
// store (Write), and bring that in force (Change). While a change is under way
// nothing is decided: what has happened meanwhile is answered by the next one.

// Lead asks for the job lease to be taken.
type Lead struct{}

// Change asks for lease.Advance, beside whatever else is done. It ends with
// Changed.
type Change struct {
	Token  lease.Token
	Wanted assignment.Generation
	Wait   time.Duration
}

// Abandon asks for the Change under way to be ended, wherever it is.
type Abandon struct{}

// Resign asks for the job lease to be given back. Token is 0 when it is not known
// whether it was had.
type Resign struct{ Token lease.Token }

// jobLease is how far a consistent job has come in the order above. The zero value
// is that of one without the job lease.
type jobLease struct {
	*env
	token      lease.Token // 0 without the job lease
	maybe      bool        // the job lease is held, or was asked for with an unknown outcome
	lost       error       // the session is gone, in the middle of a change
	settled    bool        // a change has been completed, or there was none to complete
	inForce    assignment.Generation
	changing   bool
	abandoning bool
	since      time.Duration // when the change under way began

	retryAt  time.Duration
	failures int   // in a row
	err      error // of the last attempt to take the lease, or to bring a change about
}

// leads reports whether this assigner is to have the job lease.
func (c *Core) leads() bool { return c.lead.isPreferred() && c.store.consistent() }

// reset is the beginning: without the job lease.
func (t *jobLease) reset() { *t = jobLease{env: t.env} }

// next is what a consistent job calls for next, nil when it is to wait or to decide.
func (t *jobLease) next(leads, mine bool, s *stored) Action {
	switch {
	case t.changing && !leads && !t.abandoning:
		t.abandoning = true
		return Abandon{}
	case t.changing:
		return nil
	case !leads:
		if !t.maybe {
			t.reset()
			return nil
		}
		if t.now.Mono < t.retryAt {
			return nil
		}
		return Resign{t.token}
	case t.now.Mono < t.retryAt:
		return nil
	case t.token == 0:
		t.maybe = true
		return Lead{}
	case !mine || s.loadDue:
		return nil // read the store first
	case !t.settled, s.fit() && generation(s.newest) > t.inForce:
		t.changing, t.abandoning, t.since = true, false, t.now.Mono
		return Change{t.token, s.target(), s.job.Config.LeaseDuration}
	}
	return nil
}

func single(a *assignment.Assignment) bool { return a.NumOwners() == a.NumSlices() }

// mayDecide reports whether the order has come to deciding.
func (t *jobLease) mayDecide(s *stored) bool {
	if s.job.Config.Mode != assignment.Consistent {
		return true
	}
	return t.token != 0 && t.settled && !t.changing && t.now.Mono >= t.retryAt && (!s.fit() || generation(s.newest) <= t.inForce)
}

// Led takes in what came of a Lead.
func (c *Core) Led(now Now, token lease.Token, err error) {
	c.tick(now)
	t := &c.jobLease
	if err != nil {
		if errors.Is(err, lease.ErrHeld) {
			c.outputs.Held++
			t.maybe = false
		}
		t.maybe = t.maybe && !errors.Is(err, lease.ErrLost)
		c.jobLease.failed("take the job lease", err)
		return
	}
	if t.err != nil {
		c.say(levelInfo, "leases work again", "error", t.err.Error())
	}
	*t = jobLease{env: t.env, token: token, maybe: true}
	c.say(levelInfo, "job lease taken", "token", int64(token), "reason", "this assigner is preferred")
	if p := c.rounds.pending; p != nil {
		c.rounds.pending = nil // it was decided before
		c.sched.again(c.now.Mono, p)
	}
	// What the one before has stored last counts.
	c.lead.mine, c.store.loadDue, c.store.retryAt = false, true, c.now.Mono
}

// Changed takes in how a Change has ended after so many steps, and the records as
// they are then.
func (c *Core) Changed(now Now, st lease.State, steps int, err error) {
	c.tick(now)
	t := &c.jobLease
	abandoned := t.abandoning
	t.changing, t.abandoning = false, false
	if t.lost != nil {
		err = t.lost
	}
	switch {
	case errors.Is(err, lease.ErrDeposed), errors.Is(err, lease.ErrLost):
		c.deposed(err)
		return
	case abandoned && err != nil:
		return
	case err != nil:
		c.jobLease.failed("bring a change about", err)
		return
	}
	t.failures, t.err = 0, nil
	if steps > 0 {
		took := c.now.Mono - t.since
		c.outputs.Changes = append(c.outputs.Changes, took)
		c.say(levelInfo, "generation in force", "generation", int64(st.Head), "took", took.String())
	}
	t.settled, t.inForce = true, st.Head
	switch {
	case !c.store.fit():
		c.sched.hurry = ReasonConfig
	case st.Head > generation(c.store.newest):
		// The store was wiped, or the job deleted and made anew: the numbers go on.
		c.store.above = max(c.store.above, st.Head)
		if c.store.newest != nil {
			c.sched.hurry = ReasonReported
		}
	}
}

// Resigned takes in what came of a Resign. One that fails is tried again: until it
// succeeds, or the session ends, the next assigner cannot take the job lease.
func (c *Core) Resigned(now Now, err error) {
	c.tick(now)
	if err != nil && !errors.Is(err, lease.ErrLost) {
		c.jobLease.failed("resign", err)
		return
	}
	c.jobLease.reset()
	c.say(levelInfo, "job lease given back", "reason", "another assigner is preferred, or the job is not in consistent mode any more")
}

// Lost says that the session is gone under which the job lease was held.
func (c *Core) Lost(now Now, err error) {
	c.tick(now)
	switch t := &c.jobLease; {
	case t.changing:
		t.lost = err
	case t.maybe:
		c.deposed(err)
	}
}

// deposed lets go of the job, until the lease can be had again.
func (c *Core) deposed(err error) {
	c.jobLease.reset()
	c.outputs.Deposed++
	if p := c.rounds.pending; p != nil {
		c.rounds.pending = nil
		c.sched.again(c.now.Mono, p)
	}
	c.jobLease.failed("keep the job lease", err)
}

// failed puts off the next attempt.
func (t *jobLease) failed(what string, err error) {
	most := time.Second
	if errors.Is(err, lease.ErrCorrupt) {
		most = 30 * time.Second
	}
	wait := t.backoff(t.failures, 50*time.Millisecond, most)
	before := t.err
	t.failures++
	t.err = fmt.Errorf("%s: %w", what, err)
	level := levelWarn
	if before != nil && before.Error() == t.err.Error() {
		level = levelDebug // it has been said
	}
	t.retryAt = t.now.Mono + wait
	t.say(level, "leases failed", "error", t.err.Error(), "failures", t.failures, "again_in", wait.String())
}

// wake is when next or mayDecide may turn out otherwise.
func (t *jobLease) wake(leads bool) (at time.Duration, ok bool) {
	return t.retryAt, (leads || t.maybe) && !t.changing && t.retryAt > t.now.Mono
}

// holding says what of the order keeps decisions from being taken, or
// returns "". A change that is being carried out does not count until its readers
// have had their time.
func (t *jobLease) holding(c *assignment.JobConfig) string {
	switch took := t.now.Mono - t.since; {
	case c.Mode != assignment.Consistent:
		return ""
	case t.err != nil:
		return "consistent mode: " + t.err.Error()
	case t.token == 0:
		return "consistent mode: the job lease is not taken yet"
	case t.changing && took > c.LeaseDuration:
		return fmt.Sprintf("consistent mode: a change has been under way for %s", took.Round(time.Second))
	}
	return ""
}

// quiet reports whether a round for the members' sake may wait for the next one by load:
// no task's keys change, nor how they are reached. In consistent mode each generation
// takes a change that all slicelets take part in.
func (d *Planned) quiet(mode assignment.Mode) bool {
	if mode != assignment.Consistent || d.Why != ReasonMembership || d.in.Prev == nil {
		return false
	}
	prev, next := d.in.Prev, d.Next
	for _, t := range next.Tasks() {
		pos, ok := prev.Position(t.Name)
		was := assignment.TaskState(0)
		if ok {
			was = prev.Task(pos).State
		}
		if (t.State == assignment.TaskDraining) != (was == assignment.TaskDraining) {
			return false // an operator waits for it
		}
	}
	return sameOwners(prev, next)
}

// sameOwners reports whether every key has the same owner, at the same address, in both.
func sameOwners(x, y *assignment.Assignment) bool {
	cx, cy := x.Columns(), y.Columns()
	if len(cx.Owners) != len(cx.Starts) || len(cy.Owners) != len(cy.Starts) {
		return false
	}
	for i, j := 0, 0; i < len(cx.Starts) && j < len(cy.Starts); {
		a, b := x.Task(int(cx.Owners[i])), y.Task(int(cy.Owners[j]))
		if !a.Same(b) || a.Address != b.Address {
			return false
		}
		switch endX, endY := end(cx.Starts, i), end(cy.Starts, j); {
		case endX < endY:
			i++
		case endX > endY:
			j++
		default:
			i, j = i+1, j+1
		}
	}
	return true
}

func end(starts []assignment.SliceKey, i int) assignment.SliceKey {
	if i+1 < len(starts) {
		return starts[i+1]
	}
	return assignment.KeyspaceEnd
}
