package downstream

import (
	"fmt"
	"testing"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// Whatever a Distributor says, and however little it takes, what is kept for it is bounded.
func TestStreamIsBounded(t *testing.T) {
	s := NewStream("a1", "")
	want := func(job string) error {
		_, err := s.Received(0, &slicerv1.AttachRequest{Message: &slicerv1.AttachRequest_Want{Want: &slicerv1.Want{Job: job}}})
		return err
	}
	for i := range maxJobs {
		if err := want(fmt.Sprint("job-", i)); err != nil {
			t.Fatal(err)
		}
	}
	if want("one-more") == nil || want("No Job") == nil {
		t.Error("a job too many, or one without a good name, is taken")
	}
	if err := want("job-7"); err != nil {
		t.Error(err)
	}
	s.Drop("job-0")
	for range 1000 {
		if err := want("one-more"); err != nil {
			t.Fatal(err)
		}
		s.Mark("one-more")
		s.Mark("job-1")
		s.Drop("one-more")
	}
	s.Mark("job-0") // was dropped before it heard of this
	if len(s.queue) != 2 || s.queue[0] != "job-1" || s.queue[1] != "job-0" {
		t.Errorf("the queue is %q", s.queue)
	}
	for range 2 * maxRefusals {
		s.Refuse(&slicerv1.RefuseTask{})
	}
	if len(s.refusals) != maxRefusals {
		t.Errorf("%d refusals wait", len(s.refusals))
	}
	var many slicerv1.PreferenceView
	for i := range maxJobs + 10 {
		many.Jobs = append(many.Jobs, &slicerv1.PreferredAssigner{Job: fmt.Sprint("job-", i)})
	}
	if _, err := s.Received(0, &slicerv1.AttachRequest{Message: &slicerv1.AttachRequest_PreferenceView{PreferenceView: &many}}); err != nil || len(s.preferred) != maxJobs {
		t.Errorf("%d views, %v", len(s.preferred), err)
	}
}
