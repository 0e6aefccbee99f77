package assigner

import (
	"slices"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// statusLocked is what Distributors that ask about the job are told.
func (r *runner) statusLocked() *slicerv1.JobStatus {
	job, _, exists := r.core.Job()
	if !exists {
		return &slicerv1.JobStatus{Job: r.name, Unknown: true}
	}
	st := &slicerv1.JobStatus{
		Job: r.name, HeartbeatTimeoutMs: job.Config.HeartbeatTimeout.Milliseconds(),
		LoadMetric: job.Config.LoadMetric, Mode: slicerv1.Mode(job.Config.Mode),
	}
	if r.core.IsPreferred() {
		v := r.core.Convergence()
		st.ConvergedGeneration, st.Stragglers = int64(v.Generation), v.Stragglers
	}
	return st
}

func sameStatus(x, y *slicerv1.JobStatus) bool {
	return x.Unknown == y.Unknown && x.ConvergedGeneration == y.ConvergedGeneration && x.HeartbeatTimeoutMs == y.HeartbeatTimeoutMs &&
		x.LoadMetric == y.LoadMetric && x.Mode == y.Mode && slices.Equal(x.Stragglers, y.Stragglers)
}
