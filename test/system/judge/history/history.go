// Package history is what the processes of a judged run write down and what is made of it
// afterwards: facts about which owner believed in which key when, and what clients did to
// registers. All times are boottime.Now, which is the same in every process and
// namespace of one machine.
package history

import (
	"time"

	"github.com/slicer-project/slicer/assignment"
)

// Fact is a belief that was seen for certain: a check of a key was answered with
// yes. A check takes time, so it proves a belief at some moment between its
// beginning and its end. Two yes to one handle prove it for all the time between
// the end of the first and the beginning of the second.
type Fact struct {
	Key   string
	Owner string                // an incarnation of a slicelet
	Token assignment.Generation // 0 if not known
	// Began and Ended bound it. Throughout says that the owner believed at every
	// moment from Began to Ended, otherwise at some moment in between, both
	// included.
	Began, Ended time.Duration
	Throughout   bool
}

// Op is an operation of a client on a register.
type Op struct {
	Client, Key string
	// Write replaces the value by Arg; a read leaves it. Both return the value
	// that was there before, which is Got.
	Write    bool
	Arg, Got string
	// Unknown: there was no answer, so a write may have been carried out, or may be at
	// any time after Call. Got and Return say nothing.
	Unknown      bool
	Call, Return time.Duration
}

// Told is a call of a slicelet's listener.
type Told struct {
	Owner    string
	At       time.Duration // when it began
	Arrived  []assignment.Slice
	Departed []assignment.Slice
}

// Rate is how a caller's calls have fared that ended in the second before At.
type Rate struct {
	Client                   string
	At                       time.Duration
	Asked, Satisfied, Served int
}

// Standstill is a time in which an owner did not look at its handles, though it
// should have: its process was stopped, or had no CPU.
type Standstill struct{ From, To time.Duration }

// History is all of it.
type History struct {
	Facts []Fact
	Ops   []Op
	Told  []Told
	Rates []Rate
	// Standstills by owner, of StandstillAtLeast or longer.
	Standstills map[string][]Standstill
	Counts      map[string]int
	// Checks is how many answers were yes.
	Checks int
}

// StandstillAtLeast is the shortest that is noted.
const StandstillAtLeast = 100 * time.Millisecond
