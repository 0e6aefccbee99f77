package fanout

import (
	"slices"
	"testing"
	"time"
)

func TestUpstreamPacing(t *testing.T) {
	var u Schedule
	now := epoch
	// expect moves to the time and says who is due, and what they are told.
	expect := func(after time.Duration, s Session, want plan) {
		t.Helper()
		now = epoch.Add(after)
		due := u.Mark(now)
		if s == 0 {
			if due != [2]Session{} {
				t.Fatalf("%s: %v are due", after, due)
			}
			return
		}
		if !slices.Contains(due[:], s) {
			t.Fatalf("%s: %v are due, want %d", after, due, s)
		}
		if again := u.Mark(now); again != [2]Session{} {
			t.Fatalf("%s: %v are marked twice", after, again)
		}
		if got := u.Take(s, now, 7); got != want {
			t.Fatalf("%s: plan %+v, want %+v", after, got, want)
		}
	}
	ms := time.Millisecond
	expect(0, 0, plan{})
	u.SetPeers(now, 0, 1)
	expect(0, 1, plan{Want: true})
	u.ReportsChanged(now, true)
	u.AcksChanged(now)
	expect(time.Second, 0, plan{}) // a stand-in is told nothing
	u.SetPeers(now, 2, 2)
	expect(time.Second, 2, plan{Want: true, Reports: true, Complete: true, Acks: true, Clients: true, AllClients: true})
	if !u.Wake().IsZero() {
		t.Fatal("something is still due")
	}
	u.AcksChanged(now)
	u.ReportsChanged(now, false)
	expect(1049*ms, 0, plan{})
	if at := u.Wake(); at != epoch.Add(1050*ms) {
		t.Fatalf("wakes at %s", at.Sub(epoch))
	}
	expect(1050*ms, 2, plan{Acks: true})
	expect(1499*ms, 0, plan{})
	expect(1500*ms, 2, plan{Reports: true})
	u.ReportsChanged(now, false)
	u.ReportsChanged(now, true)
	expect(1519*ms, 0, plan{})
	expect(1520*ms, 2, plan{Reports: true})
	u.Reported(now, 7, 5) // has been said
	expect(1600*ms, 0, plan{})
	u.Reported(now, 8, 5)
	expect(1600*ms, 2, plan{Want: true})
	u.Failed(now)
	u.Failed(now)
	expect(1799*ms, 0, plan{})
	expect(1800*ms, 2, plan{Want: true, Whole: true})
	u.AskAnew(now)
	expect(1800*ms, 2, plan{Want: true})
	u.ReportsChanged(now, false)
	u.SnapshotInstead(now)
	u.AcksChanged(now)
	expect(1800*ms, 2, plan{Reports: true, Complete: true, Acks: true})
	now = epoch.Add(1849 * ms)
	u.ClientsChanged(now)
	u.ClientsChanged(now)
	expect(1849*ms, 2, plan{Clients: true})
	u.ClientsChanged(now)
	expect(1898*ms, 0, plan{})
	expect(1899*ms, 2, plan{Clients: true})
	u.SetPeers(now, 0, 0)
	u.AcksChanged(now)
	u.ClientsChanged(now)
	u.AskAnew(now)
	expect(time.Minute, 0, plan{})
	u.SetPeers(now, 4, 4)
	expect(time.Minute, 4, plan{Want: true, Reports: true, Complete: true, Acks: true, Clients: true, AllClients: true})
}

func TestUpstreamFailuresAreAskedAboutLessAndLess(t *testing.T) {
	var u Schedule
	u.SetPeers(epoch, 1, 1)
	u.Take(1, epoch, 0)
	now := epoch
	var waits []time.Duration
	for range 10 {
		u.Failed(now)
		at := u.Wake()
		waits = append(waits, at.Sub(now))
		now = at
		u.Take(1, now, 0)
	}
	if waits[0] != askAgainMin || waits[9] != AskAgainMax || !slices.IsSorted(waits) {
		t.Errorf("waits %v", waits)
	}
	u.Succeeded()
	if u.Failed(now); u.Wake().Sub(now) != askAgainMin {
		t.Error("success does not make up for failures")
	}
}
