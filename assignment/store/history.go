package store

import (
	"context"
	"fmt"
	"math"

	"google.golang.org/protobuf/proto"

	"github.com/slicer-project/slicer/assignment"
)

const (
	// MaxEntrySize bounds an encoded Entry, in bytes.
	MaxEntrySize = 32 << 10
	// MaxHistory is the most entries of either kind that a job may keep.
	MaxHistory = assignment.MaxHistory
	// KeptOrders is how many orders the history of a deleted job keeps: enough to see
	// who deleted it and what came before, 30 KiB at most.
	KeptOrders = 16
	// maxDecisions is more than MaxEntrySize has room for.
	maxDecisions = 4096
	maxWord      = 64
)

// Entry is one line of a job's history: an order, or a generation.
type Entry struct {
	// Order is the order's number; of a generation, that of the newest order under
	// which it was decided, 0 if there was none. So the two kinds have one order.
	Order int64
	// Action is what was ordered, in words; empty for a generation.
	Action               string
	Generation, Previous assignment.Generation
	// Assigner is the id of the one that took the order, or wrote the generation.
	Assigner string
	// Stamp is the order's. Of a generation Who is empty unless an operator ordered
	// it, When is when it was made and Why the reason of its round.
	Stamp
	// Of a generation: the shares of the keyspace and of the load that came to a
	// task which did not own it, and the largest task load over the mean before
	// and after, 0 without load.
	KeyChurn, LoadChurn             float64
	ImbalanceBefore, ImbalanceAfter float64
	// Decisions are in the order in which they were taken; LeftOut counts those for
	// which there was no room.
	Decisions []Decision
	LeftOut   int
	// Penalties are those of tasks that had failed of late, when the generation was
	// decided: an assigner that takes over goes on from there. At most MaxPenalties,
	// the largest, in order of task.
	Penalties []Penalty
}

// MaxPenalties bounds those of an Entry.
const MaxPenalties = 64

// Penalty is how often a task has failed of late, as assignment.DampingConfig counts.
type Penalty struct {
	Task   string
	Amount float64
	Damped bool // it owned nothing because of that
}

// Decision is one of a round, as package loadbalance takes it.
type Decision struct {
	Kind, Reason                 string
	Slice                        assignment.Slice // empty when it is about none
	From, To                     string
	Benefit, KeyChurn, LoadChurn float64
}

// Creator is the identity that has created the job that is written together with the entry;
// empty for no entry, nil.
func (e *Entry) Creator() string {
	if e == nil {
		return ""
	}
	return e.Identity
}

// Fit leaves out decisions from the end until the entry is within MaxEntrySize.
func (e *Entry) Fit() {
	if len(e.Decisions) <= maxDecisions && proto.Size(EntryToProto(*e)) <= MaxEntrySize {
		return
	}
	lo, hi := 0, min(len(e.Decisions), maxDecisions) // so many fit, and at most so many may
	all, left := e.Decisions, e.LeftOut
	for {
		n := (lo + hi + 1) / 2
		e.Decisions, e.LeftOut = all[:n], left+len(all)-n
		switch fits := proto.Size(EntryToProto(*e)) <= MaxEntrySize; {
		case n == lo:
			return
		case fits:
			lo = n
		default:
			hi = n - 1
		}
	}
}

