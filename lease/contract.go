package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slicer-project/slicer/assignment"
)

// Errors that callers tell apart with errors.Is.
var (
	// ErrLost: the session's lease is gone, and with it all that it held.
	ErrLost = errors.New("lease lost")
	// ErrWentBack: the store is in an earlier state than it has been in, as after a
	// restore, and the session, though it may be in that state, is over. It matches ErrLost, too.
	ErrWentBack = fmt.Errorf("%w: the store has gone back to an earlier state", ErrLost)
	// ErrHeld: another session has the job lease.
	ErrHeld = errors.New("job lease is held by another")
	// ErrDeposed: the token is not that of the job lease any more. Nothing was written.
	ErrDeposed = errors.New("job lease was lost to another")
	// ErrChanged: the records are not those that were read. Nothing was written; read again.
	ErrChanged = errors.New("records have changed")
	// ErrReaders: the step needs that no session holds the record, and one does. Nothing was written.
	ErrReaders = errors.New("record has readers")
	// ErrUnavailable: the store did not answer, or does not grant anything yet.
	ErrUnavailable = errors.New("lease store unavailable")
	// ErrRefused: the store does not allow it to this process now. It matches ErrUnavailable, too.
	ErrRefused = fmt.Errorf("%w: refused", ErrUnavailable)
	// ErrSuspended: nothing is granted, and no record changes, until the time is over
	// for which Suspender.Suspend was called. It matches ErrUnavailable, too.
	ErrSuspended = fmt.Errorf("%w: suspended", ErrUnavailable)
	// ErrJoined: the reader takes part in the job already.
	ErrJoined = errors.New("job is joined already")
	// ErrCorrupt: a record does not decode; the error names it.
	ErrCorrupt = errors.New("corrupt lease record")
)

// Bounds of a session's lease time.
const (
	MinTTL = time.Second
	MaxTTL = 10 * time.Minute
)

// MaxJobs is how many jobs a session takes part in at most.
const MaxJobs = 64

// CheckJobs reports whether a session may be opened for these jobs.
func CheckJobs(jobs []string) error {
	if len(jobs) == 0 || len(jobs) > MaxJobs {
		return &assignment.FieldError{Field: "jobs", Value: len(jobs), Allowed: fmt.Sprintf("1 to %d names", MaxJobs)}
	}
	for _, job := range jobs {
		if err := assignment.ValidateJobName(job); err != nil {
			return err
		}
	}
	return nil
}

// CheckTTL reports whether a session may ask for this lease time.
func CheckTTL(ttl time.Duration) error {
	if ttl < MinTTL || ttl > MaxTTL {
		return &assignment.FieldError{Field: "ttl", Value: ttl, Allowed: fmt.Sprintf("%s to %s", MinTTL, MaxTTL)}
	}
	return nil
}

// Session is a lease in the store, and what is held under it. All methods are
// safe for concurrent use and obey ctx. Those that write return ErrLost when the
// lease is gone; after an error that matches none of the above but ErrUnavailable
// or ctx's, the write may have been carried out, or may yet be.
type Session interface {
	// ID names the session here, in logs and metrics, and no other one. It is no
	// secret: where a session is its holder's alone, the ID opens nothing.
	ID() uint64
	// TTL is the lease time that the newest answer granted, of the opening or of a
	// KeepAlive, at most what was asked for: the store keeps the lease at least so
	// long from when it received that request.
	TTL() time.Duration
	// KeepAlive renews the lease once, without retries of its own. A caller that
	// counts time from before the call may trust the lease for TTL as it is after it:
	// the store is the one that the session was opened in, it has not gone back, and
	// what was acquired is held still.
	KeepAlive(ctx context.Context) error
	// Close gives the lease up and all that is held under it.
	Close(ctx context.Context) error
}

// ReadSession is what a slicelet's process has, one for all its jobs.
type ReadSession interface {
	Session
	// Join names a further job that the session takes part in; one that it takes
	// part in already is nothing new. Renewals from then on may grant less, as that
	// job asks. ErrUnavailable: not now.
	Join(ctx context.Context, job string) error
	// Acquire holds the claim if the record grants it at that very moment, and
	// returns the records as they are then, with ErrSuspended too. A store may refuse
	// it in jobs that the session does not take part in, and Watch too.
	Acquire(ctx context.Context, job string, c Claim) (seen Seen, ok bool, err error)
	// Release lets go of the claim if it is held; something else stays as it is.
	// Sent when the record was seen not to grant the claim, it is final: whatever
	// acquire is still under way is refused.
	Release(ctx context.Context, job string, c Claim) error
	// Watch starts to watch a job's guard and bridge together. A store may end the
	// watch of a job that the session watched before.
	Watch(ctx context.Context, job string) (Watcher, error)
}

