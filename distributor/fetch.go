package distributor

import (
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/distributor/fanout"
	"github.com/slicer-project/slicer/distributor/internal/prepared"
)

// lookFor finds a generation, 0 being the newest, whole, and compressed if that is so. When it has to be waited
// for, wait is closed when it is worth looking again; with waited it has been.
func (j *job) lookFor(now time.Time, generation int64, compressed, waited bool) (p *prepared.Messages, wait <-chan struct{}, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	found, ok := j.stepLocked(now, fanout.Fetched{Gen: assignment.Generation(generation), Compressed: compressed, Waited: waited}).(fanout.Found)
	if !ok {
		return nil, j.changed, nil
	}
	return found.Messages, nil, found.Err
}
