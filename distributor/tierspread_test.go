package distributor

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slicer-project/slicer/assignment"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// progressOf is what a Distributor has said last of its clerks: by generation how many
// hold it, and of the newest how many came to hold it, are waited for, and the time of
// the last.
func (f *fakeAssigner) progressOf(distributor string) string {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.acks[distributor]
	out := fmt.Sprintf("%d clerks:", m.GetClerks())
	for _, h := range m.GetHolders() {
		out += fmt.Sprintf(" %d hold %s", h.Subscribers, short(h.Generation))
	}
	for _, s := range m.GetSpreads() {
		reached := uint32(0)
		for _, n := range s.Count {
			reached += n
		}
		out += fmt.Sprintf("; %s reached %d, waiting %d, last %s", short(s.Generation), reached, s.Waiting, time.Duration(s.LastUs)*time.Microsecond)
	}
	for _, s := range m.GetSlow() {
		out += "; slow " + s.Name
	}
	return out
}

// An assigner is told by each Distributor of its own subscribers, once: those below the
// second tier are not among the first's, and how long an assignment took is counted
// from its write in both, whenever it comes and whenever that is told.
func TestProgressThroughTwoTiers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		f := n.tieredAssigner(t)
		a := firstOf(t, testJob, testStore, baseGen, 200)
		f.set(a)
		d1, d2 := n.node(t, "d1"), n.node(t, "d2", "d1")
		time.Sleep(time.Second)
		var subs []*fakeSub
		for i := range 7 {
			m := d1
			if i >= 3 {
				m = d2
			}
			subs = append(subs, subscribe(t, m.cc, clerkHello(fmt.Sprint("c", i)), nil))
		}
		slow := subs[6]
		time.Sleep(time.Second)
		check := func(what string, first, second string) {
			t.Helper()
			for id, want := range map[string]string{"d1": first, "d2": second} {
				if got := f.progressOf(id); !strings.HasPrefix(got, want) {
					t.Errorf("%s: %s says\n%s, want\n%s", what, id, got, want)
				}
			}
		}
		check("before", "3 clerks: 3 hold g0", "4 clerks: 4 hold g0")
		slow.mu.Lock()
		slow.silent = true
		slow.mu.Unlock()
		// It was written half a second before it comes to the first tier.
		f.mu.Lock()
		f.written = time.Now().Add(-500 * time.Millisecond)
		f.mu.Unlock()
		b := after(t, a, 2)
		f.set(b)
		time.Sleep(time.Second)
		check("one does not acknowledge", "3 clerks: 3 hold g1; g1 reached 3, waiting 0, last 500ms",
			"4 clerks: 3 hold g1 1 hold g0; g1 reached 3, waiting 1, last 500ms")
		time.Sleep(6 * time.Second)
		check("it is slow", "3 clerks: 3 hold g1; g1 reached 3, waiting 0, last 500ms",
			"4 clerks: 3 hold g1 1 hold g0; g1 reached 3, waiting 1, last 500ms; slow clerk c6")
		slow.ack(b.Generation(), "")
		time.Sleep(2 * time.Second)
		check("it acknowledges", "3 clerks: 3 hold g1; g1 reached 3, waiting 0, last 500ms",
			"4 clerks: 4 hold g1; g1 reached 4, waiting 0, last 7.5s")
		// The next is written while the second tier is cut off.
		d1.stop()
		written := time.Now()
		time.Sleep(3 * time.Second)
		c := after(t, b, 2)
		f.mu.Lock()
		f.jobs[testJob], f.written = c, written
		f.past = map[int64]*assignment.Assignment{int64(b.Generation()): b}
		f.mu.Unlock()
		n.node(t, "d1")
		slow.mu.Lock()
		slow.silent = false
		slow.mu.Unlock()
		for _, s := range subs[:3] {
			s.close()
		}
		for slices.ContainsFunc(subs[3:], func(s *fakeSub) bool { return s.holds().Generation() != c.Generation() }) {
			time.Sleep(time.Millisecond)
		}
		took := time.Since(written)
		time.Sleep(2 * retryMax) // it may be told late
		f.mu.Lock()
		spreads := f.acks["d2"].Spreads
		f.mu.Unlock()
		if len(spreads) != 1 {
			t.Fatalf("d2 tells of %v", spreads)
		}
		s := spreads[0]
		last := time.Duration(s.LastUs) * time.Microsecond
		if s.Role != slicerv1.Role_ROLE_CLERK || s.Generation != int64(c.Generation()) || s.Waiting != 0 || last > took || last < took-10*time.Millisecond {
			t.Errorf("d2 tells of %v, last %s, want %s", s, last, took)
		}
	})
}

// What is on its way to the second tier when something newer comes is not young again.
func TestAgeOfWhatIsNotTheNewestAnyMore(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		f := n.tieredAssigner(t)
		d1 := n.node(t, "d1")
		a := firstOf(t, testJob, testStore, baseGen, 20)
		b := after(t, a, 2)
		f.know(testJob)
		subscribe(t, d1.cc, clerkHello("c"), nil)
		time.Sleep(time.Second)
		f.set(a)
		time.Sleep(3 * time.Second)
		f.set(b)
		time.Sleep(2 * time.Second)
		j := d1.d.lookup(testJob)
		for g, want := range map[assignment.Generation]time.Duration{a.Generation(): 5 * time.Second, b.Generation(): 2 * time.Second, 7: 0} {
			if got := j.age(time.Now(), g); got != want {
				t.Errorf("%s is %s old, want %s", short(int64(g)), got, want)
			}
		}
	})
}
