package distributor

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/distributor/fanout"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// readsParts is the hello of a task that reads parts, and partOf what it is to hold.
func readsParts(task assignment.Task) *slicerv1.Hello {
	h := sliceletHello(task.Name, task.Incarnation)
	h.Parts = true
	return h
}

func partOf(a *assignment.Assignment, task assignment.Task) *assignment.Assignment {
	return assignment.NewCut(a).Part(task.Name)
}

func takesParts(s *fakeSub) { s.parts = true }

// cameAsParts says of each assignment that came whether it was a part.
func (s *fakeSub) cameAsParts() (all []bool) {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.got {
		all = append(all, t.Part)
	}
	return all
}

// Of a large job slicelets that read parts are sent theirs, then deltas between them, with what
// listeners are told; an older slicelet, and a clerk, are sent the whole; and so is a slicelet
// that refuses its part.
func TestPartsOfALargeJob(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		f := n.assigner(t, "a1", assigner1)
		first := firstOf(t, testJob, testStore, baseGen, assignment.PartFrom)
		f.set(first)
		f.prefer(1, "a1")
		w := newWorld(t, n, assigner1)
		new1, new2, old, wary := first.Task(1), first.Task(2), first.Task(3), first.Task(4)
		s1, s2 := subscribe(t, w.cc, readsParts(new1), nil, takesParts), subscribe(t, w.cc, readsParts(new2), nil, takesParts)
		s3, c := subscribe(t, w.cc, sliceletHello(old.Name, old.Incarnation), nil), subscribe(t, w.cc, clerkHello("c"), nil)
		s4 := subscribe(t, w.cc, readsParts(wary), nil, takesParts, func(s *fakeSub) { s.refuse = 1 })
		same(t, s1.holds(), partOf(first, new1))
		same(t, s2.holds(), partOf(first, new2))
		for _, s := range []*fakeSub{s3, c, s4} {
			same(t, s.holds(), first)
		}
		if got := s4.cameAsParts(); !slices.Equal(got, []bool{true, false}) {
			t.Errorf("parts after a refusal: %v", got)
		}
		second := after(t, first, 2000)
		f.set(second)
		same(t, s1.holds(), partOf(second, new1))
		same(t, c.holds(), second)
		if kinds := s1.kinds(); !slices.Equal(kinds, []string{fanout.KindWhole, fanout.KindDelta}) {
			t.Errorf("sent %v", kinds)
		}
		want, _ := assignment.NewCut(second).Since(assignment.NewCut(first), new1.Name)
		same(t, s1.holds().Moves().From, want.Moves().From)
		same(t, s1.holds().Moves().To, want.Moves().To)
		// One that comes back with its part is sent a delta.
		s2.close()
		third := after(t, second, 2000)
		f.set(third)
		s2 = subscribe(t, w.cc, holding(readsParts(new2), partOf(second, new2)), partOf(second, new2), takesParts)
		same(t, s2.holds(), partOf(third, new2))
		if kinds := s2.kinds(); !slices.Equal(kinds, []string{fanout.KindDelta}) {
			t.Errorf("sent %v to one that came back", kinds)
		}
		// One that holds the whole is sent its part, and one that holds the newest part nothing.
		s1.close()
		s2.close()
		s1 = subscribe(t, w.cc, holding(readsParts(new1), third), third, takesParts)
		s2 = subscribe(t, w.cc, holding(readsParts(new2), partOf(third, new2)), partOf(third, new2), takesParts)
		same(t, s1.holds(), partOf(third, new1))
		if got := s2.cameAsParts(); len(got) != 0 {
			t.Errorf("%d assignments for one that holds the newest", len(got))
		}
		// All count as holding the newest.
		time.Sleep(2 * fanout.AcksGap)
		if told := f.told(); !slices.Contains(told, "acks web min g2 clerks 1 slicelets 4") {
			t.Errorf("told %q", told)
		}
	})
}

// A job that shrinks a little goes on with parts, one that becomes small is sent whole.
func TestPartsOfAJobThatShrinks(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		f := n.assigner(t, "a1", assigner1)
		first := firstOf(t, testJob, testStore, baseGen, assignment.PartFrom)
		f.set(first)
		w := newWorld(t, n, assigner1)
		task := first.Task(1)
		s := subscribe(t, w.cc, readsParts(task), nil, takesParts)
		same(t, s.holds(), partOf(first, task))
		for _, c := range []struct {
			slices int
			part   bool
		}{{assignment.PartFrom - 1, true}, {assignment.PartFrom/2 - 1, false}, {assignment.PartFrom - 1, false}, {assignment.PartFrom, true}} {
			a := firstOf(t, testJob, testStore, s.holds().Generation()+1, c.slices)
			f.set(a)
			if want := a; c.part {
				same(t, s.holds(), partOf(a, task))
			} else {
				same(t, s.holds(), want)
			}
		}
	})
}

// After a restart the base is asked for by its number, and what a Distributor does not know of
// the past the slicelet is not told.
func TestPartsAfterARestart(t *testing.T) {
	for _, had := range []bool{true, false} {
		inBubble(t, func(t *testing.T) {
			n := newNetwork()
			f := n.assigner(t, "a1", assigner1)
			first := firstOf(t, testJob, testStore, baseGen, assignment.PartFrom)
			second := after(t, first, 2000)
			f.past = map[int64]*assignment.Assignment{}
			if had {
				f.past[int64(first.Generation())] = first
			}
			f.know(testJob)
			w := newWorld(t, n, assigner1)
			var subs []*fakeSub
			for i := range 8 {
				task := first.Task(i)
				subs = append(subs, subscribe(t, w.cc, holding(readsParts(task), partOf(first, task)), partOf(first, task), takesParts))
			}
			synctest.Wait()
			f.set(second)
			for i, s := range subs {
				same(t, s.holds(), partOf(second, first.Task(i)))
				kind := fanout.KindWhole
				if had {
					kind = fanout.KindDelta
				}
				if kinds := s.kinds(); !slices.Equal(kinds, []string{kind}) || (s.holds().Moves() != assignment.Moves{}) != had {
					t.Errorf("base %t: sent %v, with moves %t", had, kinds, s.holds().Moves() != assignment.Moves{})
				}
			}
		})
	}
}

// A fetch gets the part that it asks for, of a large job.
func TestFetchOfAPart(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		f := n.assigner(t, "a1", assigner1)
		first := firstOf(t, testJob, testStore, baseGen, assignment.PartFrom)
		second := after(t, first, 100)
		f.set(first)
		w := newWorld(t, n, assigner1)
		subscribe(t, w.cc, clerkHello("c"), nil).holds()
		f.set(second)
		synctest.Wait()
		for _, a := range []*assignment.Assignment{first, second} {
			stream, err := slicerv1.NewSubscriberServiceClient(w.cc).Fetch(t.Context(), &slicerv1.FetchRequest{Job: testJob, Generation: int64(a.Generation()), Compressed: true, Part: "task-7"})
			if err != nil {
				t.Fatal(err)
			}
			asm := wire.Assembler{Parts: true}
			var got *assignment.Assignment
			for got == nil {
				m, err := stream.Recv()
				if err == nil {
					got, err = asm.Take(m, nil)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			same(t, got, partOf(a, first.Task(7)))
		}
		stream, err := slicerv1.NewSubscriberServiceClient(w.cc).Fetch(t.Context(), &slicerv1.FetchRequest{Job: testJob, Part: "a task"})
		if err == nil {
			_, err = stream.Recv()
		}
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("a part for what is no task's name: %v", err)
		}
	})
}
