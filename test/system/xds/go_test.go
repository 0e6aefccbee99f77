package xds

import (
	"fmt"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/test/kit/process"
)

// quick is a job in which things happen at once, and in which servers refuse nothing if the
// machine has no time for them.
var quick = assignment.JobConfig{
	HeartbeatTimeout: time.Second, WarmUp: assignment.NoWarmUp, Overload: assignment.OverloadConfig{Admission: assignment.AdmissionOff},
	Balance: assignment.BalanceConfig{Interval: 200 * time.Millisecond},
}

// grpc-go's client, as it is, calls the owner of each key.
func TestStockGoClientIsSharded(t *testing.T) {
	t.Parallel()
	f := newFleet(t, quick, 3)
	cc := f.dial("go-0")
	f.agree(map[string]caller{"go": &inGo{t: t, cc: cc}}, 300)
	m, err := f.inspect(0)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Xds) != 1 || m.Xds[0].Clients != 1 || m.Xds[0].Refusing != 0 || m.Xds[0].Nacks != 0 || m.Xds[0].Acks < 4 || m.Clerks != 1 {
		t.Errorf("inspect shows %v and %d clerks", m.Xds, m.Clerks)
	}
}

// grpc-go's client loses no call while the job changes as jobs do: a task comes, another drains,
// a third dies, a key is so hot that several tasks have it, a Distributor restarts.
func TestChangesLoseNoCall(t *testing.T) {
	t.Parallel()
	f := newFleet(t, quick, 3)
	g := &inGo{t: t, cc: f.dial("go-0")}
	g.check(1)
	g.begin(*rate)
	step := func(name string, do func()) {
		began := time.Now()
		do()
		calls, failed := g.soFar()
		t.Logf("%s: %s, %d calls, %d failed", name, time.Since(began).Round(time.Millisecond), calls, failed)
	}
	step("a task added", func() {
		f.add("t3")
		f.settled(4)
	})
	step("a hot key", func() {
		g.hot.Store(true)
		process.Eventually(t, 30*time.Second, "the hot key has two tasks", func() error {
			if n := f.newest().Lookup(assignment.KeyOf(hotKey)).Len(); n < 2 {
				return fmt.Errorf("%d", n)
			}
			return nil
		})
		g.answeredBy(hotKey, 2)
	})
	step("a task drained", func() {
		f.drain("t0")
		f.settled(3)
	})
	step("a task killed", func() {
		f.kill("t1")
		f.settled(2)
	})
	step("a Distributor restarted", func() {
		if err := f.plane.Distributors[0].Restart(); err != nil {
			t.Fatal(err)
		}
		// A client that comes with old routes is not told of clusters beforehand.
		process.Eventually(t, time.Minute, "the client is back", func() error {
			m, err := f.inspect(0)
			if err == nil && (len(m.Xds) != 1 || m.Xds[0].Clients != 1 || m.Clerks != 1) {
				err = fmt.Errorf("%v and %d clerks", m.Xds, m.Clerks)
			}
			return err
		})
	})
	step("another task added", func() {
		f.add("t4")
		f.settled(3)
		g.answeredBy("", 3) // the client hears of it
	})
	calls, failed, errors := g.stop()
	t.Logf("%d calls, %d failed", calls, failed)
	if failed > 0 || calls == 0 {
		t.Errorf("%d of %d calls failed: %q", failed, calls, errors)
	}
}
