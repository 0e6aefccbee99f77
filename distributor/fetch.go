package distributor

import (
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/distributor/fanout"
	"github.com/slicer-project/slicer/distributor/internal/prepared"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// lookFor finds what a fetch asks for. When it has to be waited for, wait is closed when it is
// worth looking again; with waited it has been.
func (j *job) lookFor(now time.Time, req *slicerv1.FetchRequest, waited bool) (p *prepared.Messages, wait <-chan struct{}, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	found, ok := j.stepLocked(now, fanout.Fetched{
		Gen: assignment.Generation(req.GetGeneration()), Compressed: req.GetCompressed(), Part: req.GetPart(), Waited: waited,
	}).(fanout.Found)
	if !ok {
		return nil, j.changed, nil
	}
	return found.Messages, nil, found.Err
}
