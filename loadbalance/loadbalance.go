package loadbalance

import (
	"time"

	"github.com/slicer-project/slicer/assignment"
)

// Report is what one task measured last.
type Report struct {
	Task        string
	Incarnation uint64
	Load        assignment.Load
}

// Loads is the load of a job by slice of one assignment, in units a second.
// Measure makes it from reports; a simulation may make it itself.
type Loads struct {
	// Window is the time over which they were measured: the shorter, the less is made
	// of few requests. 0 is Input.Elapsed.
	Window time.Duration
	// Slice has one value a slice of the assignment, over all its replicas; NaN
	// when nothing is known about it.
	Slice []float64
	// Task has one value a task of the assignment's table: all that it carried
	// of its own slices.
	Task []float64
	// CPU utilization of each task, 0 to 1; nil when not known.
	CPU []float64
	// Shed is what each task refused for want of room, a second; nil when none did. What
	// of it counts as load is in Slice and Task already: it only says why something moves.
	Shed []float64
	// Unserved is what of Task each task was asked for and did not serve, as there was no
	// room for it; nil when there is none. It says what a task can carry: what it served
	// of All, which is Task and what it carried of slices that it had before; nil is Task.
	Unserved, All []float64
	// Parts equal parts of each slice are known apart in Part, slice after
	// slice; nil when they are not.
	Parts int
	Part  []float64
	// Hot keys, heaviest first, over all tasks.
	Hot []assignment.HotKey
}

// Input is what a round of balancing depends on.
type Input struct {
	// Prev is the assignment in force, nil when the first is to be made.
	Prev *assignment.Assignment
	// Tasks is the task table of the next assignment, in order of Index. Running
	// tasks may own slices; starting, draining and dead ones lose theirs.
	// A task of Prev that is not here is gone.
	Tasks []assignment.Task
	// Ages is how long each of Tasks, by position, has been there to own slices; below
	// 0 where that is not known, as for those that a new assigner finds there. Such
	// tasks are warm, as are all when it is nil. See Warmth.
	Ages []time.Duration
	// Config has its defaults and is valid.
	Config assignment.JobConfig
	// Published makes the round follow the paper to the letter, to compare with; see the
	// package's documentation.
	Published bool
	// Loads are by slice of Prev; nil when there are none yet.
	Loads *Loads
	// Elapsed is the time since the loads were last measured anew, for smoothing;
	// 0 when they are those of the last round.
	Elapsed time.Duration
	// State is what the last round returned, nil at first. It is not changed.
	State *State
	// Fixed are ranges of keys that stay at one task each, in order of key and not
	// overlapping. Those whose task may not own anything just now do not count.
	Fixed []Fixed
	// MembershipOnly leaves out the phases that depend on load (3 to 5): a task
	// came or went and a task has to own its slices at once.
	MembershipOnly bool
	// Work is memory to work in, which no other round may use meanwhile; nil for new.
	// Nothing depends on it.
	Work *Workspace
}

// Fixed has a range of keys owned by one task alone, however hot it is and
// whatever the smallest number of replicas. It is cut out of the slices that it is
// part of, and what it carries counts as that task's.
type Fixed struct {
	Slice assignment.Slice
	Task  string
}

// Output is what a round decided.
type Output struct {
	// Changed is false when Placement is that of Prev.
	Changed bool
	// Placement's owners are positions in Input.Tasks. It is empty when there is
	// no task to own anything: then the assignment in force stays.
	Placement assignment.Placement
	Decisions []Decision
	Stats     Stats
	// Load is what each of Input.Tasks is expected to carry by that; nil while no load is
	// known.
	Load []float64
	// State is for the next round.
	State *State
}

// Kind is what a decision does.
type Kind string

