package downstream

import (
	"slices"

	"github.com/slicer-project/slicer/assigner/generate"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// newStatus works out what Distributors that ask about the job are told, and reports
// whether it has changed.
func (j *Job) newStatus(v generate.View) bool {
	job, _, exists := v.Job()
	if !exists {
		changed := !j.status.GetUnknown()
		if changed {
			j.status = &slicerv1.JobStatus{Job: j.name, Unknown: true}
		}
		return changed
	}
	var c generate.Convergence
	var tasks []*slicerv1.TaskCondition
	if v.IsPreferred() {
		c, tasks = v.Convergence(), j.tasks.worst(j.now.Mono)
	}
	n, mean := j.spread(v)
	limited := !job.Config.Limits.Equal(assignment.Limits{})
	heartbeat, mode := job.Config.HeartbeatTimeout.Milliseconds(), slicerv1.Mode(job.Config.Mode)
	if st := j.status; st != nil && !st.Unknown && st.ConvergedGeneration == int64(c.Generation) && st.HeartbeatTimeoutMs == heartbeat &&
		st.LoadMetric == job.Config.LoadMetric && st.Mode == mode && wire.OverloadFromProto(st.Overload) == job.Config.Overload && wire.XDSFromProto(st.Xds) == job.Config.XDS && st.Distributors == n && st.MeanSubscribers == mean && st.Limited == limited && j.access == job.Config.Access && slices.Equal(st.Stragglers, c.Stragglers) && wire.SameConditions(st.Conditions, tasks) {
		return false
	}
	j.access = job.Config.Access
	// It may be on its way: it is replaced, not changed.
	j.status = &slicerv1.JobStatus{
		Job: j.name, HeartbeatTimeoutMs: heartbeat, LoadMetric: job.Config.LoadMetric, Mode: mode, Overload: wire.OverloadToProto(job.Config.Overload),
		ConvergedGeneration: int64(c.Generation), Stragglers: slices.Clone(c.Stragglers), Distributors: n, MeanSubscribers: mean,
		Conditions: tasks, Limited: limited, Access: wire.AccessToProto(j.access),
		Xds: wire.XDSToProto(job.Config.XDS),
	}
	return true
}

// spread is how the job's subscribers would be spread. A mean that is a sixteenth off is
// good enough, and not worth a message to every Distributor.
func (j *Job) spread(v generate.View) (distributors, mean uint32) {
	n, m := v.Spread()
	distributors, mean = uint32(n), uint32(min(m, 1<<24)) // whatever Distributors say
	if said := j.status.GetMeanSubscribers(); j.status.GetDistributors() == distributors && 16*max(said, mean)-16*min(said, mean) <= said {
		mean = said
	}
	return distributors, mean
}
