package distributor

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/slicer-project/slicer/distributor/fanout"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// lastAcks is the newest that the assigner has heard of how far subscribers are.
func (f *fakeAssigner) lastAcks(t *testing.T) *slicerv1.Acks {
	t.Helper()
	var last *slicerv1.Acks
	for _, m := range f.hear() {
		if m.GetAcks() != nil {
			last = m.GetAcks()
		}
	}
	if last == nil {
		t.Fatal("no Acks came")
	}
	return last
}

// The assigner is told how many hold what, how long it took from the write, and, after a
// while, which are stuck.
func TestAcksTellHowLongItTook(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f, first, w := served(t, 100)
		for _, id := range []string{"c1", "c2"} {
			same(t, w.clerk(id).holds(), first)
		}
		stuck := subscribe(t, w.cc, sliceletHello("t1", 1), nil)
		same(t, stuck.holds(), first)
		time.Sleep(time.Second)
		f.lastAcks(t)
		stuck.mu.Lock()
		stuck.silent = true
		stuck.mu.Unlock()

		f.mu.Lock()
		f.written = time.Now().Add(-300 * time.Millisecond)
		f.mu.Unlock()
		second := after(t, first, 3)
		f.set(second)
		time.Sleep(time.Second)
		m := f.lastAcks(t)
		if len(m.Holders) != 2 || m.Holders[0].Subscribers != 2 || m.Holders[0].Generation != int64(second.Generation()) ||
			m.Holders[1].Role != slicerv1.Role_ROLE_SLICELET || m.Holders[1].Generation != int64(first.Generation()) {
			t.Errorf("holders: %v", m.Holders)
		}
		if len(m.Spreads) != 2 || m.Spreads[0].Waiting != 0 || len(m.Spreads[0].Count) != 1 || m.Spreads[0].Count[0] != 2 ||
			m.Spreads[0].LastUs != 300_000 || m.Spreads[1].Waiting != 1 || len(m.Spreads[1].Count) != 0 {
			t.Errorf("spreads: %v", m.Spreads)
		}
		if len(m.Slow) != 0 {
			t.Errorf("slow already: %v", m.Slow)
		}
		time.Sleep(fanout.SlowAfter + fanout.SlowLook)
		m = f.lastAcks(t)
		if m.SlowTotal != 1 || len(m.Slow) != 1 || m.Slow[0].Name != "slicelet t1" || m.Slow[0].WaitingMs < fanout.SlowAfter.Milliseconds() {
			t.Errorf("slow: %d, %v", m.SlowTotal, m.Slow)
		}
		stuck.ack(second.Generation(), "")
		synctest.Wait()
		time.Sleep(2 * fanout.SlowLook)
		if m = f.lastAcks(t); m.SlowTotal != 0 || len(m.Slow) != 0 || m.Spreads[1].Waiting != 0 {
			t.Errorf("slow for ever: %v", m)
		}
	})
}

// One that does not take the newest is stuck, although nothing is on its way to it.
func TestAcksNameThoseWhoRefuse(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f, a, w := served(t, 100)
		c := w.clerk("c1")
		same(t, c.holds(), a)
		c.mu.Lock()
		c.refuse = 10
		c.mu.Unlock()
		f.set(after(t, a, 3))
		time.Sleep(fanout.SlowAfter + 2*fanout.SlowLook)
		if m := f.lastAcks(t); m.SlowTotal != 1 || m.Slow[0].Name != "clerk c1" {
			t.Errorf("slow: %v", m)
		}
	})
}
