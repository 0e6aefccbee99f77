package membership

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/slicer-project/slicer/assignment"
)

// world is what really goes on; the table only hears of it.
type world struct {
	*rapid.T
	table    *Table
	cfg      Config
	now      time.Duration
	attached []Session
	since    map[Session]time.Duration // when it attached
	complete map[Session]bool
	nextID   Session
	procs    []*proc

	// What the rules of death speak of, kept apart from the table.
	lastReport map[string]time.Duration // by task/incarnation: when the newest report was made
	lastLost   map[string]time.Duration // when a Distributor was lost that it was heard of by way of
	alone      time.Duration            // when the table last had no Distributor
	sent       []late                   // reports to be repeated late
	held       []late                   // reports that are on the way
	ended      map[string]time.Duration // when a process stopped to report
	newest     map[string]uint64        // sequence delivered
	carried    map[string]map[Session]bool
	via        map[string]Session       // that delivered the newest
	streamed   map[string]time.Duration // when its Distributor said that its stream is there
	first      map[string]time.Duration // when anything of it arrived
}

type proc struct {
	task    assignment.Task
	seq     uint64
	on      Session // 0: connected nowhere
	reports bool
}

type late struct {
	on Session
	r  Report
}

func key(t assignment.Task) string { return fmt.Sprintf("%s/%x", t.Name, t.Incarnation) }

func (w *world) pass(d time.Duration) {
	for end := w.now + d; w.now < end; {
		w.now = min(end, w.now+100*time.Millisecond)
		if len(w.attached) == 0 {
			w.alone = w.now
		}
		w.table.Advance(w.now)
		w.check()
	}
}

func (w *world) attach() {
	w.nextID++
	w.table.Attach(w.now, w.nextID, fmt.Sprintf("d%d", w.nextID%3))
	w.attached = append(w.attached, w.nextID)
	w.since[w.nextID] = w.now
	if w.Bool("complete") {
		w.complete[w.nextID] = true
		w.table.Report(w.now, w.nextID, true, nil)
	}
}

func (w *world) Bool(label string) bool { return rapid.Bool().Draw(w.T, label) }

func (w *world) detach() {
	if len(w.attached) == 0 {
		return
	}
	i := rapid.IntRange(0, len(w.attached)-1).Draw(w.T, "which")
	id := w.attached[i]
	w.attached = slices.Delete(w.attached, i, i+1)
	for _, p := range w.procs {
		if p.on == id {
			p.on = 0
		}
		k := key(p.task)
		carried := w.carried[k][id]
		delete(w.carried[k], id)
		if carried && !w.carried[k][w.via[k]] {
			w.lastLost[k] = w.now
		}
	}
	w.table.Detach(w.now, id)
	if len(w.attached) == 0 {
		w.alone = w.now
	}
}

// start runs a new process, perhaps under the name of one that runs.
func (w *world) start() {
	name := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(w.T, "name")
	inc := uint64(len(w.procs) + 1)
	w.procs = append(w.procs, &proc{reports: true, task: assignment.Task{
		Name: name, Incarnation: inc, Address: fmt.Sprintf("%s:%d", name, inc), Weight: 1}})
}

// speak has every process that has a Distributor report through it, or has the
// reports held up on the way.
func (w *world) speak(hold bool) {
	for _, p := range w.procs {
		if !p.reports {
			continue
		}
		if p.on == 0 && len(w.attached) > 0 {
			p.on = rapid.SampledFrom(w.attached).Draw(w.T, "distributor")
		}
		if p.on == 0 {
			continue
		}
		p.seq++
		age := time.Duration(rapid.IntRange(0, 300).Draw(w.T, "age ms")) * time.Millisecond
		r := Report{Task: p.task, Said: true, Sequence: p.seq, Age: age, State: assignment.TaskRunning}
		if hold {
			w.held = append(w.held, late{p.on, r})
			continue
		}
		w.sent = append(w.sent, late{p.on, r})
		w.deliver(late{p.on, r})
		w.check()
	}
}

