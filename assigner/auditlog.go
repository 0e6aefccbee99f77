package assigner

import (
	"context"
	"errors"
	"time"

	"github.com/slicer-project/slicer/assigner/generate"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
)

// auditWithin bounds one attempt to note something: a round may wait for it.
const auditWithin = 2 * time.Second

var errOver = errors.New("lifted already")

// audit puts something that this assigner has done by itself into the job's history.
func (r *runner) audit(n generate.Audit) error {
	ctx, cancel := context.WithTimeout(r.a.ctx, auditWithin)
	defer cancel()
	var job store.Job
	r.ask(func(c generate.View) { job, _, _ = c.Job() })
	now, _ := r.a.now().Since(r.a.start)
	stamp := store.Stamp{Who: "assigner " + r.a.cfg.ID, Why: assignment.Clip(n.Why, store.MaxWhy), When: time.UnixMilli(max(now.UnixMilli(), 1)).UTC()}
	_, _, err := adminService{a: r.a}.apply(ctx, job, r.whose(), order{action: n.Action, edit: func(c *store.Overrides, _ store.Stamp) (string, error) {
		if n.Lifts != 0 && !c.Lift(n.Lifts) {
			return "", errOver
		}
		return "", nil
	}}, stamp)
	if errors.Is(err, errOver) {
		return nil
	}
	return err
}
