package xds

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/waittest"
	"github.com/slicer-project/slicer/test/examples/greeter/hello"
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
		process.Eventually(t, waittest.Patience, "the hot key has two tasks", func() error {
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
	step("a Distributor restarted, and a task added", func() {
		f.add("t5")
		if err := f.plane.Distributors[0].Restart(); err != nil {
			t.Fatal(err)
		}
		process.Eventually(t, time.Minute, "the client is back", func() error {
			m, err := f.inspect(0)
			if err == nil && (len(m.Xds) != 1 || m.Xds[0].Clients != 1 || m.Clerks != 1) {
				err = fmt.Errorf("%v and %d clerks", m.Xds, m.Clerks)
			}
			return err
		})
		f.settled(3)
	})
	step("another task added", func() {
		f.add("t4")
		f.settled(4)
		g.answeredBy("", 4) // the client hears of it
	})
	calls, failed, errors := g.stop()
	t.Logf("%d calls, %d failed", calls, failed)
	if failed > 0 || calls == 0 {
		t.Errorf("%d of %d calls failed: %q", failed, calls, errors)
	}
}

// A job's config says what becomes of calls that no owner takes, and clients hear of it at once.
func TestMissingKeys(t *testing.T) {
	t.Parallel()
	f := newFleet(t, quick, 2)
	cc := f.dial("go-0")
	keyless := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err := hello.NewGreeterClient(cc).SayHello(ctx, wrapperspb.String("x"))
		return err
	}
	for _, x := range []struct {
		missing assignment.Missing
		want    codes.Code
	}{{assignment.MissingAny, codes.OK}, {assignment.MissingRefuse, codes.Unavailable}, {assignment.MissingAny, codes.OK}} {
		cfg := quick
		cfg.Name, cfg.XDS.Missing = job, x.missing
		if err := f.plane.PutJob(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		process.Eventually(t, waittest.Patience, fmt.Sprintf("a call without a key ends by %s", x.want), func() error {
			if err := keyless(); status.Code(err) != x.want {
				return fmt.Errorf("%v", err)
			}
			return nil
		})
		if _, err := call(t.Context(), cc, "user-1"); err != nil {
			t.Errorf("missing: %s: a call with a key: %v", x.missing, err)
		}
	}
}
