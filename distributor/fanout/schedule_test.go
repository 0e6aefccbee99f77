package fanout

import (
	"slices"
	"testing"
	"time"
)

func TestUpstreamPacing(t *testing.T) {
	var u schedule
	now := epoch
	// expect moves to the time and checks which session is due, and what it is told.
	expect := func(after time.Duration, s Session, want plan) {
		t.Helper()
		now = epoch.Add(after)
		due := u.mark(now)
		if s == 0 {
			if due != [2]Session{} {
				t.Fatalf("%s: %v are due", after, due)
			}
			return
		}
		if !slices.Contains(due[:], s) {
			t.Fatalf("%s: %v are due, want %d", after, due, s)
		}
		if again := u.mark(now); again != [2]Session{} {
			t.Fatalf("%s: %v are marked twice", after, again)
		}
		if got := u.take(s, now, 7); got != want {
			t.Fatalf("%s: plan %+v, want %+v", after, got, want)
		}
	}
	ms := time.Millisecond
	expect(0, 0, plan{})
	u.setPeers(now, 0, 1)
	expect(0, 1, plan{want: true})
	u.reportsChanged(now, true)
	u.acksChanged(now)
	expect(time.Second, 0, plan{}) // a stand-in is told nothing
	u.setPeers(now, 2, 2)
	expect(time.Second, 2, plan{want: true, reports: true, complete: true, acks: true, clients: true, allClients: true})
	if !u.wake().IsZero() {
		t.Fatal("something is still due")
	}
	u.acksChanged(now)
	u.reportsChanged(now, false)
	expect(1049*ms, 0, plan{})
	if at := u.wake(); at != epoch.Add(1050*ms) {
		t.Fatalf("wakes at %s", at.Sub(epoch))
	}
	expect(1050*ms, 2, plan{acks: true})
	expect(1499*ms, 0, plan{})
	expect(1500*ms, 2, plan{reports: true})
	u.reportsChanged(now, false)
	u.reportsChanged(now, true)
	expect(1519*ms, 0, plan{})
	expect(1520*ms, 2, plan{reports: true})
	u.reported(now, 7, 5) // has been said
	expect(1600*ms, 0, plan{})
	u.reported(now, 8, 5)
	expect(1600*ms, 2, plan{want: true})
	u.failed(now)
	u.failed(now)
	expect(1799*ms, 0, plan{})
	expect(1800*ms, 2, plan{want: true, whole: true})
	u.askAnew(now)
	expect(1800*ms, 2, plan{want: true})
	u.reportsChanged(now, false)
	u.snapshotInstead(now)
	u.acksChanged(now)
	expect(1800*ms, 2, plan{reports: true, complete: true, acks: true})
	now = epoch.Add(1849 * ms)
	u.clientsChanged(now)
	u.clientsChanged(now)
	expect(1849*ms, 2, plan{clients: true})
	u.clientsChanged(now)
	expect(1898*ms, 0, plan{})
	expect(1899*ms, 2, plan{clients: true})
	u.setPeers(now, 0, 0)
	u.acksChanged(now)
	u.clientsChanged(now)
	u.askAnew(now)
	expect(time.Minute, 0, plan{})
	u.setPeers(now, 4, 4)
	expect(time.Minute, 4, plan{want: true, reports: true, complete: true, acks: true, clients: true, allClients: true})
}

func TestUpstreamFailuresAreAskedAboutLessAndLess(t *testing.T) {
	var u schedule
	u.setPeers(epoch, 1, 1)
	u.take(1, epoch, 0)
	now := epoch
	var waits []time.Duration
	for range 10 {
		u.failed(now)
		at := u.wake()
		waits = append(waits, at.Sub(now))
		now = at
		u.take(1, now, 0)
	}
	if waits[0] != askAgainMin || waits[9] != AskAgainMax || !slices.IsSorted(waits) {
		t.Errorf("waits %v", waits)
	}
	u.succeeded()
	if u.failed(now); u.wake().Sub(now) != askAgainMin {
		t.Error("success does not make up for failures")
	}
}
