package distributor

import (
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/distributor/internal/prepared"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

func checkFetch(req *slicerv1.FetchRequest, now time.Time) error {
	if err := assignment.ValidateJobName(req.GetJob()); err != nil {
		return invalid("fetch", err)
	}
	if err := checkGeneration(assignment.Generation(req.GetGeneration()), now); err != nil {
		return invalid("fetch", err)
	}
	return nil
}

// lookFor finds a generation, 0 being the newest, whole. When it has to be waited
// for, wait is closed when it is worth looking again; with waited it has been.
func (j *job) lookFor(now time.Time, generation int64, waited bool) (p *prepared.Messages, wait <-chan struct{}, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	newest := j.shelf.Newest()
	g := assignment.Generation(generation)
	switch {
	case newest != nil && g == 0:
		g = newest.Generation()
	case newest != nil && j.shelf.Find(g) == nil && !waited && j.seekBase(now, g):
		return nil, j.changed, nil
	case newest != nil && j.shelf.Find(g) == nil:
		return nil, nil, status.Errorf(codes.NotFound, "job %q: generation %d is not held here, the newest is %d", j.name, g, newest.Generation())
	case newest != nil:
	case j.answer.unknown && j.answer.by == j.target && now.Sub(j.answer.at) < unknownFor:
		return nil, nil, j.notFound()
	case j.answer.unknown && !waited:
		j.askAnewLocked(now)
		j.poke()
		return nil, j.changed, nil
	case !waited:
		return nil, j.changed, nil
	case j.known():
		return nil, nil, status.Errorf(codes.NotFound, "job %q: it has no assignment yet", j.name)
	default:
		return nil, nil, j.unavailable()
	}
	return j.shelf.Whole(g), nil, nil
}
