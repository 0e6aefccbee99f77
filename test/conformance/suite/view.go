package suite

import (
	"fmt"
	"slices"

	"github.com/slicer-project/slicer/assignment"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"github.com/slicer-project/slicer/test/conformance/line"
)

// greeting is the status with which a Distributor begins: the job is in affinity mode, and
// reports are so far apart that checks which are not about them see none but the first.
func greeting() *slicerv1.Status {
	return &slicerv1.Status{
		TakesReports: true, Mode: slicerv1.Mode_MODE_AFFINITY, LoadMetric: assignment.LoadRequests,
		ReportIntervalMs: 60_000, RepeatMs: 20_000,
	}
}

// view compares what the implementation goes by with an assignment, nil for none: the generation
// in hand, and for a row of keys whether the task owns them or which tasks do. It is empty if they
// are the same.
func (s *session) view(a *assignment.Assignment) (differs string) {
	keys := probes()
	g := int64(0)
	if a != nil {
		g = int64(a.Generation())
	}
	if got := s.generation(); got != g {
		return fmt.Sprintf("generation %d in hand", got)
	}
	if s.t.role == Slicelet {
		return s.ownership(a, keys)
	}
	owners := s.do(line.Request{Op: "lookup", Keys: keys}).Owners
	if len(owners) != len(keys) {
		s.t.faultAt(refDriver, fmt.Sprintf("owners of %d keys", len(keys)), fmt.Sprintf("of %d", len(owners)))
	}
	for i, k := range keys {
		var want []string
		if a != nil {
			for t := range a.Lookup(assignment.KeyOf(k)).All() {
				want = append(want, t.Name)
			}
		}
		got := slices.Sorted(slices.Values(owners[i]))
		if slices.Sort(want); !slices.Equal(got, want) {
			return fmt.Sprintf("owners %q of key %q (slice key %s), which are %q by the assignment", got, k, assignment.KeyOf(k), want)
		}
	}
	return ""
}

// ownership compares which keys the task owns.
func (s *session) ownership(a *assignment.Assignment, keys []string) (differs string) {
	owned := s.owns(keys)
	for i, k := range keys {
		if want := a != nil && owns(a, me, k); owned[i] != want {
			return fmt.Sprintf("owned=%t for key %q (slice key %s), which is %t by the assignment", owned[i], k, assignment.KeyOf(k), want)
		}
	}
	return ""
}

// owns asks for each of the keys whether the task owns it.
func (s *session) owns(keys []string) []bool {
	owned := s.do(line.Request{Op: "owns", Keys: keys}).Owned
	if len(owned) != len(keys) {
		s.t.faultAt(refDriver, fmt.Sprintf("whether %d keys are owned", len(keys)), fmt.Sprintf("of %d", len(owned)))
	}
	return owned
}

// wantView expects the implementation to go by an assignment now.
func (s *session) wantView(a *assignment.Assignment, when string) {
	if saw := s.view(a); saw != "" {
		s.t.fault(fmt.Sprintf("generation %s in use %s", generationOf(a), when), saw)
	}
}

// comesToView expects it to do so before long.
func (s *session) comesToView(a *assignment.Assignment, when string) {
	s.t.eventually(fmt.Sprintf("generation %s in use %s", generationOf(a), when), func() (bool, string) {
		saw := s.view(a)
		return saw == "", saw
	})
}

func generationOf(a *assignment.Assignment) string {
	if a == nil {
		return "0"
	}
	return fmt.Sprint(int64(a.Generation()))
}

// begin starts the implementation with one Distributor, and greets it.
func (t *T) begin() (*session, *server, *watch) {
	d := t.server("A")
	s := t.start(startConfig{distributors: []*server{d}})
	w := d.accept()
	w.status(greeting())
	return s, d, w
}

// give is begin, and n assignments of which it takes the first.
func (t *T) give(n int) (*session, *server, *watch, []*assignment.Assignment) {
	s, d, w := t.begin()
	all := storyOf(w).chain(n)
	w.put(all[0])
	w.wantTaken(all[0], "a whole assignment")
	return s, d, w, all
}
