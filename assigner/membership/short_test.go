package membership

import (
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
)

// at500 is a table of three tasks that report each 125 ms, as those of a job with the
// shortest heartbeat timeout do, and its Distributor, which speaks twice as often.
type at500 struct {
	table  *Table
	now    time.Duration
	seq    uint64
	silent map[string]bool
}

func newAt500(t *testing.T, timeout time.Duration) *at500 {
	x := &at500{table: New(Config{HeartbeatTimeout: timeout, Freeze: assignment.FreezeConfig{Share: 1}}, 0, nil), silent: map[string]bool{}}
	x.table.Attach(0, 1, "d")
	x.report(true)
	x.pass(5*time.Second, 125*time.Millisecond)
	if got := x.dead(); got != "" {
		t.Fatalf("%s has died", got)
	}
	return x
}

func (x *at500) report(complete bool) {
	x.seq++
	var rs []Report
	for _, name := range []string{"a", "b", "c"} {
		if complete || !x.silent[name] {
			rs = append(rs, Report{Said: !x.silent[name], Sequence: x.seq, State: assignment.TaskRunning,
				Task: assignment.Task{Name: name, Incarnation: 1, Address: name + ":1", Weight: 1}})
		}
	}
	x.table.Report(x.now, 1, complete, rs)
}

func (x *at500) pass(d, every time.Duration) {
	for end := x.now + d; x.now < end; {
		x.now += 25 * time.Millisecond
		if x.now%every == 0 {
			x.report(false)
		}
		if x.now%(62500*time.Microsecond) < 25*time.Millisecond {
			x.table.Heard(x.now, 1, x.now)
		}
		x.table.Advance(x.now)
	}
}

// dead are those that have died since it was asked last.
func (x *at500) dead() (names string) {
	for _, e := range x.table.Events() {
		if e.Kind == Dead {
			names += e.Task
		}
	}
	return names
}

func TestShortTimeout(t *testing.T) {
	x := newAt500(t, 500*time.Millisecond)
	// A Distributor that stands still takes no task along.
	for range 24 {
		x.now += 25 * time.Millisecond
		x.table.Advance(x.now)
	}
	x.table.Heard(x.now, 1, x.now)
	x.table.Advance(x.now + 30*time.Millisecond)
	x.pass(time.Second, 125*time.Millisecond)
	if got := x.dead(); got != "" {
		t.Errorf("%s has died of a standstill of its Distributor", got)
	}
	// A silent task dies, and soon.
	x.silent["b"] = true
	x.pass(700*time.Millisecond, 125*time.Millisecond)
	if got := x.dead(); got != "b" {
		t.Errorf("%q has died, want b", got)
	}
}

// Where the timeout becomes shorter, tasks have the time to learn that they are to
// report more often.
func TestTimeoutBecomesShort(t *testing.T) {
	x := newAt500(t, 5*time.Second)
	x.pass(time.Second, time.Second)
	x.pass(900*time.Millisecond, time.Second)
	x.table.Configure(x.now, Config{HeartbeatTimeout: 500 * time.Millisecond, Freeze: assignment.FreezeConfig{Share: 1}})
	x.pass(time.Second, time.Second)
	x.pass(5*time.Second, 125*time.Millisecond)
	if got := x.dead(); got != "" {
		t.Errorf("%s has died", got)
	}
	x.silent["c"] = true
	x.pass(700*time.Millisecond, 125*time.Millisecond)
	if got := x.dead(); got != "c" {
		t.Errorf("%q has died, want c", got)
	}
}
