package assigner

import (
	"slices"

	"github.com/slicer-project/slicer/assigner/generate"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// statusLocked looks at what Distributors that ask about the job are told, and
// says whether it has changed.
func (r *runner) statusLocked() bool {
	job, _, exists := r.core.Job()
	if !exists {
		changed := !r.status.GetUnknown()
		if changed {
			r.status = &slicerv1.JobStatus{Job: r.name, Unknown: true}
		}
		return changed
	}
	var v generate.Convergence
	if r.core.IsPreferred() {
		v = r.core.Convergence()
	}
	heartbeat, mode := job.Config.HeartbeatTimeout.Milliseconds(), slicerv1.Mode(job.Config.Mode)
	if st := r.status; st != nil && !st.Unknown && st.ConvergedGeneration == int64(v.Generation) && st.HeartbeatTimeoutMs == heartbeat &&
		st.LoadMetric == job.Config.LoadMetric && st.Mode == mode && slices.Equal(st.Stragglers, v.Stragglers) {
		return false
	}
	// It may be on its way: it is replaced, not changed.
	r.status = &slicerv1.JobStatus{
		Job: r.name, HeartbeatTimeoutMs: heartbeat, LoadMetric: job.Config.LoadMetric, Mode: mode,
		ConvergedGeneration: int64(v.Generation), Stragglers: v.Stragglers,
	}
	return true
}
