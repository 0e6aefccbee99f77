// Package store is the contract between Slicer's processes and the place where
// assignments and job configs are kept: read, compare-and-swap, watch. Package
// storetest holds the suite that every implementation passes; etcdstore and
// pebblestore are the implementations.
//
// The store makes many assigners act as one (Slicer paper, section 4.1): an
// assigner reads the stored assignment, decides, and writes the next generation
// on condition that the one it read is still the newest.
//
// What every implementation promises:
//
//   - A stored assignment is one that was written whole, whatever dies while it
//     is written. Of several that follow the same one, exactly one is stored.
//   - What a call has acknowledged survives the process, and is never shown
//     before it does.
//   - A record that is damaged is refused with an error that names it.
//   - Calls whose ctx has no deadline end within some seconds all the same.
package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/slicer-project/slicer/assignment"
)

// Errors that callers tell apart with errors.Is.
var (
	// ErrNotFound: there is no such job, assignment or generation.
	ErrNotFound = errors.New("not found")
	// ErrConflict: another wrote first; read again and decide anew.
	ErrConflict = errors.New("conflict")
	// ErrCorrupt: a record does not decode or fails its checksum; the error names its key.
	ErrCorrupt = errors.New("corrupt record")
	// ErrUnavailable: the store did not answer in time, or has no quorum.
	ErrUnavailable = errors.New("store unavailable")
	// ErrFenced: the job lease is not that of the writer any more. Nothing was written.
	ErrFenced = errors.New("job lease was lost")
	// ErrClosed: the store has been closed here.
	ErrClosed = errors.New("store closed")
)

// ConflictError is an ErrConflict that says what is stored instead.
type ConflictError struct {
	Key string
	// Current is the generation or version that is stored, 0 if there is none.
	// For a first assignment of a job that was deleted and made anew it may be
	// the last generation that the job had: it must be exceeded, so pass it to
	// assignment.NextGeneration as reported.
	Current int64
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("conflict on %s: %d is stored", e.Key, e.Current)
}

// Is makes errors.Is(err, ErrConflict) true.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// Job is a stored job config.
type Job struct {
	Config assignment.JobConfig
	// Version increases by one with each write, from 1; it does not start again
	// when a job is deleted and made anew.
	Version int64
	// CreatedBy is the identity that has created it: that of the Entry's stamp in PutJobBy.
	// Later writes keep it. Empty when it was not known.
	CreatedBy string
}

// Versions for PutJob.
const (
	AnyVersion int64 = 0  // replace whatever is stored, or create
	NoVersion  int64 = -1 // create; conflict if it exists
)

// Store keeps assignments and job configs. All methods are safe for concurrent
// use, obey ctx, and return errors that match one of the above or ctx's.
type Store interface {
	// ID names this store: random, made with it, never 0.
	ID() uint64

	Journal
	NameKeeper

	// GetJob returns a job's config, or ErrNotFound.
	GetJob(ctx context.Context, name string) (Job, error)
	// ListJobs returns all jobs in order of name. Jobs whose config is corrupt are
	// left out and named by an error that comes together with the others.
	ListJobs(ctx context.Context) ([]Job, error)
	// PutJob writes a valid config if expect is the stored version (or AnyVersion,
	// or NoVersion), and returns what is stored now.
	PutJob(ctx context.Context, c assignment.JobConfig, expect int64) (Job, error)
	// DeleteJob removes the config, the overrides, the names, the history and every assignment of
	// the job, corrupt or not, or returns ErrNotFound. Versions and generations of a
	// job made anew under the name go on where these end.
	DeleteJob(ctx context.Context, name string) error

	// Read returns the newest assignment of a job, whole, or ErrNotFound when
	// the job has none yet (or is unknown).
	Read(ctx context.Context, job string) (*assignment.Assignment, error)
	// ReadGeneration returns a generation that is still kept, or ErrNotFound.
	ReadGeneration(ctx context.Context, job string, g assignment.Generation) (*assignment.Assignment, error)
	// Write stores next if its Previous is the newest stored generation (0: none),
	// next's store id is ID() and the job exists; else ErrConflict or ErrNotFound.
	// Generations never go backwards, not even when the job is deleted between:
	// see ConflictError. After an error that is neither, next may or may not have
	// been stored; it never is in part.
	Write(ctx context.Context, next *assignment.Assignment) error

	// Watch starts to watch all jobs. See Watcher.
	Watch(ctx context.Context) (Watcher, error)

	// Check reports why the store cannot be read at this moment, or written if write
	// is set; nil when it can. It changes nothing, and tries again until ctx ends. A
	// watch goes on through an outage in silence, so health is learned here.
	Check(ctx context.Context, write bool) error

	// Close releases what the store holds here and ends its watchers and registrations.
	Close() error
}

