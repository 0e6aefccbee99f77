package distributor

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/distributor/fanout"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

func TestPreferenceMoves(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		f1, f2 := n.assigner(t, "a1", assigner1), n.assigner(t, "a2", assigner2)
		a := firstOf(t, testJob, testStore, baseGen, 10)
		f1.set(a)
		f2.set(a)
		f1.prefer(1, "a1")
		f2.prefer(1, "a1")
		w := newWorld(t, n, assigner1, assigner2)
		time.Sleep(time.Second)
		s := subscribe(t, w.cc, sliceletHello("s1", 1), nil)
		time.Sleep(time.Second)
		f1.told()
		tell(t, f2, "hello d1")
		// The older view does not count, the newer one does.
		f2.prefer(0, "a2")
		tell(t, f2)
		f2.prefer(2, "a2")
		time.Sleep(time.Second)
		tell(t, f2, "want web from g0 reported g0", "reports web complete s1/1#1 running", "acks web min g0 clerks 0 slicelets 1")
		tell(t, f1, "stop web")
		s.report(running(2))
		time.Sleep(time.Second)
		tell(t, f2, "reports web s1/1#2 running")
		tell(t, f1)
		// The preferred one dies: the other is asked, and told nothing of tasks.
		f2.stop()
		time.Sleep(time.Second)
		s.report(running(3))
		time.Sleep(time.Second)
		told := f1.told()
		if !slices.Equal(told, []string{"want web from g0 reported g0", "reports web complete s1/1#2 running", "acks web min g0 clerks 0 slicelets 1", "reports web s1/1#3 running"}) {
			t.Errorf("told %q", told)
		}
		b := after(t, a, 1)
		f1.set(b)
		same(t, s.holds(), b)
	})
}

func TestStandInGetsNoReports(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		f := n.assigner(t, "a1", assigner1)
		a := firstOf(t, testJob, testStore, baseGen, 10)
		f.set(a)
		f.prefer(5, "a9")
		w := newWorld(t, n, assigner1)
		s := subscribe(t, w.cc, sliceletHello("s1", 1), nil)
		same(t, s.holds(), a)
		s.close()
		subscribe(t, w.cc, sliceletHello("s2", 1), nil)
		time.Sleep(time.Second)
		tell(t, f, "hello d1", "want web from 0 reported 0")
		f.prefer(6, "a1")
		tell(t, f, "want web from g0 reported g0", "reports web complete s2/1#2 running", "acks web min g0 clerks 0 slicelets 1")
	})
}

func TestVacantJobsAreReported(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		f := n.assigner(t, "a1", assigner1)
		newWorld(t, n, assigner1)
		f.prefer(1, "a1")
		tell(t, f, "hello d1", "reports web complete", "acks web empty")
		f.prefer(2, "a1")
		tell(t, f)
		f.prefer(3, "")
		tell(t, f)
		f.prefer(4, "a1")
		tell(t, f, "reports web complete", "acks web empty")
	})
}

func TestHeartbeat(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		f := n.assigner(t, "a1", assigner1)
		newWorld(t, n, assigner1)
		time.Sleep(time.Second)
		f.hear()
		time.Sleep(10 * time.Second)
		if heard := f.hear(); len(heard) < 15 || len(heard) > 25 {
			t.Errorf("heard %d messages in 10 s of silence", len(heard))
		}
	})
}

func TestAllAssignersDead(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		f := n.assigner(t, "a1", assigner1)
		a := firstOf(t, testJob, testStore, baseGen, 10)
		f.set(a)
		f.prefer(1, "a1")
		w := newWorld(t, n, assigner1)
		old := w.clerk("old")
		same(t, old.holds(), a)
		f.stop()
		time.Sleep(time.Minute)
		fresh := w.clerk("fresh")
		s := subscribe(t, w.cc, sliceletHello("s1", 1), nil)
		time.Sleep(time.Minute)
		same(t, fresh.holds(), a)
		if old.ended() != codes.OK || fresh.ended() != codes.OK || s.ended() != codes.OK {
			t.Errorf("ended: %v, %v, %v", old.err, fresh.err, s.err)
		}
		if err := w.d.Ready(); err != nil {
			t.Errorf("not ready: %v", err)
		}
		b := after(t, a, 1)
		f.set(b)
		f.start(n, assigner1)
		time.Sleep(2 * retryMax)
		for _, c := range []*fakeSub{old, fresh, s} {
			same(t, c.holds(), b)
		}
		if told := f.told(); !slices.Contains(told, "reports web complete s1/1#1 running") {
			t.Errorf("the assigner that is back was told %q", told)
		}
	})
}