// Kinds of decisions.
const (
	KindAssign    Kind = "assign"    // the first owner
	KindReassign  Kind = "reassign"  // away from a task that may not own it
	KindReplicate Kind = "replicate" // one more owner
	KindRemove    Kind = "remove"    // one owner fewer
	KindMove      Kind = "move"      // another owner
	KindEject     Kind = "eject"     // a compound move that makes room for a hot slice
	KindSplit     Kind = "split"
	KindMerge     Kind = "merge"
	KindSkip      Kind = "skip" // something was left undone, Reason says why
)

// Reason is why, in one short phrase of a fixed set, fit for a metric label.
type Reason string

// Reasons of decisions and of skipped rounds.
const (
	ReasonFirst       Reason = "first assignment"
	ReasonTaskGone    Reason = "task gone"
	ReasonTaskDead    Reason = "task dead"
	ReasonTaskDrains  Reason = "task draining"
	ReasonTaskLeaving Reason = "task may not own"
	ReasonRestarted   Reason = "task restarted"
	ReasonNewTask     Reason = "new task"
	ReasonWarming     Reason = "new task warms up"
	ReasonPinned      Reason = "pinned"
	ReasonTooFew      Reason = "below min replicas"
	ReasonTooMany     Reason = "above max replicas"
	ReasonEnough      Reason = "enough replicas left"
	ReasonCold        Reason = "cold neighbours"
	ReasonSameTasks   Reason = "neighbours on the same tasks"
	ReasonHotTask     Reason = "hottest task"
	ReasonShed        Reason = "hottest task has no room" // it refuses requests
	ReasonHotSlice    Reason = "hot slice"
	ReasonHotKey      Reason = "hot key"
	ReasonRoom        Reason = "room for a hot slice"
	ReasonBursts      Reason = "load in bursts"
	ReasonSurplus     Reason = "surplus replica"
	ReasonNoTask      Reason = "no running task"
	ReasonNoLoad      Reason = "no load known"
	ReasonMembership  Reason = "membership only"
	ReasonIdleCPU     Reason = "cpu below threshold"
	ReasonStuck       Reason = "no move cools the hottest task"
	ReasonBudget      Reason = "move budget spent"
)

// Decision is one step of a round.
type Decision struct {
	Kind   Kind
	Reason Reason
	Slice  assignment.Slice
	// From and To are names of tasks, empty where there is none.
	From, To string
	// Benefit is what it is for, in a measure that goes with the kind; larger is
	// better.
	//   - Off the hottest task: by how much the sum of squared overloads falls, each
	//     as a share of the level; with Input.Published by how much the
	//     largest load falls among those that it touches, as a share of the mean.
	//   - To a new task, and replicas against bursts: the share of the load that the
	//     task takes on; of the keyspace while no load is known.
	//   - Otherwise an owner, or one more: the share of the keyspace that gets it.
	//   - An owner or a slice fewer: 1.
	//   - Split: how many times the load of the mean slice the slice has, or which
	//     share of its load is that of the hot key; 1 if it is not for load.
	//   - Skip: by how much the hottest task stays above where it should be, as a
	//     share of that, 0 while no load is known; or the share of its capacity that
	//     a task is not given yet.
	Benefit float64
	// KeyChurn is the share of the keyspace and LoadChurn the share of the load
	// that comes to a task that did not own it. Where a merge gives keys to several,
	// the first has the KeyChurn.
	KeyChurn, LoadChurn float64
}

// Stats sums up a round.
type Stats struct {
	// Imbalance is the largest task load over the mean, by capacity, before and
	// after; 0 when there is no load.
	ImbalanceBefore, ImbalanceAfter float64
	// Floor is what no assignment of whole keys can go below, at least 1.
	Floor float64
	// KeyChurn is the share of the keyspace that got a task which did not own it,
	// one or several, and LoadChurn the share of the load that such tasks carry.
	KeyChurn, LoadChurn float64
	Slices, Owners      int
	// Skipped says why the load phases did nothing; empty when they ran.
	Skipped Reason
}
