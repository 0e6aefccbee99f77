package generate

import (
	"fmt"
	"time"

	"github.com/slicer-project/slicer/assigner/membership"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/loadbalance"
)

// View is what may be seen of a Core. It is good until the Core takes something in.
type View struct{ c *Core }

// View is what is known at this moment.
func (c *Core) View(now Now) View {
	c.tick(now)
	return View{c}
}

// Stored is the newest stored assignment that is known here, nil if none.
func (v View) Stored() *assignment.Assignment { return v.c.store.newest }

// Job is the job as stored. known is false before the store has answered, exists
// is false when it says that there is no such job.
func (v View) Job() (job store.Job, known, exists bool) {
	return v.c.store.job, v.c.store.known, v.c.store.exists
}

// IsPreferred reports whether this assigner takes the job's decisions.
func (v View) IsPreferred() bool { return v.c.lead.isPreferred() }

// PreferredID is the assigner that does, "" if none.
func (v View) PreferredID() string { return v.c.lead.preferred }

// Distributors is how many are attached.
func (v View) Distributors() int { return len(v.c.lead.sessions) }

// Err is why the store could not be read or written last, nil if it could.
func (v View) Err() error { return v.c.store.err }

// Frozen reports whether the job is frozen because too many tasks vanished at once.
func (v View) Frozen() bool { return v.c.members.frozen() }

// Vanished is for how long the assigner itself has kept the job frozen because a
// large part of its tasks fell silent at once, 0 when it does not.
func (v View) Vanished() time.Duration {
	if !v.Frozen() {
		return 0
	}
	d, _ := v.c.members.table.Frozen()
	return max(d, time.Millisecond)
}

// Holding says why decisions are on hold just now, or returns "". Where it says that Distributors
// have not told yet which tasks they carry, it is rounds by load alone that wait.
func (v View) Holding() string {
	switch {
	case v.c.store.err != nil:
		return fmt.Sprintf("store failing for %s: %v", (v.c.now.Mono - v.c.store.errSince).Round(time.Second), v.c.store.err)
	case !v.c.store.known:
		return "the store has not answered yet"
	case !v.c.store.exists:
		return "the store has no such job"
	case !v.c.lead.isPreferred() && v.c.lead.preferred == "":
		return "no assigner is preferred: none has a Distributor"
	case !v.c.lead.isPreferred():
		return fmt.Sprintf("assigner %s is preferred", v.c.lead.preferred)
	case !v.c.lead.mine || v.c.members.table == nil:
		return "just taken over: reading the store"
	case v.Frozen():
		since, _ := v.c.members.table.Frozen()
		return fmt.Sprintf("frozen for %s: %s", since.Round(time.Second), skipFrozen)
	case v.c.overrides.frozen():
		return v.c.overrides.frozenBy()
	case v.c.jobLease.holding(&v.c.store.job.Config) != "":
		return v.c.jobLease.holding(&v.c.store.job.Config)
	case len(v.c.lead.sessions) == 0:
		return v.c.members.table.Listening()
	case !v.c.members.table.AnyRunning():
		return "no task is running"
	case v.c.members.table.Starting() > 0:
		return fmt.Sprintf("%s, for %s now; rounds by load wait for that", v.c.members.table.Listening(), v.c.members.table.Starting().Round(time.Second))
	}
	return v.c.members.table.Listening()
}

// Alarm says what is wrong with this assigner's clock, or with the stored generation
// compared with it, or is empty. Decisions are taken all the same.
func (v View) Alarm() string { return v.c.alarm }

// LastRound is the last round that was held or left out.
func (v View) LastRound() Round { return v.c.rounds.last }

// TaskStatus is how a task stands.
type TaskStatus struct {
	membership.Status
	// Load is all that it carries, units a second, a moving mean over some seconds.
	Load float64
	// Of its newest report.
	Misrouted, Shed, CPU float64
	// Utilization, Cores and Memory are means of its reports since the last round: CPU as a
	// share of what it may use and in cores, and resident bytes. 0 when not known.
	Utilization, Cores, Memory float64
	// Standing says why it is given no slices, or is empty.
	Standing string
	// Warming is how much of its capacity counts while it warms up, 0 to 1; 0 when it
	// does not.
	Warming float64
}

