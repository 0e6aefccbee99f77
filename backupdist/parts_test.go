package backupdist

import (
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// Of a large job slicelets that read parts are sent theirs, by Watch and by Fetch; of a small one,
// and older slicelets, the whole; and one that refuses its part, too.
func TestParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemStore()
		m.put("web")
		a := assigned(t, nil, "web", 7, 10, assignment.PartFrom)
		m.write(a)
		_, cc := start(t, m)
		task := a.Task(0).Name
		part := func(a *assignment.Assignment) *assignment.Assignment { return assignment.NewCut(a).Part(task) }
		slicelet := func(reads bool) *slicerv1.Hello {
			h := hello("web")
			h.Role, h.Task, h.Parts = slicerv1.Role_ROLE_SLICELET, &slicerv1.Task{Name: task}, reads
			return h
		}
		takes := func(s *sub) { s.parts = true }
		is, was := subscribe(t, cc, slicelet(true), nil, takes), subscribe(t, cc, slicelet(false), nil)
		wary := subscribe(t, cc, slicelet(true), nil, takes, func(s *sub) { s.refuse = 1 })
		is.expect(part(a), "part")
		was.expect(a, "whole")
		wary.expect(a, "part", "whole")
		next := assigned(t, a, "web", 7, 11, assignment.PartFrom)
		m.write(next)
		is.expect(part(next), "part", "part delta")
		want, _ := assignment.NewCut(next).Since(assignment.NewCut(a), task)
		if to := is.a.Moves().To; to == nil || to.Checksum() != want.Moves().To.Checksum() {
			t.Errorf("moves to %v, want %v", to, want.Moves().To)
		}
		was.expect(next, "whole", "delta")
		again := subscribe(t, cc, slicelet(true), part(a), takes)
		again.expect(part(next), "part delta")
		has := subscribe(t, cc, slicelet(true), part(next), takes)
		has.expect(part(next))
		whole := subscribe(t, cc, slicelet(true), next, takes)
		whole.expect(part(next), "part")
		fetch := func(name string, g assignment.Generation) (*assignment.Assignment, error) {
			stream, err := slicerv1.NewSubscriberServiceClient(cc).Fetch(t.Context(), &slicerv1.FetchRequest{Job: "web", Generation: int64(g), Compressed: true, Part: name})
			if err != nil {
				return nil, err
			}
			asm := wire.Assembler{Parts: true}
			for {
				m, err := stream.Recv()
				if err != nil {
					return nil, err
				}
				if a, err := asm.Take(m, nil); a != nil || err != nil {
					return a, err
				}
			}
		}
		for _, want := range []*assignment.Assignment{a, next} {
			if got, err := fetch(task, want.Generation()); err != nil || got.Checksum() != part(want).Checksum() {
				t.Errorf("fetched %v: %v", got, err)
			}
		}
		if _, err := fetch("a task", 0); status.Code(err) != codes.InvalidArgument {
			t.Errorf("a part for what is no task's name: %v", err)
		}
		small := assigned(t, nil, "web", 8, 12, 100)
		m.write(small)
		is.expect(small, "part", "part delta", "whole")
	})
}
