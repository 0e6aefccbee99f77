package clientindex

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

const s1, s2 = Session(1), Session(2)

// settledTable gives out indexes, and knows session 1.
func settledTable(cfg Config) *Table {
	t := New(cfg)
	t.Prefer(0, true)
	t.Sessions(0, []Session{s1})
	t.Report(0, s1, true, nil)
	t.Advance(8 * time.Second)
	return t
}

func id(n int) string { return fmt.Sprintf("c%03d", n) }

func grants(t *Table, s Session) string { return fmt.Sprint(t.Take(s, 1000)) }

func expect(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestSmallestFree(t *testing.T) {
	x := settledTable(Config{})
	now := 10 * time.Second
	for n := range 200 {
		x.Report(now, s1, false, []Client{{ID: id(n), Index: -1}})
	}
	got := x.Take(s1, 1000)
	for n, g := range got {
		if g != (Grant{id(n), n}) {
			t.Fatalf("client %d got %v", n, g)
		}
	}
	for _, n := range []int{70, 3, 130} {
		x.Report(now, s1, false, []Client{{ID: id(n), Disconnected: true}})
	}
	// Theirs stay theirs for a minute.
	x.Report(now, s1, false, []Client{{ID: "new", Index: -1}})
	expect(t, grants(x, s1), "[{new 200}]")
	x.Report(now+59*time.Second, s1, false, []Client{{ID: id(70), Index: 70}})
	expect(t, grants(x, s1), "[]")
	if wake := x.Advance(now + 59*time.Second); wake != now+time.Minute {
		t.Errorf("woken at %s", wake)
	}
	x.Advance(now + time.Minute)
	for n := range 3 {
		x.Report(now+time.Minute, s1, false, []Client{{ID: fmt.Sprint("newer", n), Index: -1}})
	}
	expect(t, grants(x, s1), "[{newer0 3} {newer1 130} {newer2 201}]")
	if s := x.Stats(); s.Clients != 202 || s.Indexed != 202 || s.Highest != 201 {
		t.Errorf("%+v", s)
	}
}

// A new assigner learns the indexes from the clients that hold them, and gives out none
// before.
func TestTakeover(t *testing.T) {
	x := New(Config{})
	// One Distributor has learnt of the preference first.
	x.Report(0, s1, true, []Client{{ID: "a", Index: 7, Age: time.Hour}, {ID: "b", Index: -1, Age: time.Minute}})
	x.Prefer(time.Second, true)
	x.Sessions(time.Second, []Session{s1, s2})
	if wake := x.Advance(5 * time.Second); wake != 31*time.Second {
		t.Errorf("with a silent Distributor it waits until %s", wake)
	}
	x.Report(5*time.Second, s1, false, []Client{{ID: "c", Index: -1}})
	expect(t, grants(x, s1), "[]")
	// The other has an older holder of 7, and a younger one of 0.
	x.Report(5*time.Second, s2, true, []Client{{ID: "d", Index: 7, Age: 2 * time.Hour}, {ID: "e", Index: 0, Age: time.Second}})
	if wake := x.Advance(5 * time.Second); wake != 9*time.Second {
		t.Errorf("when all have spoken it waits until %s", wake)
	}
	x.Advance(9 * time.Second)
	expect(t, grants(x, s1), "[{a 1} {b 2} {c 3}]")
	expect(t, grants(x, s2), "[]")
	if n := x.Stats().Collisions; n != 1 {
		t.Errorf("%d collisions", n)
	}
	// A client that comes later with an index that is taken, and is older, gets it.
	x.Report(10*time.Second, s2, false, []Client{{ID: "f", Index: 2, Age: time.Hour}})
	expect(t, grants(x, s1), "[{b 4}]")
	expect(t, grants(x, s2), "[]")
}

// Clients that no Distributor has served for long come back within some seconds: until then
// no other gets what they hold, whether the assigner is new or has forgotten them.
func TestFirstDistributor(t *testing.T) {
	for name, x := range map[string]*Table{"new": New(Config{}), "old": settledTable(Config{})} {
		t.Run(name, func(t *testing.T) {
			x.Prefer(0, true)
			x.Report(10*time.Second, s1, true, []Client{{ID: "a", Index: 0, Age: time.Hour}})
			x.Sessions(11*time.Second, nil)
			for now := 12 * time.Second; now < 2*time.Minute; now += time.Second {
				x.Advance(now)
			}
			if wake := x.Advance(2 * time.Minute); wake != Never {
				t.Errorf("with no Distributor it is to be called at %s", wake)
			}
			now := 3 * time.Minute
			x.Sessions(now, []Session{s2})
			x.Report(now, s2, true, []Client{{ID: "b", Index: -1, Age: time.Hour}})
			x.Advance(now + 7*time.Second)
			expect(t, grants(x, s2), "[]")
			x.Report(now+7*time.Second, s2, false, []Client{{ID: "a", Index: 0}})
			x.Advance(now + 8*time.Second)
			expect(t, grants(x, s2), "[{b 1}]")
		})
	}
}

func TestSilentDistributorIsNotWaitedForLong(t *testing.T) {
	x := New(Config{})
	x.Prefer(0, true)
	x.Sessions(0, []Session{s1})
	x.Report(0, s1, false, []Client{{ID: "a", Index: -1}})
	x.Advance(29 * time.Second)
	expect(t, grants(x, s1), "[]")
	x.Advance(30 * time.Second)
	expect(t, grants(x, s1), "[{a 0}]")
}

// What is not known to have arrived is said again; what is known is not.
func TestTold(t *testing.T) {
	x := settledTable(Config{})
	now := 10 * time.Second
	x.Sessions(now, []Session{s1, s2})
	x.Report(now, s1, false, []Client{{ID: "a", Index: -1}})
	x.Report(now, s2, false, []Client{{ID: "a", Index: -1}}) // it moves
	expect(t, grants(x, s1), "[{a 0}]")
	expect(t, grants(x, s2), "[{a 0}]")
	x.Report(now, s2, true, []Client{{ID: "a", Index: 0}})
	expect(t, grants(x, s2), "[]")
	x.Report(now, s2, true, []Client{{ID: "a", Index: -1}}) // a restart that has forgotten it
	x.Report(now, s2, true, []Client{{ID: "a", Index: 9}})  // or never had it from us
	if !x.Pending(s2) {
		t.Error("nothing to say")
	}
	expect(t, grants(x, s2), "[{a 0}]")
	x.Sessions(now, []Session{s1})
	if x.Pending(s2) || x.Take(s2, 10) != nil {
		t.Error("something to say to a session that has ended")
	}
}

// The preference goes and comes back.
func TestPreferenceFlaps(t *testing.T) {
	x := settledTable(Config{})
	now := 10 * time.Second
	x.Report(now, s1, false, []Client{{ID: "a", Index: -1}, {ID: "b", Index: -1}})
	expect(t, grants(x, s1), "[{a 0} {b 1}]")
	// The Distributor has not noticed: no index is given to another.
	x.Prefer(now, false)
	x.Report(now, s1, false, []Client{{ID: "c", Index: -1}})
	x.Advance(now)
	expect(t, grants(x, s1), "[]")
	x.Prefer(now+time.Second, true)
	x.Advance(now + 9*time.Second)
	expect(t, grants(x, s1), "[{c 2}]")
	// It has: what another assigner has said is what counts.
	x.Prefer(now+10*time.Second, false)
	x.Prefer(now+20*time.Second, true)
	x.Report(now+20*time.Second, s1, true, []Client{{ID: "a", Index: 5, Age: time.Second}, {ID: "d", Index: 0, Age: time.Second}, {ID: "c", Index: -1}})
	x.Advance(now + 30*time.Second)
	expect(t, grants(x, s1), "[{c 1}]")
	// In the end all is forgotten.
	x.Prefer(now+time.Minute, false)
	x.Prefer(now+2*time.Minute, false)
	if s := x.Stats(); s.Clients != 0 || s.Highest != -1 || len(x.distributors) != 0 {
		t.Errorf("after the preference went: %+v", s)
	}
}

// Numbers and names from the network cost no more than they must.
func TestHostile(t *testing.T) {
	x := settledTable(Config{MaxClients: 100})
	now := 10 * time.Second
	x.Report(now, s1, false, []Client{
		{ID: "", Index: 1}, {ID: "a b", Index: 1}, {ID: string(make([]byte, 129)), Index: 1},
		{ID: "far", Index: 1 << 40}, {ID: "below", Index: -1 << 40}, {ID: "top", Index: MaxIndex, Age: -1 << 62}, {ID: "old", Index: 0, Age: 1<<63 - 1},
	})
	// A client that says that it holds 0 comes before those that have none.
	expect(t, grants(x, s1), "[{far 1} {below 2}]")
	if n := len(x.indexes.taken); n > (MaxIndex+64)/64 {
		t.Errorf("%d words for the indexes", n)
	}
	for n := range 1000 {
		x.Report(now, s1, false, []Client{{ID: id(n), Index: n}})
	}
	if s := x.Stats(); s.Clients != 100 || s.Rejected != 3+904 || len(x.clients) != 100 {
		t.Errorf("%+v", s)
	}
	// A client that comes and goes makes way for others.
	for n := range 1000 {
		x.Report(now, s1, false, []Client{{ID: "far", Disconnected: true}})
		x.Report(now, s1, false, []Client{{ID: "other", Index: -1}, {ID: "other", Disconnected: true}})
		x.Report(now, s1, false, []Client{{ID: "far", Index: -1}})
		if len(x.gone) > 2*len(x.clients)+1 || len(x.clients) > 100 {
			t.Fatalf("round %d: %d departures of %d clients", n, len(x.gone), len(x.clients))
		}
	}
	if s := x.Stats(); s.Indexed != 100 {
		t.Errorf("%+v", s)
	}
	queue := x.distributors[s1].queue
	if len(queue) > 1100 || len(slices.Compact(slices.Sorted(slices.Values(queue)))) != len(queue) {
		t.Errorf("%d wait to be told something", len(queue))
	}
}

func BenchmarkTenThousandClients(b *testing.B) {
	var all []Client
	for n := range 10000 {
		all = append(all, Client{ID: id(n), Index: -1})
	}
	b.ReportAllocs()
	for b.Loop() {
		x := settledTable(Config{})
		x.Report(10*time.Second, s1, true, all)
		if len(x.Take(s1, len(all))) != len(all) {
			b.Fatal("one got none")
		}
	}
}
