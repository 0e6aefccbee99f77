package distributor

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	_ "github.com/slicer-project/slicer/assignment/seedtest" // rapid's seed

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// clients says in one line each what was heard of clients.
func (f *fakeAssigner) clients() (lines []string) {
	for _, m := range f.hear() {
		c := m.GetClients()
		if c == nil {
			continue
		}
		line := c.Job
		if c.Complete {
			line += " complete"
		}
		for _, x := range c.Clients {
			line += " " + x.ClientId
			if x.Index != nil {
				line += fmt.Sprintf("=%d", *x.Index)
			}
			if x.Disconnected {
				line += " gone"
			}
		}
		lines = append(lines, line)
	}
	return lines
}

func (f *fakeAssigner) grant(id string, index uint32) {
	f.say(&slicerv1.AttachResponse{Message: &slicerv1.AttachResponse_ClientIndexes{ClientIndexes: &slicerv1.ClientIndexes{
		Job: testJob, Indexes: []*slicerv1.ClientIndex{{ClientId: id, Index: index}}}}})
}

func named(t *testing.T, f *fakeAssigner, want ...string) {
	t.Helper()
	time.Sleep(time.Second)
	if got := f.clients(); !slices.Equal(got, want) {
		t.Errorf("%s was told %q, want %q", f.id, got, want)
	}
}

// index is what the subscriber was told last, -1 if nothing.
func (s *fakeSub) index() int {
	if st := s.lastStatus(); st != nil && st.ClientIndex != nil {
		return int(*st.ClientIndex)
	}
	return -1
}

func (s *fakeSub) heardStatuses() int {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.statuses
}

func TestClientIndexesArePassedOn(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		f1, f2 := n.assigner(t, "a1", assigner1), n.assigner(t, "a2", assigner2)
		a := firstOf(t, testJob, testStore, baseGen, 10)
		f1.set(a)
		f2.set(a)
		f1.prefer(1, "a1")
		w := newWorld(t, n, assigner1, assigner2)
		named(t, f1, "web complete")
		s1 := subscribe(t, w.cc, clerkHello("c1"), nil)
		s2 := subscribe(t, w.cc, clerkHello("c2"), nil)
		sl := subscribe(t, w.cc, sliceletHello("s1", 1), nil)
		synctest.Wait()
		time.Sleep(time.Second)
		if told := strings.Join(f1.clients(), " "); strings.Count(told, "c1") != 1 || strings.Count(told, "c2") != 1 || strings.Contains(told, "s1") {
			t.Errorf("told %q", told)
		}
		// One is told its index, the others nothing: not that one, nor another status.
		before := s2.heardStatuses()
		f1.grant("c1", 7)
		f1.grant("nobody", 8)
		f1.grant("c-s1", 8)
		f1.grant("c2", 1<<30)
		if s1.index() != 7 || s2.index() != -1 || sl.index() != -1 || s2.heardStatuses() != before {
			t.Errorf("indexes %d, %d, %d, statuses %d, before %d", s1.index(), s2.index(), sl.index(), s2.heardStatuses(), before)
		}
		if st := s1.lastStatus(); st.RepeatMs == 0 || st.Mode == 0 || !st.TakesReports {
			t.Errorf("the status with the index lacks the rest: %v", st)
		}
		// The status after it is the same for all.
		time.Sleep(6 * time.Second)
		if s1.index() != -1 || !proto.Equal(s1.lastStatus(), s2.lastStatus()) {
			t.Errorf("%v, %v", s1.lastStatus(), s2.lastStatus())
		}
		// Another assigner has no say.
		f2.grant("c2", 3)
		if s2.index() != -1 {
			t.Error("an index from an assigner that is not preferred")
		}
		// It learns everything when it is preferred.
		f1.clients()
		f2.prefer(2, "a2")
		named(t, f2, "web complete c1=7 c2")
		named(t, f1)
		f2.grant("c2", 3)
		if s2.index() != 3 {
			t.Errorf("index %d", s2.index())
		}
		// c1 reconnects, and its older stream ends only then.
		h := clerkHello("c1")
		h.ClientIndex = new(uint32(7))
		again := subscribe(t, w.cc, holding(h, a), a)
		synctest.Wait()
		s1.close()
		named(t, f2, "web c1=7")
		if again.index() != -1 {
			t.Errorf("it is told what it knows: %d", again.index())
		}
		// One that has another than it should is told.
		h = clerkHello("c2")
		h.ClientIndex = new(uint32(5))
		if s := subscribe(t, w.cc, holding(h, a), a); s.index() != 3 {
			t.Errorf("index %d", s.index())
		}
		again.close()
		time.Sleep(time.Second)
		if told := strings.Join(f2.clients(), " "); !strings.Contains(told, "c1 gone") || strings.Contains(told, "c2 gone") {
			t.Errorf("told %q", told)
		}
	})
}

// After a restart of the Distributor the clerks' hellos say what they hold.
func TestClientIndexesSurviveTheDistributor(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f, a, w := served(t, 10)
		for i := range 3 {
			h := clerkHello(fmt.Sprint("c", i))
			if i > 0 {
				h.ClientIndex = new(uint32(10 * i))
			}
			s := subscribe(t, w.cc, holding(h, a), a)
			if s.index() != -1 {
				t.Errorf("index %d", s.index())
			}
		}
		time.Sleep(time.Second)
		f.clients()
		f.prefer(2, "")
		f.prefer(3, "a1")
		named(t, f, "web complete c1=10 c2=20 c0")
	})
}

func TestHelloIndexRefused(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		f := n.assigner(t, "a1", assigner1)
		f.prefer(1, "a1")
		w := newWorld(t, n, assigner1)
		h := clerkHello("c1")
		h.ClientIndex = new(uint32(1 << 24))
		if code := subscribe(t, w.cc, h, nil).ended(); code != codes.InvalidArgument {
			t.Errorf("ended with %s", code)
		}
	})
}
