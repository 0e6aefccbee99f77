// Package table is the state of a lease store and what its operations do to it:
// pure, with the time as a value, so that it serves real readers (package serve)
// and simulated ones alike. Not safe for concurrent use.
package table

import (
	"fmt"
	"slices"
	"time"

	"github.com/slicer-project/slicer/lease"
)

// Limits of what clients may make the table hold.
const (
	MaxSessions = 1 << 17
	MaxJobs     = 1 << 14
)

// Table holds sessions, records and holders.
type Table struct {
	sessions map[uint64]*session
	jobs     map[string]*job
	revision int64
	lastID   uint64
}

type session struct {
	ttl     time.Duration
	expires time.Duration
	jobs    map[string]bool // in which it may hold something
}

type job struct {
	records  lease.Records
	revision int64 // of the last change of a record
	touched  int64 // of the last change of a record, a holder or the leader
	guard    map[uint64]lease.Claim
	bridge   map[uint64]lease.Claim
	leader   uint64 // session, 0 if nobody leads
	token    lease.Token
}

// New makes an empty table whose session ids, tokens and revisions are all above base.
func New(base uint64) *Table {
	return &Table{sessions: map[uint64]*session{}, jobs: map[string]*job{}, lastID: base, revision: int64(base)}
}

// Load sets the records of a job as they were stored.
func (t *Table) Load(name string, r lease.Records) {
	j := t.job(name)
	j.records = r
	j.revision = t.revision
	j.touched = t.revision
}

func (t *Table) job(name string) *job {
	j := t.jobs[name]
	if j == nil {
		j = &job{guard: map[uint64]lease.Claim{}, bridge: map[uint64]lease.Claim{}}
		t.jobs[name] = j
	}
	return j
}

func (t *Table) touch(j *job) {
	t.revision++
	j.touched = t.revision
}

// Expire ends the sessions whose time has run out by now, and returns the jobs
// in which they held something, sorted. Until it does, a session whose time is
// up can do nothing more, and still holds what it holds.
func (t *Table) Expire(now time.Duration) (jobs []string) {
	for id, s := range t.sessions {
		if now >= s.expires {
			jobs = append(jobs, t.Close(id)...)
		}
	}
	slices.Sort(jobs)
	return slices.Compact(jobs)
}

// Wake is when the next session would expire.
func (t *Table) Wake() (at time.Duration, ok bool) {
	for _, s := range t.sessions {
		if !ok || s.expires < at {
			at, ok = s.expires, true
		}
	}
	return at, ok
}

// Open begins a session.
func (t *Table) Open(now, ttl time.Duration) (id uint64, err error) {
	if len(t.sessions) >= MaxSessions {
		return 0, fmt.Errorf("%w: %d sessions, as many as there may be", lease.ErrUnavailable, MaxSessions)
	}
	t.lastID++
	t.sessions[t.lastID] = &session{ttl: ttl, expires: now + ttl, jobs: map[string]bool{}}
	return t.lastID, nil
}

// live finds a session whose time is not up.
func (t *Table) live(now time.Duration, id uint64) (*session, error) {
	if s := t.sessions[id]; s != nil && now < s.expires {
		return s, nil
	}
	return nil, lease.ErrLost
}

// KeepAlive renews a session.
func (t *Table) KeepAlive(now time.Duration, id uint64) error {
	s, err := t.live(now, id)
	if err != nil {
		return err
	}
	s.expires = now + s.ttl
	return nil
}

// Sessions is how many there are.
func (t *Table) Sessions() int { return len(t.sessions) }

// Close ends a session and returns the jobs in which it held something.
func (t *Table) Close(id uint64) (jobs []string) {
	s := t.sessions[id]
	if s == nil {
		return nil
	}
	delete(t.sessions, id)
	for name := range s.jobs {
		j := t.jobs[name]
		_, g := j.guard[id]
		_, b := j.bridge[id]
		if !g && !b && j.leader != id {
			continue
		}
		delete(j.guard, id)
		delete(j.bridge, id)
		if j.leader == id {
			j.leader = 0
		}
		t.touch(j)
		jobs = append(jobs, name)
	}
	slices.Sort(jobs)
	return jobs
}

