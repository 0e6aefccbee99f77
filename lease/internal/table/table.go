// Package table is the state of a lease store and what its operations do to it:
// pure, with the time as a value, so that it serves real readers (package serve)
// and simulated ones alike. Not safe for concurrent use.
package table

import (
	"container/heap"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/lease"
)

// Limits of what clients may make the table hold.
const (
	MaxSessions = 1 << 17 // of readers; a writer always finds room
	MaxJobs     = 1 << 14
)

// Table holds sessions, records and holders.
type Table struct {
	sessions map[uint64]*session
	readers  int
	due      timers
	jobs     map[string]*job
	revision int64
	lastID   uint64
}

type session struct {
	id      uint64
	look    time.Duration // when to see whether it has expired
	index   int           // in due
	writer  bool
	ttl     time.Duration // asked for
	expires time.Duration // never moved back: its holder may count on what was granted
	// jobs are those that a reader may claim in, with the longest that it may hold
	// up a change of each; of a writer, those that it leads.
	jobs map[string]time.Duration
}

type job struct {
	records  lease.Records
	revision int64 // of the last change of a record
	touched  int64 // of the last change of a record, a holder or the leader
	guard    map[uint64]lease.Claim
	bridge   map[uint64]lease.Claim
	// When the records were recalled that are.
	guardRecalled, bridgeRecalled time.Duration
	leader                        uint64 // session, 0 if none leads
	token                         lease.Token
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

// Open begins a reader's session of at most the lease time asked for and the
// smallest of the limits. A limit is the longest time for which the session may
// hold up a change of that job. It returns the lease time granted.
func (t *Table) Open(now, ttl time.Duration, jobs map[string]time.Duration) (id uint64, granted time.Duration, err error) {
	if t.readers >= MaxSessions {
		return 0, 0, fmt.Errorf("%w: %d sessions, as many as there may be", lease.ErrUnavailable, MaxSessions)
	}
	t.readers++
	s := &session{ttl: ttl, jobs: maps.Clone(jobs)}
	s.expires = now + s.least()
	return t.open(s), s.expires - now, nil
}

// OpenWriter begins an assigner's session.
func (t *Table) OpenWriter(now, ttl time.Duration) (id uint64) {
	return t.open(&session{writer: true, ttl: ttl, expires: now + ttl, jobs: map[string]time.Duration{}})
}

func (t *Table) open(s *session) (id uint64) {
	t.lastID++
	s.id, s.look = t.lastID, s.expires
	t.sessions[s.id] = s
	heap.Push(&t.due, s)
	return s.id
}

// least is the lease time that a renewal grants when nothing is recalled.
func (s *session) least() time.Duration {
	ttl := s.ttl
	if !s.writer {
		for _, limit := range s.jobs {
			ttl = min(ttl, limit)
		}
	}
	return ttl
}

// live finds a session whose time is not up.
func (t *Table) live(now time.Duration, id uint64) (*session, error) {
	if s := t.sessions[id]; s != nil && now < s.expires {
		return s, nil
	}
	return nil, lease.ErrLost
}

// Join lets a session claim in a job, or gives it another limit there. Renewals
// from then on take the limit into account.
func (t *Table) Join(now time.Duration, id uint64, name string, limit time.Duration) error {
	s, err := t.live(now, id)
	if err != nil {
		return err
	}
	if _, named := s.jobs[name]; !named && len(s.jobs) >= lease.MaxJobs {
		return fmt.Errorf("%w: the session takes part in %d jobs, as many as it may", lease.ErrUnavailable, lease.MaxJobs)
	}
	s.jobs[name] = limit
	return nil
}

// Asked returns the lease time that a reader's session asked for, and its limits by
// job; nothing of another session.
func (t *Table) Asked(id uint64) (ttl time.Duration, limits map[string]time.Duration) {
	if s := t.sessions[id]; s != nil && !s.writer {
		return s.ttl, maps.Clone(s.jobs)
	}
	return 0, nil
}

// KeepAlive renews a session, and returns for how long: less than the lease time
// while it holds what was recalled, so that it is over at the latest when it has
// held up that change for as long as it may.
func (t *Table) KeepAlive(now time.Duration, id uint64) (granted time.Duration, err error) {
	s, err := t.live(now, id)
	if err != nil {
		return 0, err
	}
	until := now + s.least()
	if !s.writer {
		for name, limit := range s.jobs {
			if since, holds := t.holdsUp(id, name); holds {
				until = min(until, since+limit)
			}
		}
	}
	s.expires = max(s.expires, until)
	return s.expires - now, nil
}

// holdsUp reports whether a session holds what is recalled in a job, and since
// when that is recalled.
func (t *Table) holdsUp(id uint64, name string) (since time.Duration, holds bool) {
	j := t.jobs[name]
	if j == nil {
		return 0, false
	}
	if _, held := j.guard[id]; held && !j.records.Guard.Open {
		since, holds = j.guardRecalled, true
	}
	if _, held := j.bridge[id]; held && !j.records.Bridge.Open && (!holds || j.bridgeRecalled < since) {
		since, holds = j.bridgeRecalled, true
	}
	return since, holds
}

// Holds reports whether a session holds anything in a job.
func (t *Table) Holds(id uint64, name string) bool {
	j := t.jobs[name]
	if j == nil {
		return false
	}
	_, guard := j.guard[id]
	_, bridge := j.bridge[id]
	return guard || bridge
}

// Sessions is how many there are of readers.
func (t *Table) Sessions() int { return t.readers }

// Close ends a session and returns the jobs in which it held something.
func (t *Table) Close(id uint64) (jobs []string) {
	s := t.sessions[id]
	if s == nil {
		return nil
	}
	delete(t.sessions, id)
	heap.Remove(&t.due, s.index)
	if !s.writer {
		t.readers--
	}
	for name := range s.jobs {
		j := t.jobs[name]
		if j == nil {
			continue
		}
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
	limit, named := s.jobs[name]
	if !named || s.writer {
		return lease.Seen{}, false, &assignment.FieldError{Field: "job", Value: name, Allowed: "one that the session takes part in"}
	}
	if left := s.expires - now; left > limit {
		// It was granted before the job was named, or when its leases were longer.
		return lease.Seen{}, false, fmt.Errorf("%w: the session lasts for another %s, and leases of job %s for %s", lease.ErrUnavailable, left, name, limit)
	}
	seen := t.Seen(name)
	if !seen.Grants(c) {
		return seen, false, nil
	}
	j := t.job(name)
	keys := j.keys(c)
	if keys[id] != c {
		keys[id] = c
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
	if !s.writer {
		return 0, lease.ErrLost
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
		s.jobs[name] = s.ttl
		return j.token, nil
	}
	return 0, lease.ErrHeld
}

// Resign gives the job lease back.
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
func (t *Table) Write(now time.Duration, name string, r lease.Records) {
	j := t.job(name)
	t.touch(j)
	if j.records.Guard.Open && !r.Guard.Open {
		j.guardRecalled = now
	}
	if j.records.Bridge.Open && !r.Bridge.Open {
		j.bridgeRecalled = now
	}
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
