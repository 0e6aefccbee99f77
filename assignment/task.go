package assignment

import (
	"fmt"
)

// Limits of what an assignment may hold. They bound memory for whatever the
// network, the store or the disk brings.
const (
	MaxTasks         = 1 << 17
	MaxSlices        = 1 << 22
	MaxReplicas      = 1 << 10 // of one slice
	MaxOwnerships    = 1 << 23 // replicas of all slices together
	MaxNameLen       = 253     // bytes of a task name
	MaxAddressLen    = 512
	MaxZoneLen       = 63
	MaxWeight        = 1e6
	MinWeight        = 1e-6
	maxSinceDistinct = 127
)

// TaskState is where a task is in its life.
type TaskState uint8

// The states, in the order in which a task goes through them.
const (
	TaskUnknown  TaskState = iota
	TaskStarting           // not ready for slices yet
	TaskRunning            // owns slices
	TaskDraining           // gives its slices up and gets no new ones
	TaskDead               // its reports stopped
)

var taskStateNames = [...]string{"unknown", "starting", "running", "draining", "dead"}

func (s TaskState) String() string {
	if int(s) < len(taskStateNames) {
		return taskStateNames[s]
	}
	return fmt.Sprintf("TaskState(%d)", uint8(s))
}

// TakesSlices reports whether slices can be moved to a task, at once or when it has started.
func (s TaskState) TakesSlices() bool { return s == TaskStarting || s == TaskRunning }

// ParseTaskState reads what String prints.
func ParseTaskState(s string) (TaskState, error) {
	for i, n := range taskStateNames {
		if n == s {
			return TaskState(i), nil
		}
	}
	return 0, &FieldError{Field: "state", Value: s, Allowed: "unknown, starting, running, draining or dead"}
}

// MarshalText is String, for JSON.
func (s TaskState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText is ParseTaskState.
func (s *TaskState) UnmarshalText(text []byte) (err error) {
	*s, err = ParseTaskState(string(text))
	return err
}

// Task is one of a job's servers.
type Task struct {
	// Name is stable across restarts and unique within the job: 1 to 253
	// bytes of printable ASCII without spaces or slashes.
	Name string
	// Incarnation is new at each process start, never 0. A task that restarts
	// under its name is another owner.
	Incarnation uint64
	// Address is what clients dial, host:port.
	Address string
	// Zone is where the task runs; may be empty.
	Zone string
	// Index is small and dense within the job, given out by the control plane.
	Index uint32
	// Weight is capacity relative to the job's other tasks, usually 1; a task of
	// weight 2 should carry twice the load. 1e-6 to 1e6.
	Weight float64
	State  TaskState
}

// Same reports whether t and u are the same running process.
func (t Task) Same(u Task) bool { return t.Name == u.Name && t.Incarnation == u.Incarnation }

// Validate names the first field that is not allowed.
func (t Task) Validate() error {
	switch {
	case !ValidToken(t.Name, MaxNameLen):
		return &FieldError{"task name", t.Name, "1 to 253 printable ASCII characters without space or slash"}
	case t.Incarnation == 0:
		return &FieldError{"task incarnation", t.Incarnation, "not 0"}
	case !ValidToken(t.Address, MaxAddressLen):
		return &FieldError{"task address", t.Address, "host:port, 1 to 512 printable ASCII characters without space or slash"}
	case t.Zone != "" && !ValidToken(t.Zone, MaxZoneLen):
		return &FieldError{"task zone", t.Zone, "at most 63 printable ASCII characters without space or slash"}
	case !(t.Weight >= MinWeight && t.Weight <= MaxWeight):
		return &FieldError{"task weight", t.Weight, "0.000001 to 1000000"}
	case t.Index >= MaxTasks:
		return &FieldError{"task index", t.Index, fmt.Sprintf("below %d", MaxTasks)}
	case t.State > TaskDead:
		return &FieldError{"task state", t.State, "unknown to dead"}
	}
	return nil
}

// ValidateJobName reports whether name can name a job: an RFC 1123 label.
func ValidateJobName(name string) error {
	ok := len(name) >= 1 && len(name) <= 63
	for i := 0; ok && i < len(name); i++ {
		c := name[i]
		alnum := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		ok = alnum || c == '-' && i > 0 && i < len(name)-1
	}
	if !ok {
		return &FieldError{"job name", name, "an RFC 1123 label: 1 to 63 of a-z, 0-9 and -, neither first nor last a -"}
	}
	return nil
}