func TestReady(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		w := newWorld(t, n, assigner1)
		time.Sleep(time.Second)
		if err := w.d.Ready(); err == nil || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("ready without an assigner: %v", err)
		}
		n.assigner(t, "a1", assigner1)
		time.Sleep(retryMax)
		synctest.Wait()
		if err := w.d.Ready(); err != nil {
			t.Errorf("not ready: %v", err)
		}
		w.d.Close()
		if err := w.d.Ready(); err == nil {
			t.Error("ready after Close")
		}
	})
}

func TestMalformedAssignmentIsAskedForAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		f := n.assigner(t, "a1", assigner1)
		a := firstOf(t, testJob, testStore, baseGen, 100)
		f.set(a)
		w := newWorld(t, n, assigner1)
		c := w.clerk("c1")
		same(t, c.holds(), a)
		f.told()
		b := after(t, a, 3)
		fr, err := wire.DeltaFrame(a, b)
		if err != nil {
			t.Fatal(err)
		}
		broken := append([]byte(nil), fr.Data...)
		for i := range broken {
			broken[i] ^= 0x55
		}
		for name, send := range map[string]func(*fakeStream){
			"garbage":   func(s *fakeStream) { f.frame(s, testJob, broken, fr.Trailer) },
			"truncated": func(s *fakeStream) { f.frame(s, testJob, fr.Data[:len(fr.Data)-1], fr.Trailer) },
			"nothing":   func(s *fakeStream) { f.frame(s, testJob, nil, fr.Trailer) },
			"unknown base": func(s *fakeStream) {
				f.frame(s, testJob, fr.Data, &slicerv1.Trailer{Generation: fr.Trailer.Generation, Base: 17, Size: fr.Trailer.Size})
			},
			"wrong checksum": func(s *fakeStream) {
				f.frame(s, testJob, fr.Data, &slicerv1.Trailer{Generation: fr.Trailer.Generation, Base: fr.Trailer.Base, Size: fr.Trailer.Size})
			},
			"neither": func(s *fakeStream) {
				f.reply(s, &slicerv1.AttachResponse{Message: &slicerv1.AttachResponse_Assignment{Assignment: &slicerv1.JobAssignment{Job: testJob}}})
			},
		} {
			f.mu.Lock()
			for s := range f.streams {
				send(s)
			}
			f.mu.Unlock()
			time.Sleep(fanout.AskAgainMax)
			if told := f.told(); !slices.Equal(told, []string{"want web from 0 reported 0"}) {
				t.Errorf("%s: told %q", name, told)
			}
			if f.attachedStreams() != 1 || c.ended() != codes.OK {
				t.Errorf("%s: the stream was lost", name)
			}
			same(t, c.holds(), a)
		}
		f.set(b)
		same(t, c.holds(), b)
	})
}

func TestAssignerReachedByTwoAddresses(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		f := n.assigner(t, "a1", assigner1)
		a := firstOf(t, testJob, testStore, baseGen, 10)
		f.set(a)
		stop := f.stop
		f.start(n, assigner2)
		w := newWorld(t, n, assigner1, assigner2)
		time.Sleep(10 * time.Second)
		c := w.clerk("c1")
		same(t, c.holds(), a)
		f.told()
		time.Sleep(10 * time.Minute)
		if got := f.attachedStreams(); got != 1 {
			t.Errorf("%d streams to one assigner", got)
		}
		if told := f.told(); len(told) > 0 {
			t.Errorf("once it has settled, told %q", told)
		}
		stop()
		time.Sleep(5 * time.Second)
		f.stop()
		time.Sleep(5 * time.Second)
		f.start(n, assigner1)
		a = after(t, a, 1)
		f.set(a)
		time.Sleep(2 * retryMax)
		same(t, c.holds(), a)
	})
}

