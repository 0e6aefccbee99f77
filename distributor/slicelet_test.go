package distributor

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/distributor/fanout"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

func running(sequence uint64) *slicerv1.Report {
	return &slicerv1.Report{Sequence: sequence, State: slicerv1.TaskState_TASK_STATE_RUNNING}
}

// tell runs what happens next and checks what the assigner is told of it.
func tell(t *testing.T, f *fakeAssigner, want ...string) {
	t.Helper()
	if got := f.told(); !slices.Equal(got, want) {
		t.Errorf("told\n%q\nwant\n%q", got, want)
	}
}

func TestReportsGoToThePreferred(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		f := n.assigner(t, "a1", assigner1)
		a := firstOf(t, testJob, testStore, baseGen, 10)
		f.set(a)
		w := newWorld(t, n, assigner1)
		s := subscribe(t, w.cc, sliceletHello("s1", 1), nil)
		time.Sleep(time.Second)
		tell(t, f, "hello d1", "want web from 0 reported 0")
		f.prefer(1, "a1")
		time.Sleep(time.Second)
		tell(t, f, "want web from g0 reported g0", "reports web complete s1/1#1 running", "acks web min g0 clerks 0 slicelets 1")
		// Reports are merged: of three within half a second the last counts.
		for i := range 3 {
			s.report(running(uint64(i + 2)))
			synctest.Wait()
		}
		time.Sleep(10 * time.Millisecond)
		tell(t, f, "reports web s1/1#2 running")
		time.Sleep(fanout.ReportGap)
		tell(t, f, "reports web s1/1#4 running")
		// A change of state does not wait.
		s.report(running(5))
		s.report(&slicerv1.Report{Sequence: 6, State: slicerv1.TaskState_TASK_STATE_DRAINING})
		time.Sleep(fanout.UrgentGap)
		tell(t, f, "reports web s1/1#6 draining")
		c := w.clerk("c1")
		time.Sleep(fanout.AcksGap)
		told := f.told() // before and after the clerk has acknowledged, or only after
		if told[len(told)-1] != "acks web min g0 clerks 1 slicelets 1" {
			t.Errorf("told %q", told)
		}
		c.close()
		s.close()
		time.Sleep(fanout.AcksGap)
		told = f.told()
		if !slices.Contains(told, "reports web s1/1#6 draining gone") || told[len(told)-1] != "acks web empty" {
			t.Errorf("told %q", told)
		}
	})
}

func TestReportsAge(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		f := n.assigner(t, "a1", assigner1)
		f.know(testJob)
		w := newWorld(t, n, assigner1)
		h := sliceletHello("s1", 1)
		h.Report.AgeMs = 70
		subscribe(t, w.cc, h, nil)
		synctest.Wait()
		time.Sleep(1500 * time.Millisecond)
		f.hear()
		f.prefer(1, "a1")
		for _, m := range f.hear() {
			if r := m.GetReports(); r.GetComplete() {
				if age := r.Reports[0].Report.AgeMs; age != 1570 {
					t.Errorf("age is %d ms, want 1570", age)
				}
				return
			}
		}
		t.Error("no reports")
	})
}

func TestTwoLiveTasksOfOneName(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		f := n.assigner(t, "a1", assigner1)
		f.know(testJob)
		f.prefer(1, "a1")
		w := newWorld(t, n, assigner1)
		first := subscribe(t, w.cc, sliceletHello("s1", 1), nil)
		synctest.Wait()
		second := subscribe(t, w.cc, sliceletHello("s1", 2), nil)
		if second.ended() != codes.AlreadyExists || first.ended() != codes.OK {
			t.Errorf("the second: %v; the first: %v", second.err, first.err)
		}
		f.hear()
		// The same process may reconnect: no task is gone.
		again := subscribe(t, w.cc, sliceletHello("s1", 1), nil)
		if again.ended() != codes.OK || first.ended() != codes.Aborted {
			t.Errorf("the same again: %v; the first: %v", again.err, first.err)
		}
		time.Sleep(time.Second)
		tell(t, f, "reports web s1/1#2 running")
		// One that has been silent for the heartbeat timeout makes way.
		time.Sleep(5 * time.Second)
		third := subscribe(t, w.cc, sliceletHello("s1", 3), nil)
		if third.ended() != codes.OK || again.ended() != codes.Aborted {
			t.Errorf("the next: %v; the silent one: %v", third.err, again.err)
		}
		time.Sleep(time.Second)
		tell(t, f, "reports web s1/1#2 running gone s1/3#3 running")
		// So does one whose stream has ended.
		third.close()
		synctest.Wait()
		fourth := subscribe(t, w.cc, sliceletHello("s1", 4), nil)
		if fourth.ended() != codes.OK {
			t.Errorf("after the end: %v", fourth.err)
		}
		time.Sleep(time.Second)
		told := slices.DeleteFunc(f.told(), func(line string) bool { return !strings.HasPrefix(line, "reports") })
		if !slices.Equal(told, []string{"reports web s1/3#3 running gone", "reports web s1/4#4 running"}) {
			t.Errorf("told %q", told)
		}
	})
}