// Validate names the first field that is not allowed.
func (e *Entry) Validate() error {
	switch {
	case e.Order < 0 || e.Order > maxOrder || e.Action != "" && e.Order == 0:
		return &assignment.FieldError{Field: "order", Value: e.Order, Allowed: "the number of the order"}
	case e.Action == "" && e.Generation == 0:
		return &assignment.FieldError{Field: "action", Value: "missing", Allowed: "what was ordered, or a generation"}
	case e.Previous < 0 || e.Previous > assignment.MaxGeneration || e.Generation != 0 && e.Previous >= e.Generation:
		return &assignment.FieldError{Field: "previous", Value: int64(e.Previous), Allowed: "below the generation"}
	case e.LeftOut < 0 || e.LeftOut > math.MaxInt32:
		return &assignment.FieldError{Field: "left out", Value: e.LeftOut, Allowed: "0 or more"}
	case len(e.Decisions) > maxDecisions:
		return &assignment.FieldError{Field: "decisions", Value: len(e.Decisions), Allowed: fmt.Sprintf("at most %d", maxDecisions)}
	}
	if e.Generation != 0 {
		if err := ValidateGeneration(e.Generation); err != nil {
			return err
		}
	}
	if err := firstOf(ValidateWords("action", e.Action, 2*MaxWhy), ValidateWords("assigner", e.Assigner, MaxWho), e.Stamp.Validate(),
		numbers(e.KeyChurn, e.LoadChurn, e.ImbalanceBefore, e.ImbalanceAfter)); err != nil {
		return err
	}
	for i := range e.Decisions {
		if err := e.Decisions[i].validate(); err != nil {
			return err
		}
	}
	if len(e.Penalties) > MaxPenalties {
		return &assignment.FieldError{Field: "penalties", Value: len(e.Penalties), Allowed: fmt.Sprintf("at most %d", MaxPenalties)}
	}
	for i, p := range e.Penalties {
		if err := firstOf(ValidateTaskName(p.Task), numbers(p.Amount)); err != nil {
			return err
		}
		if p.Amount < 0 || i > 0 && p.Task <= e.Penalties[i-1].Task {
			return &assignment.FieldError{Field: "penalty", Value: p.Task, Allowed: "tasks in order, each once, with 0 or more"}
		}
	}
	return nil
}

func (d *Decision) validate() error {
	if d.Slice != (assignment.Slice{}) {
		if err := d.Slice.Valid(); err != nil {
			return err
		}
	}
	for _, name := range []string{d.From, d.To} {
		if name != "" {
			if err := ValidateTaskName(name); err != nil {
				return err
			}
		}
	}
	return firstOf(ValidateWords("kind", d.Kind, maxWord), ValidateWords("reason", d.Reason, maxWord), numbers(d.Benefit, d.KeyChurn, d.LoadChurn))
}

// numbers refuses what is none.
func numbers(vs ...float64) error {
	for _, v := range vs {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return &assignment.FieldError{Field: "number", Value: v, Allowed: "a finite number"}
		}
	}
	return nil
}

// Commit is an assignment to be stored, and what is stored together with it or
// not at all.
type Commit struct {
	Next *assignment.Assignment
	// Token is compared with the job lease's as Fencer.WriteFenced does, unless it
	// is 0 or the store is no Fencer.
	Token int64
	// Overrides is the version of the overrides under which Next was decided: when
	// others are stored, nothing is, and the error is ErrConflict. So nothing that
	// was decided before an order is stored after it. AnyVersion does not compare;
	// NoVersion stands for version 0.
	Overrides int64
	// Fulfills says that Next carries the overrides' Rollback out: they become what
	// Overrides.Fulfilled says. It needs Overrides.
	Fulfills bool
	// Entry goes into the history, of which the newest Keep generations stay. With
	// nil the history stays as it is.
	Entry *Entry
	Keep  int
}

// Journal keeps the orders of operators, and the history of a job. A Store
// implements it.
type Journal interface {
	// Commit is Write with what Commit says.
	Commit(ctx context.Context, c Commit) error

	// Overrides returns those in force, or ErrNotFound when there is no such job. When
	// none was given yet only their Version may be set, to that of a job of the name that
	// was deleted before.
	Overrides(ctx context.Context, job string) (Overrides, error)
	// PutOverrides stores next, which is valid, if those stored are of the version
	// before; else it returns ErrConflict. With it goes the order's entry, whose Order
	// is next's version, into the history, of which the newest keep orders stay.
	// ErrNotFound is as above. After an error that is neither, both may have been
	// stored, or neither.
	PutOverrides(ctx context.Context, job string, next Overrides, order Entry, keep int) error

	// PutJobBy is PutJob, and DeleteJobBy DeleteJob, together with an entry about it in
	// the history, or not at all. The store numbers the entry as the next order; the
	// overrides in force stay as they are. Of a job that is deleted so the newest
	// KeptOrders orders stay in the history, this one the last, and the history of a job
	// made anew under the name goes on from there.
	PutJobBy(ctx context.Context, c assignment.JobConfig, expect int64, by Entry) (Job, error)
	DeleteJobBy(ctx context.Context, name string, by Entry) error

	// History returns what is kept of a job's history, at most limit entries of each
	// kind, the newest, in the order in which things were done; or ErrNotFound when
	// there is no such job, nor anything kept of one.
	// Entries that are corrupt are left out and named by an error that comes
	// together with the others.
	History(ctx context.Context, job string, limit int) ([]Entry, error)
}