// Fencer is a Store that lies beside the leases of jobs in consistent mode and
// can compare them.
type Fencer interface {
	// WriteFenced is Write on condition that, in the moment in which next is stored,
	// token is that of the job lease; else it returns ErrFenced.
	WriteFenced(ctx context.Context, next *assignment.Assignment, token int64) error
}

// Watcher tells which jobs have changed, in config or assignment. It holds at
// most one pending entry a job, however slow the reader.
type Watcher interface {
	// Next waits until some job has changed since it was last named, and returns
	// those that have, in order of name. The first call names every job there
	// is at once, none if there are none. A deleted job is named too. After a
	// broken connection it may name jobs that have not changed. It returns ctx's
	// error, or ErrClosed.
	Next(ctx context.Context) (Changes, error)
	// Close ends the watch and waits for what it runs.
	Close() error
}

// Change is a job that has changed, and what was stored of it then, so that a process
// which knows that already, as after a write of its own, need not read it. Each is 0 when
// there is none, and below 0 when it is not known.
type Change struct {
	Job        string
	Version    int64 // of the config
	Generation assignment.Generation
	Overrides  int64 // their version
}

// Changes are of different jobs.
type Changes []Change

// Jobs are the names.
func (cs Changes) Jobs() []string {
	names := make([]string, len(cs))
	for i, c := range cs {
		names[i] = c.Job
	}
	return names
}

// Candidate is an assigner that can be preferred.
type Candidate struct {
	ID      string `json:"id"`
	Address string `json:"address"`
	Zone    string `json:"zone,omitempty"`
}

// Registry is where assigners register. A Store implements it.
type Registry interface {
	// Register enters c, which disappears when the registration is closed, or
	// when its process is dead for a lease of a few seconds. An entry of the
	// same id is replaced.
	Register(ctx context.Context, c Candidate) (Registration, error)
	// Candidates starts to watch which assigners are registered.
	Candidates(ctx context.Context) (CandidateWatcher, error)
}

// Registration is one entry of the registry. When its lease is lost it enters
// itself again, until closed.
type Registration interface {
	// State reports how often the entry had to be written anew, because its lease was
	// lost or the record was not what had been written, and why it may not be in the
	// store just now: nil while it was there when it was last looked at, which is some
	// seconds ago at most.
	State() (rewritten int, err error)
	// Close withdraws the entry and waits for what keeps it.
	Close() error
}

// CandidateWatcher tells which assigners are registered.
type CandidateWatcher interface {
	// Next waits until the candidates have changed since the last call, and
	// returns all of them in order of id, and the revision of the view, which
	// increases. The first call returns at once.
	Next(ctx context.Context) ([]Candidate, int64, error)
	// Close ends the watch and waits for what it runs.
	Close() error
}

// Usage is how much room a store takes, in bytes. A field that is not known is 0.
type Usage struct {
	// Size is that of the largest member's database file, and InUse the part of it
	// that is not free for what is written next.
	Size, InUse int64
	// Quota is the size at which the store takes no more writes.
	Quota int64
	// Uncompacted is how many revisions are kept besides the newest, and Compacted the
	// last that is not kept any more.
	Uncompacted, Compacted int64
}

// Compactor is a Store that keeps what was overwritten until it is compacted.
type Compactor interface {
	// Usage asks for the room that the store takes.
	Usage(ctx context.Context) (Usage, error)
	// Revision is that of the newest write, of any user of the same database.
	Revision(ctx context.Context) (int64, error)
	// Compact drops what was overwritten or deleted up to a revision, for all users of
	// the same database. That it is compacted so far already is no error.
	Compact(ctx context.Context, rev int64) error
	// CompactsBy is what makes the database compact by itself, for an operator.
	CompactsBy() string
}

// Backend is what an implementation provides and a process opens.
type Backend interface {
	Store
	Registry
	// Failed is closed when the store can never work again in this process: its
	// disk is full or broken, or it was wiped and made anew under it. Every call
	// returns ErrUnavailable from then on, nothing that was acknowledged is lost,
	// and the process should end; a new one may fare better.
	Failed() <-chan struct{}
	// Err says why Failed is closed, nil while it is open.
	Err() error
}