func TestRefuseTask(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		f := n.assigner(t, "a1", assigner1)
		f.know(testJob)
		w := newWorld(t, n, assigner1)
		one := subscribe(t, w.cc, sliceletHello("s1", 1), nil)
		two := subscribe(t, w.cc, sliceletHello("s2", 2), nil)
		synctest.Wait()
		refuse := func(task string, incarnation uint64, code codes.Code) {
			f.say(&slicerv1.AttachResponse{Message: &slicerv1.AttachResponse_RefuseTask{RefuseTask: &slicerv1.RefuseTask{
				Job: testJob, Task: task, Incarnation: incarnation, Code: uint32(code), Message: "s1 is at 10.9.9.9",
			}}})
		}
		refuse("s1", 9, codes.AlreadyExists)
		refuse("s3", 1, codes.AlreadyExists)
		if one.ended() != codes.OK {
			t.Errorf("another incarnation was refused, this one has ended: %v", one.err)
		}
		refuse("s1", 1, codes.AlreadyExists)
		if one.ended() != codes.AlreadyExists || status.Convert(one.err).Message() != "s1 is at 10.9.9.9" {
			t.Errorf("refused: %v", one.err)
		}
		refuse("s2", 2, 4711)
		if two.ended() != codes.Unknown {
			t.Errorf("refused with a code that there is not: %v", two.err)
		}
	})
}

func TestStatusIsMergedAndRepeated(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		f := n.assigner(t, "a1", assigner1)
		f.know(testJob)
		w := newWorld(t, n, assigner1)
		c := w.clerk("c1")
		synctest.Wait()
		seen := func() int {
			synctest.Wait()
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.statuses
		}
		if seen() != 1 {
			t.Errorf("%d statuses, want 1", seen())
		}
		for i := range 50 {
			f.status(&slicerv1.JobStatus{Job: testJob, ConvergedGeneration: baseGen + int64(i)})
			time.Sleep(time.Millisecond)
		}
		time.Sleep(fanout.StatusGap)
		if g := c.lastStatus().GetConvergedGeneration(); g != baseGen+49 || seen() > 3 {
			t.Errorf("converged %d after %d statuses", g-baseGen, seen())
		}
		f.status(&slicerv1.JobStatus{Job: testJob, Stragglers: []string{"clerk c9"}})
		time.Sleep(fanout.StragglersGap)
		st := c.lastStatus()
		if !slices.Equal(st.GetStragglers(), []string{"clerk c9"}) || st.GetConvergedGeneration() != baseGen+49 {
			t.Errorf("status %v", st)
		}
		before := seen()
		time.Sleep(4 * fanout.RepeatInterval)
		if seen() < before+3 || seen() > before+5 {
			t.Errorf("%d statuses in %s of silence", seen()-before, 4*fanout.RepeatInterval)
		}
		// A slicelet hears more often.
		l := subscribe(t, w.cc, sliceletHello("task-1", 1), nil)
		if ms := l.lastStatus().GetRepeatMs(); ms != fanout.SliceletRepeat.Milliseconds() || c.lastStatus().GetRepeatMs() != fanout.RepeatInterval.Milliseconds() {
			t.Errorf("a slicelet is promised something every %d ms", ms)
		}
		l.mu.Lock()
		before = l.statuses
		l.mu.Unlock()
		time.Sleep(10 * fanout.SliceletRepeat)
		synctest.Wait()
		l.mu.Lock()
		defer l.mu.Unlock()
		if n := l.statuses - before; n < 9 || n > 11 {
			t.Errorf("%d statuses for a slicelet in %s of silence", n, 10*fanout.SliceletRepeat)
		}
	})
}
