package generate

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assigner/membership"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
)

// TestNamesOfARollout: ten thousand tasks are replaced within ten minutes by others with new
// names, of one identity. What is written keeps to namesRate, and a name waits for it no longer
// than that takes for all.
func TestNamesOfARollout(t *testing.T) {
	const tasks, within = 10000, 10 * time.Minute
	c := New(Config{ID: "me"}, "job", Now{})
	e, n := c.env, c.Names
	n.known, c.members.keeps, c.store.exists, c.lead.preferred = true, true, true, "me"
	table := membership.New(membership.Config{HeartbeatTimeout: time.Hour, MaxTasks: 2 * tasks}, 0, nil)
	table.Attach(0, 1, "d")
	c.members.table = table
	sequence := uint64(0)
	say := func(i int, state assignment.TaskState) membership.Report {
		sequence++
		return membership.Report{Said: true, Sequence: sequence, State: state, Identity: "spiffe://corp/ns/cache/sa/default",
			Task: assignment.Task{Name: fmt.Sprintf("cache-7f9c6d5b8d-%08d", i), Incarnation: uint64(i + 1), Address: "a:80", Weight: 1}}
	}
	var all []membership.Report
	for i := range tasks {
		all = append(all, say(i, assignment.TaskRunning))
	}
	table.Report(0, 1, true, all)
	writes, bytes, waited := 0, 0, time.Duration(0)
	joined := map[string]time.Duration{}
	next := tasks
	for e.now.Mono < within {
		e.now.Mono += 250 * time.Millisecond
		var rs []membership.Report
		for ; next < tasks+int(int64(tasks)*int64(e.now.Mono)/int64(within)); next++ {
			rs = append(rs, say(next-tasks, assignment.TaskDead), say(next, assignment.TaskRunning))
			joined[rs[len(rs)-1].Task.Name] = e.now.Mono
		}
		table.Report(e.now.Mono, 1, false, rs)
		table.Compact()
		x, ok := n.next(true)
		if !ok {
			continue
		}
		writes, bytes = writes+1, bytes+x.Names.Size()
		for name, at := range joined {
			if x.Names.Of(name) == "" {
				t.Fatalf("%s is left out", name)
			}
			waited = max(waited, e.now.Mono-at)
		}
		clear(joined)
		n.Put(Now{Mono: e.now.Mono}, nil)
	}
	most := 2 * tasks * 27 // of those that live and those that went in the last minute, less
	if writes < 10 || float64(bytes) > namesRate*within.Seconds()+float64(most) || waited > time.Duration(most)*time.Second/namesRate {
		t.Errorf("%d writes of %d bytes, a name waited %s", writes, bytes, waited)
	}
	t.Logf("%d writes, %d kB in all, a name waited %s at most", writes, bytes/1000, waited)
}

// TestNamesRefused: the refusal of a name that another identity holds, whether its task lives or has gone,
// leaves a line in the audit log with both, and its caller learns only that it is so.
func TestNamesRefused(t *testing.T) {
	c := New(Config{ID: "me"}, "job", Now{})
	c.lead.preferred = "me"
	table := membership.New(membership.Config{HeartbeatTimeout: time.Hour, HoleAge: time.Minute, MaxTasks: 3}, 0, nil)
	table.Attach(0, 1, "d")
	c.members.table = table
	table.Names.Hold(0, 1, func(yield func(string, string) bool) { yield("gone", "spiffe://corp/gone") })
	report := func(name, identity string) membership.Report {
		return membership.Report{Said: true, Sequence: 1, State: assignment.TaskRunning, Identity: identity, Task: assignment.Task{Name: name, Incarnation: 1, Address: "a:80", Weight: 1}}
	}
	table.Report(0, 1, true, []membership.Report{report("lives", "spiffe://corp/lives")})
	table.Report(0, 1, false, []membership.Report{report("gone", "spiffe://corp/x"), report("lives", "spiffe://corp/x")})
	c.listen()
	o := c.Outputs()
	lines := 0
	for _, l := range o.Logs {
		for _, name := range []string{"gone", "lives"} {
			want := []any{"audit", "refused", "task", name, "incarnation", uint64(1), "identity", "spiffe://corp/x", "first_identity", "spiffe://corp/" + name, "reason", "task " + name + " is that of another identity"}
			if slices.Equal(l.Attrs, want) {
				lines++
			}
		}
	}
	if lines != 2 || len(o.Refusals) != 2 {
		t.Errorf("%d of two lines in %+v; %+v", lines, o.Logs, o.Refusals)
	}
	for _, e := range o.Refusals {
		if strings.Contains(e.Reason, "spiffe") {
			t.Errorf("told to the caller: %s", e.Reason)
		}
	}
}

// TestNamesConflicts: two assigners that both take themselves to be preferred do not write names
// in a loop.
func TestNamesConflicts(t *testing.T) {
	c := New(Config{ID: "me"}, "job", Now{})
	n := c.Names
	n.known, c.members.keeps, c.store.exists, c.lead.preferred = true, true, true, "me"
	table := membership.New(membership.Config{HeartbeatTimeout: time.Hour, MaxTasks: 2}, 0, nil)
	table.Attach(0, 1, "d")
	c.members.table = table
	table.Report(0, 1, true, []membership.Report{{Said: true, Sequence: 1, State: assignment.TaskRunning, Identity: "spiffe://corp/a",
		Task: assignment.Task{Name: "a", Incarnation: 1, Address: "a:80", Weight: 1}}})
	puts := 0
	for ; n.now.Mono < time.Minute; n.now.Mono += time.Millisecond {
		if n.due() {
			n.take(Loaded{Named: true, Names: store.Names{Version: int64(puts)}})
		}
		if _, ok := n.next(true); ok {
			puts++
			n.Put(n.now, store.ErrConflict)
		}
	}
	if puts < 60 || puts > 140 {
		t.Errorf("%d writes in a minute, want about one a second", puts)
	}
}
