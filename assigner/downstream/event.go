package downstream

import (
	"iter"
	"time"

	"github.com/slicer-project/slicer/assigner/clientindex"
	"github.com/slicer-project/slicer/assigner/generate"
	"github.com/slicer-project/slicer/assigner/membership"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/access"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// Session is one stream of a Distributor, never the same twice.
type Session = membership.Session

// Event is something that has happened to a job: one of the types below.
type Event any

// Events of a Distributor's stream.
type (
	// Attached says that a stream has begun.
	Attached struct {
		From Session
		Name string // the Distributor's
	}
	// Detached says that it has ended.
	Detached struct{ From Session }
	// Said is what has come on it: one of the types below. What comes on a stream that is
	// not attached is left out.
	Said struct {
		From Session
		What any
	}
	// BaseRead is the end of a ReadBase: that assignment, nil if there is none.
	BaseRead struct {
		Of         ReadBase
		Assignment *assignment.Assignment
	}
	// Ready asks what a Distributor is to be told next, after a Notify. Say is the answer;
	// without one there is nothing until the next Notify.
	Ready struct{ To Session }
)

// What a Distributor says of a job.
type (
	// Want says that the job's assignments are wanted, or not any more.
	Want struct {
		Stop   bool
		Held   Mark          // what the Distributor holds
		Newest generate.Held // what its slicelets hold: nothing older of that store is sent

		Compressed bool // it reads compressed wholes
	}
	// Reports are of tasks. They are cleared: the memory is the caller's to use again.
	Reports struct {
		Complete bool
		Reports  []generate.Report
		said     []saidOf // what clients of the same tasks need to know
	}
	// Acks is how far the subscribers are.
	Acks struct {
		generate.Acks
		progress *acked
	}
	// Clients are all, or those that have changed.
	Clients struct {
		Complete bool
		Clients  []clientindex.Client
	}
	// Uses is what customers ask of the Distributor's tasks.
	Uses struct {
		Uses     []assignment.CustomerUse
		Names    []string
		Capacity float64 // of the tasks
		Asks     bool    // for the limits
	}
	// WantBase asks for an older assignment, which may be Compressed. ReadBase is the answer if
	// it is not kept here.
	WantBase struct {
		Held       Mark
		Compressed bool
	}
)

// Other events.
type (
	// Tick is due when the wait of the last Do is over, and after every other event but
	// Ready. Do is the answer. Heard is when each Distributor last said something, on the
	// monotonic clock. Policy is the one in force, nil for none.
	Tick struct {
		Heard  iter.Seq2[Session, time.Duration]
		Policy *access.Policy
	}
	// Core is what has happened to the job's core alone: an answer of the store, another
	// assigner that is preferred.
	Core = func(c *generate.Core, now generate.Now)
)

// Action is something to be done: one of the types below, or a generate.Outputs.
type Action any

type (
	// Notify says that a Distributor is to be told something: see Stream.Mark.
	Notify struct{ To Session }
	// Drop says that nothing is kept of what a Distributor has said: see Stream.Drop.
	Drop struct{ From Session }
	// Refuse ends the stream of a task at a Distributor: see Stream.Refuse.
	Refuse struct {
		To      Session
		Message *slicerv1.RefuseTask
	}
	// Prefer asks which assigner is to be preferred: the job has come or gone, or its
	// config is another one.
	Prefer struct{}
	// Turned says that the assignment, the preference or what is in force is another one.
	// Mine says that this assigner is preferred from now on.
	Turned struct{ Mine bool }
	// Do is the answer to a Tick: what to do for the core, or if that is nil how long to
	// wait at most until the next one.
	Do struct {
		Action generate.Action
		Wait   time.Duration
	}
	// ReadBase asks for an older assignment to be read from the store; BaseRead is to follow.
	ReadBase struct {
		For  Session
		Held Mark

		Compressed bool // what is read may be
	}
)
