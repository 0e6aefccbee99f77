package fanout

import (
	"slices"
	"testing"
	"time"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// popped are the jobs whose turn it is, those that are vacant with an exclamation mark.
func popped(u *Upstream) (jobs []string) {
	for {
		job, vacant, ok := u.Pop()
		if !ok {
			return jobs
		}
		if vacant {
			job += "!"
		}
		jobs = append(jobs, job)
	}
}

// A job is said once however often it was marked, in the order of the first marks.
func TestMarkedJobs(t *testing.T) {
	u := NewUpstream(epoch, false, &slicerv1.AssignerHello{})
	for _, job := range []string{"b", "a", "b", "c"} {
		u.Mark(job)
	}
	u.MarkVacant("a")
	u.MarkVacant("d")
	if got := popped(&u); !slices.Equal(got, []string{"b", "a!", "c", "d!"}) {
		t.Errorf("popped %v", got)
	}
	u.Mark("a")
	if got := popped(&u); !slices.Equal(got, []string{"a"}) {
		t.Errorf("popped %v: what was said once is not vacant for ever", got)
	}
}

// An assigner is told that a job has no subscriber here when it begins to be preferred for
// it, and not again while it stays so.
func TestVacantJobs(t *testing.T) {
	u := NewUpstream(epoch, false, &slicerv1.AssignerHello{})
	served := func(job string) bool { return job == "served" }
	for i, c := range []struct {
		preferred, want []string
	}{
		{[]string{"served", "other"}, []string{"other!"}},
		{[]string{"served", "other", "third"}, []string{"third!"}},
		{[]string{"third"}, nil},
		{[]string{"other", "third"}, []string{"other!"}},
	} {
		u.SetPreferred(c.preferred, served)
		if got := popped(&u); !slices.Equal(got, c.want) {
			t.Errorf("%d: preferred for %v: popped %v, want %v", i, c.preferred, got, c.want)
		}
	}
}

// An assigner that a job was asked of is told once when it is not any more.
func TestAskedNoLonger(t *testing.T) {
	u := NewUpstream(epoch, false, &slicerv1.AssignerHello{})
	want := WantRequest(&slicerv1.Want{Job: testJob})
	if got := u.Say(testJob, Tell{}); len(got) != 0 {
		t.Errorf("said %v of a job that was not asked of it", got)
	}
	if got := u.Say(testJob, Tell{Target: true, Messages: []*slicerv1.AttachRequest{want}}); len(got) != 1 || got[0] != want {
		t.Errorf("said %v, want what the job says", got)
	}
	if got := u.Say(testJob, Tell{}); len(got) != 1 || !got[0].GetWant().GetStop() {
		t.Errorf("said %v, want that it stops", got)
	}
	if got := u.Say(testJob, Tell{}); len(got) != 0 {
		t.Errorf("said %v again", got)
	}
}

// A Distributor of the first tier is not told which assigners are preferred.
func TestViewsAreDue(t *testing.T) {
	for _, firstTier := range []bool{false, true} {
		u := NewUpstream(epoch, firstTier, &slicerv1.AssignerHello{})
		if first, again := u.PopViews(), u.PopViews(); first == firstTier || again {
			t.Errorf("first tier %t: due %t, and again %t", firstTier, first, again)
		}
		u.MarkViews()
		if !u.PopViews() {
			t.Errorf("first tier %t: not due after a change", firstTier)
		}
	}
}

// The time that a Distributor counts as unacknowledged begins with the end of a stream whose
// assigner has just heard it, and with its last word if that was silent before.
func TestLastAcknowledged(t *testing.T) {
	u := NewUpstream(epoch, false, &slicerv1.AssignerHello{Acknowledges: true})
	at := func(d time.Duration) time.Time { return epoch.Add(d) }
	if again := u.Acknowledged(at(time.Second)); again {
		t.Error("a word after a second comes after a silence")
	}
	u.Ended(at(2500 * time.Millisecond))
	if got := u.LastAcknowledged(at(10 * time.Second)); !got.Equal(at(2500 * time.Millisecond)) {
		t.Errorf("heard until %s, want until its end", got.Sub(epoch))
	}
	u.Ended(at(9 * time.Second))
	if got := u.LastAcknowledged(at(10 * time.Second)); !got.Equal(at(2500 * time.Millisecond)) {
		t.Errorf("heard until %s, want until its last word", got.Sub(epoch))
	}
	if again := u.Acknowledged(at(2500*time.Millisecond + UnacknowledgedAfter)); !again {
		t.Error("a word after a silence is not noticed")
	}
	mute := NewUpstream(epoch, false, &slicerv1.AssignerHello{})
	if got := mute.LastAcknowledged(at(time.Hour)); !got.Equal(at(time.Hour)) {
		t.Errorf("one that does not say so heard it until %s, want while the stream lasts", got.Sub(epoch))
	}
}
