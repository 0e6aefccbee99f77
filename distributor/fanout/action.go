package fanout

import (
	"log/slog"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/distributor/internal/prepared"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// Action is something to be done: one of the types below.
type Action interface{ action() }

type (
	// Timer is the answer to a Tick: when the next one is due at the latest, zero if
	// nothing is awaited.
	Timer struct{ At time.Time }
	// Due asks for a Tick soon: other things may be due than the last Timer knew.
	Due struct{}
	// Log is a line for the log.
	Log struct {
		Level   slog.Level
		Message string
		Attrs   []any
	}
	// Changed says that what Fetched and ClientAsks wait for may have come.
	Changed struct{}
	// Known says that a store is known to have the job.
	Known struct{}
	// AccessChanged says that those who were let in may have to go, and that what AccessAsked
	// waits for has come: the job's config says something else of rights now.
	AccessChanged struct{}
	// Pause asks that hardly any connections are set up for now, since subscribers that
	// are connected wait for an assignment; Resume ends it.
	Pause  struct{}
	Resume struct{}
)

// Actions on subscribers.
type (
	// Wake says that a subscriber lacks something: Ready is to be asked for it until
	// there is no Send, nor CutPart.
	Wake struct{ ID uint64 }
	// Send is what to send to the subscriber that was Ready: an assignment, or with ""
	// as Kind a status.
	Send struct {
		ID       uint64
		Messages *prepared.Messages
		Kind     string
	}
	// CutPart asks a subscriber that was Ready for what its Cut makes, which is to be the next
	// event of that subscriber's, in the place of Ready: its answer is that of Ready.
	CutPart struct {
		id       uint64
		task     string
		of, from *assignment.Cut // of the newest, and of what is held, nil if that is not known
	}
	// Served says that a subscriber has been sent what there was for it at first.
	Served struct{ ID uint64 }
	// End ends a subscriber's stream, which is to be followed by Left.
	End struct {
		ID  uint64
		Err error // a gRPC status
	}
	// Refuse is the answer to a Came, or a ClientCame, that is not let in.
	Refuse struct {
		ID  uint64
		Err error // a gRPC status
	}
	// Found is the answer to Fetched: a whole assignment, or a gRPC status.
	Found struct {
		Messages *prepared.Messages
		Err      error
	}
	// Access is the answer to AccessAsked: what the job's config says of rights, the zero value
	// where there is no such job. An error, a gRPC status, says that it is not known.
	Access struct {
		Access assignment.Access
		Err    error
	}
	// Newest is the answer to ClientAsks: the newest assignment, or none yet; then it is
	// to be asked again after so long, or before that when there is a Changed. An error, a
	// gRPC status, says that there will be none.
	Newest struct {
		Assignment *assignment.Assignment
		Again      time.Duration
		Err        error
	}
)

// Actions on streams upwards.
type (
	// Notify says that there is something to be told to a peer: PeerReady is to be asked
	// for it when the stream has room.
	Notify struct{ Session Session }
	// Tell is the answer to PeerReady. Target says that assignments of the job are wanted
	// from this peer.
	Tell struct {
		Messages []*slicerv1.AttachRequest
		Target   bool
	}
	// Judged is the answer to Offered.
	Judged struct{ Verdict Verdict }
)

// Kinds of updates, as they are called in metrics.
const (
	KindWhole      = "whole"
	KindCompressed = "compressed" // whole, too
	KindDelta      = "delta"
	KindPart       = "part" // whole or as a delta
)

func (Timer) action()         {}
func (Due) action()           {}
func (Log) action()           {}
func (Changed) action()       {}
func (Known) action()         {}
func (AccessChanged) action() {}
func (Access) action()        {}
func (Pause) action()         {}
func (Resume) action()        {}
func (Wake) action()          {}
func (Send) action()          {}
func (CutPart) action()       {}
func (Served) action()        {}
func (End) action()           {}
func (Refuse) action()        {}
func (Found) action()         {}
func (Newest) action()        {}
func (Notify) action()        {}
func (Tell) action()          {}
func (Judged) action()        {}