// Tasks are all that are known, in order of name; when this assigner is not
// preferred, those of the stored assignment.
func (v View) Tasks() []TaskStatus {
	var out []TaskStatus
	if !v.c.lead.isPreferred() || v.c.members.table == nil {
		if v.c.store.newest != nil {
			for _, t := range v.c.store.newest.Tasks() {
				out = append(out, TaskStatus{Status: membership.Status{Task: t, Indexed: true, Age: -1}})
			}
		}
		return out
	}
	warming := v.warmings()
	for _, s := range v.c.members.table.Statuses(v.c.now.Mono) {
		t := TaskStatus{Status: s}
		if g := v.c.members.meter.tasks[s.Task.Name]; g != nil && g.incarnation == s.Task.Incarnation {
			t.Load, t.Misrouted, t.Shed, t.CPU = g.smooth, g.last.Misrouted, g.last.Shed, g.last.CPU
			t.Utilization, t.Cores, t.Memory = g.load.CPU, g.load.Cores, g.load.Memory
		}
		t.Standing, t.Warming = v.c.overrides.standing(&s), warming[s.Task.Name]
		out = append(out, t)
	}
	return out
}

// warmings is how much of their capacity counts of the tasks that warm up.
func (v View) warmings() map[string]float64 {
	if !v.c.sched.warming {
		return nil
	}
	tasks := v.c.overrides.mayOwn(v.c.members.table.Tasks())
	m := make(map[string]float64)
	for i, w := range loadbalance.Warmth(tasks, v.c.members.table.Ages(), v.c.store.job.Config.WarmUp) {
		if w < 1 && tasks[i].State == assignment.TaskRunning {
			m[tasks[i].Name] = w
		}
	}
	return m
}

// Live is how many tasks are neither dead nor gone, as far as is known here.
func (v View) Live() int {
	n := 0
	for _, t := range v.Tasks() {
		if t.Task.State != assignment.TaskDead {
			n++
		}
	}
	return n
}

// Imbalance is the largest of the tasks' loads over their mean, by
// capacity; 0 when there is no load. Only running tasks count.
func (v View) Imbalance() float64 {
	var total, weight, top float64
	for _, t := range v.Tasks() {
		if t.Task.State != assignment.TaskRunning || v.c.overrides.inForce.Excludes(t.Task.Name) != nil {
			continue
		}
		total += t.Load
		weight += t.Task.Weight
		top = max(top, t.Load/t.Task.Weight)
	}
	if total <= 0 {
		return 0
	}
	return top / (total / weight)
}

// WantedTasks is how many tasks the job would need for its target utilization, 0 when that
// is not known.
func (v View) WantedTasks() int {
	var use []loadbalance.Use
	for _, t := range v.Tasks() {
		if t.Task.State == assignment.TaskDead {
			continue
		}
		use = append(use, loadbalance.Use{
			Weight: t.Task.Weight, Utilization: t.Utilization,
			Serves: t.Task.State == assignment.TaskRunning && v.c.overrides.inForce.Excludes(t.Task.Name) == nil,
		})
	}
	c := &v.c.store.job.Config
	return loadbalance.WantedTasks(use, c.TargetUtilization, c.MinReplicas)
}

// Reports are the newest of all tasks, in order of name, which nothing changes; nil when this
// assigner is not preferred.
func (v View) Reports() []loadbalance.Report {
	if !v.c.lead.isPreferred() || v.c.members.table == nil {
		return nil
	}
	all, _ := v.c.members.meter.newest()
	return all
}

// Floor is what no assignment of whole keys could bring the imbalance below, as
// the last round with loads saw it; 0 when there was none.
func (v View) Floor() float64 { return v.c.rounds.floor }

// LeaseTime is the job's, if this assigner is to have the job lease.
func (v View) LeaseTime() (ttl time.Duration, ok bool) {
	return v.c.store.job.Config.LeaseDuration, v.c.leads()
}

// Leading reports whether the job lease is held here, may be, or a change is under way.
func (v View) Leading() bool { return v.c.jobLease.maybe || v.c.jobLease.changing }

// Token is the job lease's, 0 without it.
func (v View) Token() lease.Token { return v.c.jobLease.token }

// InForce is the generation in force in consistent mode, as of the last change.
func (v View) InForce() assignment.Generation { return v.c.jobLease.inForce }

// Changing reports whether a change is under way here.
func (v View) Changing() bool { return v.c.jobLease.changing }

// Target is the generation that may come in force next, 0 if none.
func (v View) Target() assignment.Generation { return v.c.store.target() }
