// Package health says how jobs stand, in the same words wherever that is shown: on the status
// page, by slicerctl status and by slicerctl top.
package health

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/access"
	"github.com/slicer-project/slicer/loadbalance/overload"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// State is how a job stands, in a word. The words are an interface, by slicerctl status --json:
// add, never rename.
type State string

const (
	Unknown   State = "unknown"    // it cannot be asked about
	StoreDown State = "store down" // its store does not answer: nothing is decided
	Down      State = "down"       // it had tasks, and none serves
	Frozen    State = "frozen"     // by an operator, or by the assigner itself
	Undecided State = "undecided"  // its decisions are on hold for another reason
	Refusing  State = "refusing"   // tasks have no room for all that is asked
	Hot       State = "hot"        // the load is uneven, and could be less so
	Slow      State = "slow"       // subscribers do not acknowledge what they were sent
	Empty     State = "empty"      // no task has ever reported, which is no fault
	OK        State = "ok"
)

// WorstFirst are all states, in the order in which jobs are listed.
var WorstFirst = []State{Unknown, StoreDown, Down, Frozen, Undecided, Refusing, Hot, Slow, Empty, OK}

// Compare orders states, the worst first.
func Compare(a, b State) int {
	return cmp.Compare(slices.Index(WorstFirst, a), slices.Index(WorstFirst, b))
}

const (
	// LeastShed is how many requests a second a task must refuse for that to be told.
	LeastShed = .05
	// above is how many times its floor, the least that there could be, the imbalance of a job
	// is at most that is not called hot, as in the alert SlicerUneven.
	above = 1.5
)

// Tasks are how many tasks there are in each state. Serving are those that run and are not
// excluded.
type Tasks struct {
	Serving  int `json:"serving"`
	Starting int `json:"starting"`
	Draining int `json:"draining"`
	Excluded int `json:"excluded"`
	Dead     int `json:"dead"`
}

// Living is how many are not dead.
func (t Tasks) Living() int { return t.Serving + t.Starting + t.Draining + t.Excluded }

// Job is how a job stands.
type Job struct {
	State State
	// Problems are all that is wrong. The first is why the state is what it is.
	Problems []string
	Tasks    Tasks
	// Load is that of the tasks that live, in units a second: what a dead one carried is carried
	// by others. Mean is that of a unit of capacity among the tasks that serve, over which
	// imbalance is measured; 0 if there is none.
	Load, Mean float64
	// Hottest is the task that serves with the most load by capacity, empty if there is no load,
	// and OfMean that load over Mean.
	Hottest string
	OfMean  float64
	Frozen  bool
}

// Of says how a job stands of which its assigner tells m. unanswered reports that its store is
// known not to answer. Of several things that are wrong, the state is that which hides the
// others.
func Of(m *slicerv1.InspectJobResponse, unanswered bool, now time.Time) *Job {
	j := &Job{}
	refused := j.count(m)
	freeze := m.GetOverrides().GetFreeze()
	j.Frozen = m.GetVanishedMs() > 0 || freeze != nil && (freeze.GetUntilUnixMs() == 0 || freeze.GetUntilUnixMs() > now.UnixMilli())
	switch holding := m.GetHolding(); {
	case unanswered || m.GetStoreError() != "":
		j.is(StoreDown, StoreProblem(m.GetJob().GetConfig().GetStore(), m.GetStoreError()))
	case !m.GetPreferred():
		j.is(Undecided, cmp.Or(holding, "no assigner decides"))
	case m.GetGeneration() == 0 && j.Tasks.Living() == 0:
		j.State = Empty
	case j.Tasks.Serving == 0:
		j.is(Down, fmt.Sprintf("no task serves: %d start, %d drain, %d are excluded, %d are dead%s", j.Tasks.Starting, j.Tasks.Draining, j.Tasks.Excluded, j.Tasks.Dead, keptAway(m.GetOverrides())))
	case j.Frozen:
		j.is(Frozen, cmp.Or(holding, string(Frozen)))
	case holding != "":
		j.is(Undecided, holding)
	}
	if refused != "" {
		j.is(Refusing, refused)
	}
	if m.GetFloor() > 0 && m.GetImbalance() > above*m.GetFloor() && j.measurable(m) {
		j.is(Hot, fmt.Sprintf("%s carries %.2f times the mean, and could carry %.2f", j.Hottest, j.OfMean, m.GetFloor()))
	}
	switch n := m.GetProgress().GetSlowTotal(); {
	case n == 1:
		j.is(Slow, "1 subscriber has not acknowledged for 5s what was sent")
	case n > 1:
		j.is(Slow, fmt.Sprintf("%d subscribers have not acknowledged for 5s what was sent", n))
	}
	if j.State == "" {
		j.State = OK
	}
	return j
}

// StoreProblem says that a store does not answer, "" being the only one, and why if that is known.
func StoreProblem(store, why string) string {
	s := fmt.Sprintf("store %s does not answer", cmp.Or(store, "default"))
	if why != "" {
		s += ": " + why
	}
	return s
}