// stop ends a process, with or without a word from its Distributor.
func (w *world) stop(say bool) {
	if len(w.procs) == 0 {
		return
	}
	p := rapid.SampledFrom(w.procs).Draw(w.T, "process")
	if p.reports {
		p.reports, w.ended[key(p.task)] = false, w.now
	}
	if p.on != 0 && say {
		w.table.Report(w.now, p.on, false, []Report{{Task: p.task, Disconnected: true}})
		delete(w.carried[key(p.task)], p.on)
		p.on = 0
	}
}

// move has a process leave its Distributor, which does not notice.
func (w *world) move() {
	if len(w.procs) > 0 {
		rapid.SampledFrom(w.procs).Draw(w.T, "process").on = 0
	}
}

// repeat has a report arrive once more, late.
func (w *world) repeat() {
	if len(w.sent) == 0 || len(w.attached) == 0 {
		return
	}
	l := rapid.SampledFrom(w.sent).Draw(w.T, "late")
	if slices.Contains(w.attached, l.on) {
		w.carried[key(l.r.Task)][l.on] = true
		w.table.Report(w.now, l.on, false, []Report{l.r})
	}
}

func (w *world) deliver(l late) {
	k := key(l.r.Task)
	if _, known := w.first[k]; !known {
		w.first[k] = w.now
		w.carried[k] = map[Session]bool{}
	}
	w.carried[k][l.on] = true
	if l.r.Sequence > w.newest[k] {
		w.newest[k], w.via[k] = l.r.Sequence, l.on
		w.lastReport[k] = max(w.lastReport[k], w.now-l.r.Age)
	}
	w.table.Report(w.now, l.on, false, []Report{l.r})
}

// release has everything that was held up arrive at one moment.
func (w *world) release() {
	for _, l := range w.held {
		if slices.Contains(w.attached, l.on) {
			w.deliver(l)
		}
	}
	w.held = nil
	w.check()
}

func (w *world) heard() {
	for _, id := range w.attached {
		w.table.Heard(w.now, id, w.now)
	}
}

// check holds the table's events and shape against what really went on.
func (w *world) check() {
	timeout := w.cfg.HeartbeatTimeout
	for _, e := range w.table.Events() {
		k := fmt.Sprintf("%s/%x", e.Task, e.Incarnation)
		switch e.Kind {
		case Dead:
			for what, at := range map[string]time.Duration{
				"it reported": w.lastReport[k], "no Distributor was there": w.alone} {
				if w.now-at < timeout {
					w.Fatalf("%s is dead at %s, but %s at %s", k, w.now, what, at)
				}
			}
			if at, lost := w.lastLost[k]; lost && w.now-at < w.cfg.withDefaults().Regroup {
				w.Fatalf("%s is dead at %s, but its Distributor was lost at %s", k, w.now, at)
			}
			for id, since := range w.since {
				if wait := since + w.cfg.withDefaults().SnapshotWait; slices.Contains(w.attached, id) && !w.complete[id] &&
					since < w.alone+w.cfg.withDefaults().Settle && w.now < wait+timeout {
					w.Fatalf("%s is dead at %s, but Distributor %d, there since %s, has not said which tasks it carries", k, w.now, id, since)
				}
			}
		case Returned, Restarted:
			delete(w.lastLost, k)
			// Of one that was never heard of it cannot be told that it is no more.
			if at, over := w.ended[k]; over && w.now-max(at, w.first[k], w.streamed[k]) >= timeout {
				w.Fatalf("%s is back at %s: %s; but it ended at %s", k, w.now, e.Reason, at)
			}
			if w.now-max(w.lastReport[k], w.streamed[k]) >= timeout {
				w.Fatalf("%s is back at %s, its newest report was made at %s", k, w.now, w.lastReport[k])
			}
		case Refused:
			i := slices.IndexFunc(w.table.roster.tasks, func(x *task) bool { return x.cur.Name == e.Task })
			if x := w.table.roster.tasks[i]; x.next == nil && (x.cur.Incarnation == e.Incarnation || !x.alive()) {
				w.Fatalf("%s is refused: %s; there is %x", k, e.Reason, x.cur.Incarnation)
			}
		}
	}
	seen := map[string]bool{}
	for i, x := range w.table.Tasks() {
		if seen[x.Name] || i > 0 && x.Index <= w.table.Tasks()[i-1].Index {
			w.Fatalf("task table %v", w.table.Tasks())
		}
		seen[x.Name] = true
	}
}