// Watcher tells a job's guard and bridge in order, both as they were at one revision.
type Watcher interface {
	// Next waits until they have changed since the last call. The first call
	// returns at once. States that were replaced meanwhile may be left out. After
	// an error, be it ctx's, the watch is over.
	Next(ctx context.Context) (Seen, error)
	// Close ends the watch and waits for what it runs.
	Close() error
}

// Token proves that a session has the job lease. Each time that a job's lease is taken it
// is larger.
type Token int64

// State is what an assigner reads of a job, at one revision.
type State struct {
	Records
	Revision int64
	// GuardOnly is how many sessions hold the guard as it stands and not the
	// bridge as it stands; BridgeOnly the other way round.
	GuardOnly, BridgeOnly int
	// GuardReaders and BridgeReaders are how many hold the guard or a bridge at all.
	GuardReaders, BridgeReaders int
}

// WriteSession is what an assigner has, one for all its jobs.
type WriteSession interface {
	Session
	// Lead takes the job lease for as long as the session lasts, or returns ErrHeld. A
	// session that has it already gets its token again.
	Lead(ctx context.Context, job string) (Token, error)
	// Resign gives the job lease back, if the token is still its.
	Resign(ctx context.Context, job string, t Token) error
	// State reads.
	State(ctx context.Context, job string) (State, error)
	// Commit carries out one step as one transaction: it compares the token, the
	// records with those read, and what Step.Outcome says must have no readers.
	// ErrDeposed, ErrChanged and ErrReaders say that nothing was written.
	Commit(ctx context.Context, job string, t Token, read State, s Step) error
	// Await waits until a record, a holder or the job lease of the job has changed
	// since the revision, and returns the state as it was then or is now; never one
	// from before the revision. It may return early. Commit is what tells whether
	// the state still stands.
	Await(ctx context.Context, job string, since int64) (State, error)
}

// Suspender closes guard and bridge of every job in a store. It is for what puts
// the records of a store back to an earlier state, as `slicerctl store restore` does:
// the store then knows neither all sessions that live nor all that they hold, and a
// process that starts afterwards cannot find that out.
type Suspender interface {
	// Suspend makes Acquire and Commit fail with ErrSuspended, in all jobs and for
	// all sessions, for at least d from now, which is 1 s to 10 min: the longest
	// lease_duration of the jobs in the store, and no shorter than the lease time of any
	// of its sessions. By then each session that the store does not know of has passed its
	// deadline. What is held stays held, and may be released. Suspensions do
	// not shorten one another. The suspension is part of the store's content: one
	// that is written to a copy before it is put in place holds from the first
	// request on, and for all of d from when the copy is started.
	Suspend(ctx context.Context, d time.Duration) error
}

// Readers opens sessions for slicelets.
type Readers interface {
	// OpenReader opens a session that takes part in these jobs: at least one, at
	// most MaxJobs. A store that knows the jobs grants at most the smallest of their
	// lease durations. Jobs that it cannot serve now are left out, for Join to name
	// them again later; if none is left, that is an error.
	OpenReader(ctx context.Context, ttl time.Duration, jobs ...string) (ReadSession, error)
}

// TaskReaders are Readers that are told as which tasks a process takes part: a store that
// grants a job to some tasks and not to others needs to know.
type TaskReaders interface {
	Readers
	// OpenReaderAs is OpenReader with the name of a task for each job.
	OpenReaderAs(ctx context.Context, ttl time.Duration, tasks map[string]string) (ReadSession, error)
}

// TaskSession is a session of TaskReaders.
type TaskSession interface {
	ReadSession
	// JoinAs is Join with the name of a task.
	JoinAs(ctx context.Context, job, task string) error
}

// Writers opens sessions for assigners.
type Writers interface {
	OpenWriter(ctx context.Context, ttl time.Duration) (WriteSession, error)
}
