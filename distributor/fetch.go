package distributor

import (
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/distributor/fanout"
	"github.com/slicer-project/slicer/distributor/internal/prepared"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

func checkFetch(req *slicerv1.FetchRequest, now time.Time) error {
	if err := assignment.ValidateJobName(req.GetJob()); err != nil {
		return fanout.Invalid("fetch", err)
	}
	if err := fanout.CheckGeneration(assignment.Generation(req.GetGeneration()), now); err != nil {
		return fanout.Invalid("fetch", err)
	}
	return nil
}

// lookFor finds a generation, 0 being the newest, whole. When it has to be waited
// for, wait is closed when it is worth looking again; with waited it has been.
func (j *job) lookFor(now time.Time, generation int64, waited bool) (p *prepared.Messages, wait <-chan struct{}, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	found, ok := j.stepLocked(now, fanout.Fetched{Gen: assignment.Generation(generation), Waited: waited}).(fanout.Found)
	if !ok {
		return nil, j.changed, nil
	}
	return found.Messages, nil, found.Err
}
