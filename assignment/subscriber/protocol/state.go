package protocol

import (
	"errors"
	"slices"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// Role is what a subscriber is to its job.
type Role uint8

const (
	// Clerk routes requests.
	Clerk Role = iota + 1
	// Slicelet serves them, and reports.
	Slicelet
	// Observer looks on; nothing waits for it.
	Observer
)

// MaxClientIndex bounds the index of a clerk among its job's clients.
const MaxClientIndex = 1<<24 - 1

// Source is where an assignment comes from.
type Source uint8

const (
	None Source = iota
	// Cache is the cache file.
	Cache
	// Backup is a Backup Distributor.
	Backup
	// Distributor is an ordinary Distributor.
	Distributor
)

var sourceNames = [...]string{"none", "cache", "backup", "distributor"}

func (s Source) String() string { return sourceNames[s] }

// State is all that a subscriber knows at one moment. It is never changed.
type State struct {
	// Assignment is the newest there was, nil if there was none yet.
	Assignment *assignment.Assignment
	// Source is where Assignment came from.
	Source Source
	// Link is the kind of server that serves at this moment: Distributor, Backup or None.
	Link Source
	// Peer is that server's address.
	Peer string
	// ClientIndex is a clerk's index among the clients of its job: the one configured,
	// or that a Distributor has given last; -1 while there is none. It is kept when
	// Distributors die, and with a cache file across restarts.
	ClientIndex int
	// Disconnected is set when no Distributor could be brought to serve: Backup
	// Distributors are used then, if there are any.
	Disconnected bool
	// Status is the newest that a server has said about the job.
	Status Status
	// Quotas are how much of the job's limits a slicelet's task may use, nil while there
	// are none.
	Quotas *wire.Quotas
	// Err says why no Distributor serves; nil while one does.
	Err error
}

// Status is what the control plane says about a job besides its assignment.
type Status struct {
	// Converged is the generation that every connected clerk and slicelet is known to
	// hold, or a newer one; 0 if that is not known.
	Converged assignment.Generation
	// Stragglers names some that do not, at most 16.
	Stragglers []string
	// ReportInterval is how often slicelets report: 100 ms to 1 min, 1 s unless said.
	ReportInterval time.Duration
	// LoadMetric is one of assignment.LoadRequests, LoadCPU and LoadCustom.
	LoadMetric string
	// Mode of the job, 0 while not known.
	Mode assignment.Mode
	// Overload is what the job does when there are too many requests, with defaults.
	Overload assignment.OverloadConfig
	// Conditions are those of tasks that drain or have no room for all that is asked of
	// them, as far as a Distributor that serves tells: at most wire.MaxConditions, and none
	// to slicelets. It is repeated within seconds.
	Conditions []TaskCondition
	// Subscribers is how many clerks and slicelets the job has, rounded up to a power of two;
	// 0 while not known. Only slicelets are told.
	Subscribers int
}

// TaskCondition is what clients need to know of a task before an assignment, or an answer of
// the task, says it.
type TaskCondition struct {
	Task        string
	Incarnation uint64
	Draining    bool
	// Level and PauseMS are as overload.NewLevel takes them.
	Level, PauseMS uint32
}

const (
	defaultReportInterval = time.Second
	minReportInterval     = 100 * time.Millisecond
	maxReportInterval     = time.Minute
	maxStraggler          = 256
	maxSubscribers        = 1 << 24
)

// statusFromProto bounds whatever a server says.
func statusFromProto(m *slicerv1.Status) Status {
	s := Status{
		Converged:      assignment.Generation(max(m.GetConvergedGeneration(), 0)),
		ReportInterval: defaultReportInterval,
		LoadMetric:     assignment.LoadRequests,
		Overload:       wire.OverloadFromProto(m.GetOverload()).OrDefaults(),
		Subscribers:    int(min(m.GetSubscribers(), maxSubscribers)),
	}
	if ms := m.GetReportIntervalMs(); ms > 0 {
		ms = min(ms, maxReportInterval.Milliseconds())
		s.ReportInterval = max(time.Duration(ms)*time.Millisecond, minReportInterval)
	}
	switch m.GetLoadMetric() {
	case assignment.LoadCPU, assignment.LoadCustom:
		s.LoadMetric = m.GetLoadMetric()
	}
	switch m.GetMode() {
	case slicerv1.Mode_MODE_AFFINITY:
		s.Mode = assignment.Affinity
	case slicerv1.Mode_MODE_CONSISTENT:
		s.Mode = assignment.Consistent
	}
	s.Stragglers = slices.Clip(m.GetStragglers()[:min(len(m.GetStragglers()), wire.MaxStragglers)])
	if slices.ContainsFunc(s.Stragglers, func(n string) bool { return len(n) > maxStraggler }) {
		s.Stragglers = slices.Clone(s.Stragglers) // a message is not changed
		for i, n := range s.Stragglers {
			s.Stragglers[i] = assignment.Clip(n, maxStraggler)
		}
	}
	for _, m := range m.GetConditions()[:min(len(m.GetConditions()), wire.MaxConditions)] {
		s.Conditions = append(s.Conditions, TaskCondition{m.GetTask(), m.GetIncarnation(), m.GetDraining(), m.GetLevel(), m.GetPauseMs()})
	}
	return s
}

// Static is the state of a subscriber that has an assignment for good, in affinity mode, and
// asks no server. A clerk's index is as in State.ClientIndex.
func Static(a *assignment.Assignment, index int) State {
	s := State{Assignment: a, ClientIndex: index, Disconnected: true, Status: statusFromProto(nil)}
	s.Status.Mode = assignment.Affinity
	return s
}

// Counters count what happened since the start.
type Counters struct {
	// Updates to the assignment in hand, by Source.
	Updates [4]uint64
	// Refused assignments: malformed, of another job, or not what their checksum says.
	Refused uint64
	// Failures of a connection, or of an attempt at one.
	Failures uint64
}

// Errors that State.Err may match.
var (
	// ErrUnknownJob: the store says that there is no such job. It is tried again, since
	// the job may be created.
	ErrUnknownJob = errors.New("no such job")
	// ErrTaskNameTaken: another live task of the job has this name. It is tried
	// again, since the other may go.
	ErrTaskNameTaken = errors.New("task name is taken by another live task")
	// ErrNotAllowed: the identity in our certificate has not the right to watch the job, or
	// to be this task of it. It is tried again, since the right may be given.
	ErrNotAllowed = errors.New("not allowed")
	// ErrUnavailable: no server could be reached, or none had the assignment.
	ErrUnavailable = errors.New("not available")
)