func TestRulesOfDeath(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := &world{T: rt, cfg: Config{HeartbeatTimeout: 5 * time.Second, Freeze: assignment.FreezeConfig{Share: 1},
			Damping: assignment.DampingConfig{Share: -1}},
			lastReport: map[string]time.Duration{}, lastLost: map[string]time.Duration{},
			since: map[Session]time.Duration{}, complete: map[Session]bool{}, ended: map[string]time.Duration{}, newest: map[string]uint64{},
			first: map[string]time.Duration{}, carried: map[string]map[Session]bool{}, via: map[string]Session{},
			streamed: map[string]time.Duration{}}
		w.table = New(w.cfg, 0, nil)
		acts := map[string]func(){
			"attach": w.attach, "detach": w.detach, "start": w.start, "repeat": w.repeat, "heard": w.heard,
			"speak": func() { w.speak(false) }, "hold": func() { w.speak(true) }, "release": w.release,
			"stop silently": func() { w.stop(false) }, "stop": func() { w.stop(true) }, "move": w.move,
			"pass a little": func() { w.pass(500 * time.Millisecond) }, "pass": func() { w.pass(3 * time.Second) },
			"compact": func() { w.table.Compact() },
		}
		names := []string{"attach", "detach", "start", "speak", "speak", "hold", "release", "repeat", "heard", "stop silently", "stop", "move", "pass a little", "pass a little", "pass", "compact"}
		for range rapid.IntRange(5, 60).Draw(rt, "steps") {
			acts[rapid.SampledFrom(names).Draw(rt, "act")]()
			w.check()
		}
		// In the end everything works: a task that reports lives, one that does not is
		// dead.
		if len(w.attached) == 0 {
			w.attach()
		}
		for _, id := range w.attached {
			var on []Report
			for _, p := range w.procs {
				if p.on == id {
					on = append(on, Report{Task: p.task})
					w.streamed[key(p.task)] = w.now
				}
			}
			w.complete[id] = true
			w.table.Report(w.now, id, true, on)
		}
		for range 40 {
			w.pass(time.Second)
			w.heard()
			w.speak(false)
		}
		reporting := map[string]bool{}
		for _, p := range w.procs {
			if p.reports {
				reporting[p.task.Name] = true
			}
		}
		for _, x := range w.table.Statuses(w.now) {
			if alive := x.Task.State == assignment.TaskRunning; alive != reporting[x.Task.Name] {
				rt.Fatalf("in the end %s is %s, and reports: %v", key(x.Task), x.Task.State, reporting[x.Task.Name])
			}
		}
		if len(w.table.Tasks()) > 5 {
			rt.Fatalf("%d tasks have indexes: %v", len(w.table.Tasks()), w.table.Tasks())
		}
	})
}