// maxAway is how many tasks that operators keep from serving are named.
const maxAway = 8

// keptAway names the tasks that operators keep from serving, empty for none: a task that drains
// may do so by itself, too, or be one of these.
func keptAway(o *slicerv1.Overrides) string {
	var all []string
	add := func(task, what string, s *slicerv1.Stamp) {
		one := fmt.Sprintf("%s is %s by %s", task, what, By(s))
		if s.GetWhy() != "" {
			one += " (" + s.GetWhy() + ")"
		}
		all = append(all, one)
	}
	for _, d := range o.GetDrains() {
		add(d.GetTask(), "drained", d.GetStamp())
	}
	for _, x := range o.GetExcluded() {
		add(x.GetTask(), "excluded", x.GetStamp())
	}
	if more := len(all) - maxAway; more > 0 {
		all = append(all[:maxAway], fmt.Sprintf("and so are %d more", more))
	}
	if len(all) == 0 {
		return ""
	}
	return "; by order: " + strings.Join(all, ", ")
}

// By is what gave an order: the identity, or where there is none what it said of itself.
func By(s *slicerv1.Stamp) string {
	if id := s.GetIdentity(); id != "" && id != string(access.Anonymous) {
		return id
	}
	return cmp.Or(s.GetWho(), "an operator")
}

// is notes a problem; the first one makes the state.
func (j *Job) is(s State, problem string) {
	if j.State == "" {
		j.State = s
	}
	j.Problems = append(j.Problems, problem)
}

// count takes in the tasks, and says which of them refuse requests, empty for none.
func (j *Job) count(m *slicerv1.InspectJobResponse) (refusing string) {
	excluded := make(map[string]bool)
	for _, x := range m.GetOverrides().GetExcluded() {
		excluded[x.GetTask()] = true
	}
	var weight, counted, refused float64
	var most *slicerv1.TaskStatus
	many := 0
	for _, t := range m.GetTasks() {
		switch s := t.GetTask().GetState(); {
		case s == slicerv1.TaskState_TASK_STATE_DEAD:
			j.Tasks.Dead++
			continue
		case excluded[t.GetTask().GetName()]:
			j.Tasks.Excluded++
		case s == slicerv1.TaskState_TASK_STATE_RUNNING:
			j.Tasks.Serving++
			counted += t.GetLoad()
			weight += t.GetTask().GetWeight()
		case s == slicerv1.TaskState_TASK_STATE_DRAINING:
			j.Tasks.Draining++
		default:
			j.Tasks.Starting++
		}
		j.Load += t.GetLoad()
		if t.GetShedRate() >= LeastShed {
			many++
			refused += t.GetShedRate()
			if most == nil || t.GetShedRate() > most.GetShedRate() {
				most = t
			}
		}
	}
	if weight > 0 {
		j.Mean = counted / weight
	}
	for _, t := range m.GetTasks() {
		if t.GetTask().GetState() == slicerv1.TaskState_TASK_STATE_RUNNING && !excluded[t.GetTask().GetName()] && j.Of(t) > j.OfMean {
			j.Hottest, j.OfMean = t.GetTask().GetName(), j.Of(t)
		}
	}
	switch {
	case many == 1:
		return fmt.Sprintf("%s refuses %.3g requests a second for want of room", most.GetTask().GetName(), refused)
	case many > 1:
		return fmt.Sprintf("%d of %d tasks refuse %.3g requests a second for want of room, %s the most", many, j.Tasks.Living(), refused, most.GetTask().GetName())
	}
	return ""
}

// Of is a task's load by capacity over the mean of the job; 0 if there is none, or the task is
// dead.
func (j *Job) Of(t *slicerv1.TaskStatus) float64 {
	w := t.GetTask().GetWeight()
	if w <= 0 || j.Mean <= 0 || t.GetTask().GetState() == slicerv1.TaskState_TASK_STATE_DEAD {
		return 0
	}
	return t.GetLoad() / w / j.Mean
}

// measurable reports whether there is so much load that its being uneven is no chance: a request
// a second for each task that serves, or where CPU is balanced a task that is as busy as the
// balancer wants it to be before it moves anything. Of an application's own units it is not
// known.
func (j *Job) measurable(m *slicerv1.InspectJobResponse) bool {
	switch m.GetJob().GetConfig().GetLoadMetric() {
	case assignment.LoadRequests:
		return j.Load >= float64(j.Tasks.Serving)
	case assignment.LoadCPU:
		return slices.ContainsFunc(m.GetTasks(), func(t *slicerv1.TaskStatus) bool {
			return t.GetCpuUtilization() >= m.GetJob().GetConfig().GetBalance().GetCpuThreshold()
		})
	}
	return true
}

// Level is the criticality of what a task refuses that tells this level, empty if it refuses
// nothing.
func Level(level uint32) string {
	if level == 0 {
		return ""
	}
	return overload.Priority(min(level, overload.Priorities-1)).Criticality().String()
}
