package assigner

import (
	"slices"

	"github.com/slicer-project/slicer/assigner/generate"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// statusLocked looks at what Distributors that ask about the job are told, and
// says whether it has changed.
func (r *runner) statusLocked() bool {
	job, _, exists := r.viewLocked().Job()
	if !exists {
		changed := !r.status.GetUnknown()
		if changed {
			r.status = &slicerv1.JobStatus{Job: r.name, Unknown: true}
		}
		return changed
	}
	var v generate.Convergence
	if r.viewLocked().IsPreferred() {
		v = r.viewLocked().Convergence()
	}
	n, mean := r.spread()
	heartbeat, mode := job.Config.HeartbeatTimeout.Milliseconds(), slicerv1.Mode(job.Config.Mode)
	if st := r.status; st != nil && !st.Unknown && st.ConvergedGeneration == int64(v.Generation) && st.HeartbeatTimeoutMs == heartbeat &&
		st.LoadMetric == job.Config.LoadMetric && st.Mode == mode && st.Distributors == n && st.MeanSubscribers == mean && slices.Equal(st.Stragglers, v.Stragglers) {
		return false
	}
	// It may be on its way: it is replaced, not changed.
	r.status = &slicerv1.JobStatus{
		Job: r.name, HeartbeatTimeoutMs: heartbeat, LoadMetric: job.Config.LoadMetric, Mode: mode,
		ConvergedGeneration: int64(v.Generation), Stragglers: slices.Clone(v.Stragglers), Distributors: n, MeanSubscribers: mean,
	}
	return true
}

// spread is how the job's subscribers would be spread. A mean that is a sixteenth off is
// good enough, and not worth a message to every Distributor.
func (r *runner) spread() (distributors, mean uint32) {
	n, m := r.viewLocked().Spread()
	distributors, mean = uint32(n), uint32(min(m, 1<<24)) // whatever Distributors say
	if said := r.status.GetMeanSubscribers(); r.status.GetDistributors() == distributors && 16*max(said, mean)-16*min(said, mean) <= said {
		mean = said
	}
	return distributors, mean
}