// Seen returns what readers see of a job.
func (t *Table) Seen(name string) lease.Seen {
	if j := t.jobs[name]; j != nil {
		return lease.Seen{Revision: j.revision, Guard: j.records.Guard, Bridge: j.records.Bridge}
	}
	return lease.Seen{}
}

// Acquire sets a holder key if the record grants it.
func (t *Table) Acquire(now time.Duration, id uint64, name string, c lease.Claim) (lease.Seen, bool, error) {
	s, err := t.live(now, id)
	if err != nil {
		return lease.Seen{}, false, err
	}
	seen := t.Seen(name)
	if !seen.Grants(c) {
		return seen, false, nil
	}
	j := t.job(name)
	keys := j.keys(c)
	if keys[id] != c {
		keys[id] = c
		s.jobs[name] = true
		t.touch(j)
	}
	return seen, true, nil
}

// Release deletes a holder key that has this value.
func (t *Table) Release(now time.Duration, id uint64, name string, c lease.Claim) (changed bool, err error) {
	if _, err := t.live(now, id); err != nil {
		return false, err
	}
	j := t.jobs[name]
	if j == nil || j.keys(c)[id] != c {
		return false, nil
	}
	delete(j.keys(c), id)
	t.touch(j)
	return true, nil
}

func (j *job) keys(c lease.Claim) map[uint64]lease.Claim {
	if c.Bridge() {
		return j.bridge
	}
	return j.guard
}

// Lead makes the session the job's leader.
func (t *Table) Lead(now time.Duration, id uint64, name string) (lease.Token, error) {
	s, err := t.live(now, id)
	if err != nil {
		return 0, err
	}
	if t.jobs[name] == nil && len(t.jobs) >= MaxJobs {
		return 0, fmt.Errorf("%w: %d jobs, as many as there may be", lease.ErrUnavailable, MaxJobs)
	}
	j := t.job(name)
	switch j.leader {
	case id:
		return j.token, nil
	case 0:
		t.touch(j)
		j.leader, j.token = id, lease.Token(t.revision)
		s.jobs[name] = true
		return j.token, nil
	}
	return 0, lease.ErrHeld
}

// Resign ends a tenure.
func (t *Table) Resign(name string, token lease.Token) (changed bool) {
	j := t.jobs[name]
	if j == nil || j.leader == 0 || j.token != token {
		return false
	}
	j.leader = 0
	t.touch(j)
	return true
}

// State returns what an assigner sees of a job.
func (t *Table) State(name string) lease.State {
	j := t.jobs[name]
	if j == nil {
		return lease.State{}
	}
	st := lease.State{Records: j.records, Revision: j.touched, GuardReaders: len(j.guard), BridgeReaders: len(j.bridge)}
	g, b := lease.GuardClaim(j.records.Guard.Generation), j.records.Bridge.Claim()
	for id, c := range j.guard {
		if c == g && j.bridge[id] != b {
			st.GuardOnly++
		}
	}
	for id, c := range j.bridge {
		if c == b && j.guard[id] != g {
			st.BridgeOnly++
		}
	}
	return st
}

// Prepare returns what a step would make of the records, or why it may not.
func (t *Table) Prepare(name string, token lease.Token, read lease.State, s lease.Step) (lease.Outcome, error) {
	j := t.jobs[name]
	if j == nil || j.leader == 0 || j.token != token {
		return lease.Outcome{}, lease.ErrDeposed
	}
	if j.records != read.Records {
		return lease.Outcome{}, lease.ErrChanged
	}
	o, err := s.Outcome(read.Records)
	if err != nil {
		return o, err
	}
	if o.NoGuardReaders && len(j.guard) > 0 || o.NoBridgeReaders && len(j.bridge) > 0 {
		return o, lease.ErrReaders
	}
	return o, nil
}

// Write sets the records of a job, as Prepare returned them and nothing since has changed.
func (t *Table) Write(name string, r lease.Records) {
	j := t.job(name)
	t.touch(j)
	j.records = r
	j.revision = t.revision
}

// Touched is the revision of the last change of a job in any of its parts.
func (t *Table) Touched(name string) int64 {
	if j := t.jobs[name]; j != nil {
		return j.touched
	}
	return 0
}