func TestAssignersAreFoundByNameAndByOneAnother(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		n.setHost("assigners.local", "10.0.0.1", "fd00::1")
		f1, f2, f3 := n.assigner(t, "a1", assigner1), n.assigner(t, "a2", assigner2), n.assigner(t, "a3", "10.0.0.3:7100")
		w := newWorld(t, n, "assigners.local:7100")
		time.Sleep(time.Second)
		if f1.attachedStreams() != 1 || f2.attachedStreams() != 0 {
			t.Error("the first is not attached, or the second is")
		}
		n.setHost("assigners.local", "10.0.0.2", "10.0.0.1")
		time.Sleep(lookupEvery)
		if f2.attachedStreams() != 1 {
			t.Error("an address that the name has gained is not used")
		}
		f1.prefer(1, "a3", &slicerv1.Candidate{AssignerId: "a3", Address: "10.0.0.3:7100"})
		time.Sleep(time.Second)
		if f3.attachedStreams() != 1 {
			t.Error("an assigner that another names is not attached")
		}
		// An address that is gone is given up once there is no answer.
		f1.prefer(2, "a1")
		n.setHost("assigners.local", "10.0.0.1")
		time.Sleep(lookupEvery)
		if f3.attachedStreams() != 1 || f2.attachedStreams() != 1 {
			t.Error("streams that work were ended")
		}
		f2.stop()
		f3.stop()
		time.Sleep(2 * lookupEvery)
		f2.start(n, assigner2)
		time.Sleep(lookupEvery)
		if f2.attachedStreams() != 0 {
			t.Error("an address that no assigner names is still tried")
		}
		_ = w
	})
}

func TestIdleJobIsDropped(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		f := n.assigner(t, "a1", assigner1)
		f.set(firstOf(t, testJob, testStore, baseGen, 10))
		f.prefer(1, "a1")
		w := newWorld(t, n, assigner1)
		c := w.clerk("c1")
		c.holds()
		f.told()
		c.close()
		time.Sleep(idleFor / 2)
		if c = w.clerk("c2"); len(c.kinds()) != 1 {
			t.Error("the assignment is not held any more")
		}
		c.close()
		time.Sleep(fanout.AcksGap)
		f.told()
		time.Sleep(idleFor)
		tell(t, f, "reports web complete", "acks web empty", "stop web")
		if w.d.lookup(testJob) != nil {
			t.Error("the job is still there")
		}
	})
}

// An assigner takes a report for old whose number is not above the last of the task on
// that stream. A job that is dropped and made again goes on.
func TestNumbersOfReportsGoOn(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		f := n.assigner(t, "a1", assigner1)
		f.set(firstOf(t, testJob, testStore, baseGen, 10))
		f.prefer(1, "a1")
		w := newWorld(t, n, assigner1)
		numbers := func() (least, most uint64) {
			s := subscribe(t, w.cc, sliceletHello("task-0", 1), nil)
			s.holds()
			for i := range uint64(5) {
				s.report(running(i + 1))
				time.Sleep(time.Second)
			}
			s.close()
			for _, m := range f.hear() {
				for _, r := range m.GetReports().GetReports() {
					n := r.GetReport().GetSequence()
					most = max(most, n)
					if least == 0 || n < least {
						least = n
					}
				}
			}
			return least, most
		}
		_, before := numbers()
		time.Sleep(2 * idleFor)
		if w.d.lookup(testJob) != nil {
			t.Fatal("the job is still there")
		}
		if after, _ := numbers(); before == 0 || after <= before {
			t.Errorf("reports up to %d, and %d when the job was made again", before, after)
		}
	})
}

func TestCloseEndsEverything(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		f := n.assigner(t, "a1", assigner1)
		f.set(firstOf(t, testJob, testStore, baseGen, 10))
		w := newWorld(t, n, assigner1)
		c := w.clerk("c1")
		mute, err := slicerv1.NewSubscriberServiceClient(w.cc).Watch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		c.holds()
		w.d.Close()
		if c.ended() != codes.Unavailable {
			t.Errorf("ended with %v", c.err)
		}
		mute.Recv()
		if late := w.clerk("late"); late.ended() != codes.Unavailable {
			t.Errorf("after Close: %v", late.err)
		}
		w.d.Close()
	})
}