// TestSilenceIsMeasured holds the moment of death against a reckoning from the
// whole history, for one Distributor.
func TestSilenceIsMeasured(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const timeout, step = 5 * time.Second, 100 * time.Millisecond
		table := New(Config{HeartbeatTimeout: timeout, Freeze: assignment.FreezeConfig{Share: 1}}, 0, nil)
		table.Attach(0, 1, "d")
		table.Report(0, 1, true, nil)
		names := []string{"a", "b", "c"}
		newest, made := map[string]uint64{}, map[string]time.Duration{}
		dead := map[string]bool{}
		heard, speaks := time.Duration(0), time.Duration(0)
		for at := step; at < 40*time.Second; at += step {
			if rapid.IntRange(0, 9).Draw(t, "anything") == 0 {
				if at-heard > timeout/2 { // it stood still
					speaks = at
				}
				heard = at
				n := rapid.SampledFrom(names).Draw(t, "task")
				seq := rapid.Uint64Range(0, newest[n]+2).Draw(t, "sequence")
				age := time.Duration(rapid.IntRange(0, 60).Draw(t, "age")) * step
				if !dead[n] {
					if _, known := made[n]; !known || seq > newest[n] {
						newest[n], made[n] = seq, max(made[n], at-age)
					}
					table.Report(at, 1, false, []Report{{Said: true, Sequence: seq, Age: age, State: assignment.TaskRunning,
						Task: assignment.Task{Name: n, Incarnation: 1, Address: "x:1", Weight: 1}}})
				}
				table.Heard(at, 1, at)
			}
			table.Advance(at)
			for _, e := range table.Events() {
				dead[e.Task] = dead[e.Task] || e.Kind == Dead
			}
			for n, m := range made {
				silence := max(heard, at-20*time.Second) - max(m, speaks, 2*time.Second) // settling lasts 2 s
				if dead[n] && silence < timeout {
					t.Fatalf("at %s %s is dead after a silence of %s", at, n, silence)
				}
				if !dead[n] && silence >= timeout+300*time.Millisecond && at-heard >= 300*time.Millisecond {
					t.Fatalf("at %s %s is alive after a silence of %s", at, n, silence)
				}
			}
			for n := range dead {
				if dead[n] {
					delete(made, n) // what comes later is another story
				}
			}
		}
	})
}

// Whatever share above the limit vanishes at once, none dies before the freeze has
// lasted; whatever share below it, nothing freezes.
func TestFreezeProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 40).Draw(t, "tasks")
		vanish := rapid.IntRange(0, n).Draw(t, "vanish")
		table := New(Config{HeartbeatTimeout: 5 * time.Second}, 0, nil)
		table.Attach(0, 1, "d")
		table.Report(0, 1, true, nil)
		jitter := make([]time.Duration, n)
		for i := range jitter {
			jitter[i] = time.Duration(rapid.IntRange(0, 900).Draw(t, "jitter")) * time.Millisecond
		}
		for at := time.Duration(0); at < 30*time.Second; at += 100 * time.Millisecond {
			table.Heard(at, 1, at)
			for i := range n {
				if (at-jitter[i])%time.Second < 100*time.Millisecond && at >= jitter[i] && (i >= vanish || at < 10*time.Second) {
					table.Report(at, 1, false, []Report{{Said: true, Sequence: uint64(at) + 1, State: assignment.TaskRunning,
						Task: assignment.Task{Name: fmt.Sprint(i), Incarnation: 1, Address: "x:1", Weight: 1}}})
				}
			}
			table.Advance(at)
		}
		frozen, dead := 0, 0
		for _, e := range table.Events() {
			switch e.Kind {
			case Frozen:
				frozen++
			case Dead:
				dead++
			}
		}
		want := n >= 4 && vanish*2 > n
		if want != (frozen > 0) || want && dead > 0 || !want && dead != vanish {
			t.Fatalf("%d of %d vanish: frozen %d times, %d died", vanish, n, frozen, dead)
		}
	})
}

func TestSameEventsSameTable(t *testing.T) {
	run := func() string {
		table := New(Config{HeartbeatTimeout: time.Second}, 0, nil)
		for s := range Session(3) {
			table.Attach(0, s+1, fmt.Sprint("d", s))
		}
		for i := range 200 {
			at := time.Duration(i) * 97 * time.Millisecond
			table.Report(at, Session(i%3+1), i < 3, []Report{{Said: true, Sequence: uint64(i), State: assignment.TaskRunning,
				Task: assignment.Task{Name: fmt.Sprint("t", i*i%11), Incarnation: uint64(i%7/5 + 1), Address: "x:1", Weight: 1}}})
			table.Advance(at)
		}
		return fmt.Sprint(table.Events(), table.Tasks())
	}
	if a, b := run(), run(); a != b {
		t.Fatalf("once\n%s\nand then\n%s", a, b)
	}
}
