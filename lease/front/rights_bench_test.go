package front

import (
	"context"
	"fmt"
	"testing"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/access/accesstest"
	"github.com/slicer-project/slicer/lease/internal/rpc"
)

// BenchmarkOwnStill is what rights cost a renewal at a front, with a policy and a job of twenty
// patterns of which the last matches: where nothing has changed since the last renewal, and
// where the policy has.
func BenchmarkOwnStill(b *testing.B) {
	given := map[assignment.Verb][]string{}
	for i := range 19 {
		given[assignment.Own] = append(given[assignment.Own], fmt.Sprintf("spiffe://corp/job/server-%d/task/{task}", i))
	}
	given[assignment.Own] = append(given[assignment.Own], "spiffe://corp/job/task/{task}")
	of, err := assignment.AccessOf(given)
	if err != nil {
		b.Fatal(err)
	}
	j := &job{name: "job", access: of, asked: true}
	o := rpc.Origin{}
	o.Caller.Identity = "spiffe://corp/job/task/t1"
	f := &Front{jobs: map[string]*job{"job": j}}
	f.cfg.Rights = accesstest.Rights(b, "plane: [spiffe://corp/slicer/d1]\n", nil)
	f.cfg.Access = func(context.Context, string) (assignment.Access, error) { return of, nil }
	x := &session{jobs: map[string]*part{"job": {job: j, task: "t1"}}}
	for _, changed := range []bool{false, true} {
		b.Run(map[bool]string{false: "same", true: "changed"}[changed], func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if changed {
					x.jobs["job"].may = rpc.Asked{}
				}
				if err := f.ownStill(b.Context(), o, x); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
