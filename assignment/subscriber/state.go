package subscriber

import (
	"errors"

	"github.com/slicer-project/slicer/assignment/subscriber/protocol"
)

// What a subscriber is and knows, in the protocol's words.
type (
	Role          = protocol.Role
	State         = protocol.State
	TaskCondition = protocol.TaskCondition
	Status        = protocol.Status
	Source        = protocol.Source
	Counters      = protocol.Counters
)

const (
	Clerk    = protocol.Clerk
	Slicelet = protocol.Slicelet
	Observer = protocol.Observer

	None        = protocol.None
	Cache       = protocol.Cache
	Backup      = protocol.Backup
	Distributor = protocol.Distributor

	MaxClientIndex = protocol.MaxClientIndex
)

// Errors that State.Err and Ready's error may match.
var (
	ErrUnknownJob    = protocol.ErrUnknownJob
	ErrTaskNameTaken = protocol.ErrTaskNameTaken
	ErrNotAllowed    = protocol.ErrNotAllowed
	ErrUnavailable   = protocol.ErrUnavailable
	// ErrClosed: Close was called.
	ErrClosed = errors.New("closed")
)
