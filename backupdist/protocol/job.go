package protocol

import (
	"fmt"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// Job is what is known of one job, and when it is to be read again. It is not safe for
// concurrent use.
type Job struct {
	name    string
	state   State
	stale   bool // the store may have something newer
	reading bool
	pace    pace
}

// State is what the store says of a job. It is never changed.
type State struct {
	Known   bool  // the store has answered
	Missing bool  // with Known: there is no such job
	Err     error // without Known: why not; nil before the first answer
	Home    int   // of a job that is there: the store that has it
	Config  assignment.JobConfig
	// Newest is nil while there is no assignment. Base is what deltas to it are based on,
	// nil if there are none.
	Newest, Base *assignment.Assignment
	// Parts and BaseParts are theirs.
	Parts, BaseParts *assignment.Cut
	// quotas are the limits of the config, nil if there are none.
	quotas *slicerv1.Quotas
}

// Reading is what the reading of a job came to.
type Reading struct {
	Err        error // no answer
	Exists     bool
	Home       int
	Config     assignment.JobConfig
	Assignment *assignment.Assignment // nil: it has none
}

// NewJob returns one that has not been read.
func NewJob(name string) *Job { return &Job{name: name, stale: true} }

// State is what is known now.
func (j *Job) State() State { return j.state }

// Changed says that the store may have something newer.
func (j *Job) Changed() { j.stale = true }

// Needed says that a subscriber has come: a job that is said to be missing may exist by
// now.
func (j *Job) Needed() { j.stale = j.stale || j.state.Missing }

// Aged reports whether the store may have something newer than what is known.
func (j *Job) Aged() bool { return j.stale || j.reading }

// Next is what to do with the job now, which is idle if no subscriber needs it. A wait
// below 0 is for ever.
func (j *Job) Next(now time.Time, idle bool) (do Todo, wait time.Duration) {
	return j.pace.next(now, j.stale, j.state.Missing, idle)
}

// Begin begins a reading: what changes from now on may not be in it.
func (j *Job) Begin() { j.stale, j.reading = false, true }

// Read takes what a reading came to, or returns why there is nothing to take. What is
// known stays when the store does not answer. share, below 1, is a random one of the wait
// for the next attempt.
func (j *Job) Read(now time.Time, r Reading, idle bool, share float64) error {
	next, err := j.merge(r)
	if err != nil {
		if next = j.state; !next.Known {
			next.Err = err
		}
	}
	j.stale, j.reading, j.state = j.stale || err != nil, false, next
	j.pace.read(now, err, idle, share)
	return err
}

// merge is what is to be known: the newest assignment, whatever the store says.
func (j *Job) merge(r Reading) (State, error) {
	switch a := r.Assignment; {
	case r.Err != nil:
		return State{}, r.Err
	case !r.Exists:
		return State{Known: true, Missing: true}, nil
	case a != nil && a.Job() != j.name:
		return State{}, fmt.Errorf("the store holds an assignment of job %q for it", a.Job())
	}
	next := State{Known: true, Home: r.Home, Config: r.Config}
	switch l := r.Config.Limits; {
	case !limited(r.Config):
	case j.state.quotas != nil && l.Equal(j.state.Config.Limits):
		next.quotas = j.state.quotas
	default:
		next.quotas = wire.QuotasToProto(nil, &l)
	}
	switch old, a := j.state.Newest, r.Assignment; {
	case a == nil:
	case !a.Newer(old):
		next.Newest, next.Base, next.Parts, next.BaseParts = old, j.state.Base, j.state.Parts, j.state.BaseParts
	case old != nil && old.StoreID() == a.StoreID():
		next.Newest, next.Base, next.Parts, next.BaseParts = a, old, assignment.NewCut(a), j.state.Parts
	default:
		next.Newest, next.Parts = a, assignment.NewCut(a)
	}
	return next, nil
}
