package page

import (
	"fmt"
	"time"

	"github.com/slicer-project/slicer/cmd/internal/uneven"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// States of a job, the worst first.
const (
	stateUnknown  = "unknown"   // it cannot be asked about
	stateStore    = "store"     // its store is down
	stateDown     = "down"      // it had tasks, and none runs
	stateFrozen   = "frozen"    // by an operator, or by the assigner itself
	stateHeld     = "undecided" // no assigner decides, for another reason
	stateRefusing = "refusing"  // tasks have no room for all that is asked
	stateHot      = "hot"       // a task carries far more than it has to
	stateIdle     = "idle"      // no task has ever reported
	stateHealthy  = "healthy"
)

// severity is the order in which jobs are shown.
var severity = map[string]int{
	stateUnknown: 0, stateStore: 1, stateDown: 2, stateFrozen: 3, stateHeld: 4, stateRefusing: 5, stateHot: 6, stateIdle: 7, stateHealthy: 8,
}

// leastRefused is how many requests a second a job refuses that is called refusing.
const leastRefused = .05

// stateOf says how a job stands, and why in a few words.
func stateOf(m *slicerv1.InspectJobResponse, now time.Time) (state, why string) {
	var running, refusing int
	var refused, load float64
	for _, t := range m.GetTasks() {
		load += t.GetLoad()
		if s := t.GetTask().GetState(); s == slicerv1.TaskState_TASK_STATE_DEAD {
			continue
		} else if s == slicerv1.TaskState_TASK_STATE_RUNNING {
			running++
		}
		if refused += t.GetShedRate(); t.GetShedRate() >= leastRefused {
			refusing++
		}
	}
	f := m.GetOverrides().GetFreeze()
	switch least := max(m.GetFloor(), 1); {
	case m.GetStoreError() != "":
		return stateStore, m.GetStoreError()
	case m.GetVanishedMs() > 0:
		return stateFrozen, fmt.Sprintf("by the assigner itself for %s, as a large part of the tasks fell silent at once",
			(time.Duration(m.GetVanishedMs()) * time.Millisecond).Round(time.Second))
	case f != nil && (f.GetUntilUnixMs() == 0 || f.GetUntilUnixMs() > now.UnixMilli()):
		return stateFrozen, "by " + stampBy(f.GetStamp()) + reason(f.GetStamp().GetWhy())
	case m.GetGeneration() == 0 && running == 0:
		return stateIdle, "no task has reported yet"
	case m.GetPreferred() && running == 0:
		return stateDown, "no task is running"
	case m.GetHolding() != "":
		return stateHeld, m.GetHolding()
	case refused >= leastRefused:
		return stateRefusing, fmt.Sprintf("%d of %d tasks refuse %.3g requests a second for want of room", refusing, running, refused)
	case m.GetImbalance() > uneven.Above*least && uneven.Measurable(m, m.GetJob().GetConfig().GetLoadMetric(), load, running):
		return stateHot, fmt.Sprintf("the hottest task carries %.2f times the mean, %.2f is the least that there could be", m.GetImbalance(), least)
	}
	return stateHealthy, ""
}

// stampBy is who gave an order.
func stampBy(s *slicerv1.Stamp) string {
	switch id := s.GetIdentity(); {
	case id != "" && id != "anonymous":
		return id
	case s.GetWho() != "":
		return s.GetWho()
	}
	return "an operator"
}

func reason(why string) string {
	if why == "" {
		return ""
	}
	return ": " + why
}
