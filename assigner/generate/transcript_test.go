package generate

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/slicer-project/slicer/assigner/membership"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/access"
	"github.com/slicer-project/slicer/assignment/store"
)

// TestTranscripts runs testdata/transcripts: one assigner's core and a store
// that does what the script says. Times are seconds since the start.
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata/transcripts", func(t *testing.T, path string) {
		s := &script{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return s.run(t, d) })
	})
}

var epoch = time.UnixMilli(1_000_000_000_000)

// script is a core, the time, and what the store holds.
type script struct {
	core   *Core
	at     time.Duration
	skew   time.Duration // of the wall clock
	job    *store.Job
	stored *assignment.Assignment
	orders store.Overrides
	names  store.Names
	fault  string // of the next write
	broken bool   // the store cannot be read
	seq    map[string]uint64
	leases scriptLeases
	out    strings.Builder
}

func (s *script) now() Now { return Now{Mono: s.at, Wall: epoch.Add(s.at + s.skew)} }

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	s.out.Reset()
	if d.HasArg("at") {
		var at float64
		d.ScanArgs(t, "at", &at)
		s.pass(t, time.Duration(at*float64(time.Second)))
	}
	var id int
	if d.HasArg("s") {
		d.ScanArgs(t, "s", &id)
	}
	session := membership.Session(id)
	switch d.Cmd {
	case "new":
		*s = script{core: New(Config{ID: "me"}, "job", Now{Wall: epoch}), seq: map[string]uint64{}}
	case "job":
		s.put(t, d)
	case "delete":
		s.job, s.stored, s.names = nil, nil, store.Names{}
		s.core.StoreChanged(s.now())
	case "prefer":
		var who string
		d.ScanArgs(t, "id", &who)
		s.core.Preferred(s.now(), strings.Trim(who, "-"))
	case "attach":
		name := fmt.Sprintf("d%d", id)
		d.MaybeScanArgs(t, "name", &name)
		s.core.Attach(s.now(), session, name)
	case "detach":
		s.core.Detach(s.now(), session)
	case "report":
		s.report(t, session, d.HasArg("complete"), d.Input)
	case "beat":
		var until float64
		d.ScanArgs(t, "until", &until)
		for end := time.Duration(until * float64(time.Second)); s.at+time.Second <= end; {
			s.pass(t, s.at+time.Second)
			s.report(t, session, false, d.Input)
		}
	case "want":
		var g int64
		if d.HasArg("newest") {
			d.ScanArgs(t, "newest", &g)
			g += epoch.UnixMilli()
		}
		s.core.Wanted(s.now(), session, !d.HasArg("stop"), Held{7, assignment.Generation(g)})
	case "acks":
		s.acks(t, session, d)
	case "drain", "undrain":
		var task string
		d.ScanArgs(t, "task", &task)
		s.drain(task, d.Cmd == "undrain")
	case "fault":
		s.fault = d.CmdArgs[0].Key
	case "policy":
		s.policy(t, d)
	case "names":
		for _, h := range s.names.Held {
			fmt.Fprintf(&s.out, "%s=%s\n", h.Task, h.Identity)
		}
		return s.out.String()
	case "break":
		s.broken = true
	case "mend":
		s.broken = false
	case "rival":
		s.rival(t)
	case "leases":
		s.leases.held, s.leases.slow = d.HasArg("held"), d.HasArg("slow")
	case "finish", "depose":
		s.finish(t, d.Cmd == "depose")
	case "skew":
		var by string
		d.ScanArgs(t, "by", &by)
		s.skew, _ = time.ParseDuration(by)
	case "pass":
	case "show":
		s.show()
		return s.out.String()
	default:
		d.Fatalf(t, "unknown command")
	}
	s.drive(t)
	return s.out.String()
}

func (s *script) pass(t *testing.T, until time.Duration) {
	for s.at < until {
		s.at = min(until, s.at+50*time.Millisecond)
		s.drive(t)
	}
}

// drive does what the core asks for.
func (s *script) drive(t *testing.T) {
	for range 100 {
		action, _ := s.core.Next(s.now())
		switch a := action.(type) {
		case Load:
			s.load(a)
		case *Plan:
			s.core.Planned(s.now(), a.Run())
		case Write:
			s.core.Written(s.now(), s.write(t, a.Next))
		case PutNames:
			s.core.Names.Put(s.now(), s.putNames(a.Names))
		case Audit:
			fmt.Fprintf(&s.out, "%.2fs -> audit %s: %s\n", s.at.Seconds(), a.Action, a.Why)
			if s.orders = s.orders.Clone(); a.Lifts != 0 && s.orders.Lift(a.Lifts) {
				s.orders.Version++
			}
			s.core.Audited(s.now(), a, nil)
		default:
			s.order(t, a)
		}
		s.outputs()
		if action == nil {
			return
		}
	}
	t.Fatal("the core does not come to rest")
}

// drain stores a drain, or lifts it.
func (s *script) drain(task string, undo bool) {
	incarnation, err := s.core.View(s.now()).Drainable(task, undo)
	if err != nil {
		fmt.Fprintln(&s.out, "error:", err)
		return
	}
	c := s.orders.Clone()
	c.Version++
	if at, there := c.DrainOf(task); there && undo {
		c.Drains = slices.Delete(c.Drains, at, at+1)
	} else if !there && !undo {
		c.Drains = slices.Insert(c.Drains, at, store.Drain{Order: c.Version, Task: task, Incarnation: incarnation})
	}
	s.orders = c
	s.core.StoreChanged(s.now())
}

func (s *script) load(a Load) {
	switch {
	case s.broken:
		s.core.Loaded(s.now(), Loaded{Err: store.ErrUnavailable})
	case s.job == nil:
		s.core.Loaded(s.now(), Loaded{})
	default:
		l := Loaded{Exists: true, Job: *s.job, StoreID: 7, Assignment: s.stored, Overrides: s.orders, Named: a.Names}
		if a.Names {
			l.Names = s.names
		}
		s.core.Loaded(s.now(), l)
	}
}

func (s *script) write(t *testing.T, next *assignment.Assignment) error {
	fault := s.fault
	s.fault = ""
	switch {
	case s.broken || fault == "lost":
		return store.ErrUnavailable
	case fault == "rival":
		s.rival(t)
		fallthrough
	case next.Previous() != generation(s.stored):
		return &store.ConflictError{Key: "job", Current: int64(generation(s.stored))}
	}
	s.stored = next
	if fault == "unknown" {
		return errors.New("deadline exceeded")
	}
	s.core.StoreChanged(s.now()) // as a watch does
	return nil
}

// policy puts one in force, with these patterns for own, or none.
func (s *script) policy(t *testing.T, d *datadriven.TestData) {
	var p *access.Policy
	if !d.HasArg("none") {
		var own string
		d.ScanArgs(t, "own", &own)
		var err error
		if p, err = access.Parse("policy", fmt.Appendf(nil, "jobs: {own: ['%s']}", own)); err != nil {
			t.Fatal(err)
		}
	}
	s.core.Names.Policy(s.now(), p)
}

func (s *script) putNames(next store.Names) error {
	fault := s.fault
	if strings.HasPrefix(fault, "names-") {
		s.fault = ""
	}
	switch {
	case s.broken || fault == "names-lost":
		return store.ErrUnavailable
	case fault == "names-rival":
		s.names = store.Names{Version: next.Version, Held: []store.Held{{Task: "a", Identity: "rival"}}}
	}
	if next.Version != s.names.Version+1 {
		return &store.ConflictError{Key: "names", Current: s.names.Version}
	}
	if err := next.Validate(); err != nil {
		return err
	}
	s.names = next
	fmt.Fprintf(&s.out, "%.2fs -> names of %d tasks, version %d\n", s.at.Seconds(), len(next.Held), next.Version)
	return nil
}

// rival has another assigner write the same placement anew.
func (s *script) rival(t *testing.T) {
	p, ok := keep(s.stored, table(s.stored), true)
	if !ok {
		t.Fatal("nothing is stored")
	}
	a, err := assignment.Successor(s.stored, assignment.Header{Job: "job", StoreID: 7, Generation: s.stored.Generation() + 1}, table(s.stored), p)
	if err != nil {
		t.Fatal(err)
	}
	s.stored = a
	s.core.StoreChanged(s.now())
}

func (s *script) put(t *testing.T, d *datadriven.TestData) {
	c := assignment.JobConfig{Name: "job", Freeze: assignment.FreezeConfig{For: 30 * time.Second}}
	for _, a := range d.CmdArgs {
		switch a.Key {
		case "min":
			c.MinReplicas, _ = strconv.Atoi(a.Vals[0])
		case "max":
			c.MaxReplicas, _ = strconv.Atoi(a.Vals[0])
		case "mode":
			c.Mode, _ = assignment.ParseMode(a.Vals[0])
		case "own":
			c.Access, _ = assignment.AccessOf(map[assignment.Verb][]string{assignment.Own: a.Vals})
		case "still": // no keys move but those of the dead
			c.Balance.MoveBudget = -1
		}
	}
	version := int64(1)
	if s.job != nil {
		version += s.job.Version
	}
	c.Balance.MinSlicesPerTask = 4
	s.job = &store.Job{Config: c.WithDefaults(), Version: version}
	if err := s.job.Config.Validate(); err != nil {
		t.Fatal(err)
	}
	s.core.StoreChanged(s.now())
}

// report reads lines of name/incarnation [state] [gone] [load=R].
func (s *script) report(t *testing.T, session membership.Session, complete bool, input string) {
	var rs []Report
	for line := range strings.Lines(input) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		name, inc, _ := strings.Cut(f[0], "/")
		n, err := strconv.ParseUint(inc, 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		s.seq[f[0]]++
		r := Report{Report: membership.Report{Said: true, Sequence: s.seq[f[0]], State: assignment.TaskRunning,
			Task: assignment.Task{Name: name, Incarnation: n, Address: name + ":80", Weight: 1}}}
		for _, w := range f[1:] {
			key, val, _ := strings.Cut(w, "=")
			switch key {
			case "gone":
				r.Disconnected = true
			case "by":
				r.Identity = val
			case "load":
				v, _ := strconv.ParseFloat(val, 64)
				r.Load = s.load1(name, v)
			default:
				if r.State, err = assignment.ParseTaskState(key); err != nil {
					t.Fatal(err)
				}
			}
		}
		rs = append(rs, r)
	}
	s.core.Reports(s.now(), session, complete, rs)
	s.drive(t)
}

// load1 spreads a task's load evenly over its slices.
func (s *script) load1(name string, total float64) *assignment.Load {
	l := &assignment.Load{Window: time.Second, Parts: 1, Total: total}
	if s.stored == nil {
		return l
	}
	l.Generation = s.stored.Generation()
	for sl, rs := range s.stored.All() {
		for x := range rs.All() {
			if x.Name == name {
				l.Ranges = append(l.Ranges, sl)
			}
		}
	}
	for range l.Ranges {
		l.Rate = append(l.Rate, total/float64(len(l.Ranges)))
	}
	return l
}

func (s *script) acks(t *testing.T, session membership.Session, d *datadriven.TestData) {
	var a Acks
	if d.HasArg("empty") {
		a.Empty = true
	} else {
		var behind int64
		d.ScanArgs(t, "behind", &behind)
		a.Min, a.Clerks, a.Slicelets = generation(s.stored)-assignment.Generation(behind), 2, 3
	}
	if d.HasArg("stragglers") {
		var who string
		d.ScanArgs(t, "stragglers", &who)
		a.Stragglers = []string{who}
	}
	s.core.Acked(s.now(), session, a)
}

func (s *script) outputs() {
	e := s.core.Outputs()
	for _, l := range e.Logs {
		if l.Level < slog.LevelInfo {
			continue
		}
		fmt.Fprintf(&s.out, "%.2fs %s:", s.at.Seconds(), l.Message)
		for i := 0; i < len(l.Attrs); i += 2 {
			switch v := l.Attrs[i+1].(type) {
			case float64:
				fmt.Fprintf(&s.out, " %s=%.3f", l.Attrs[i], v)
			case int64: // generations, as milliseconds since the start
				if v > 0 {
					v -= epoch.UnixMilli()
				}
				fmt.Fprintf(&s.out, " %s=%d", l.Attrs[i], v)
			default:
				fmt.Fprintf(&s.out, " %s=%v", l.Attrs[i], v)
			}
		}
		fmt.Fprintln(&s.out)
	}
	for _, r := range e.Refusals {
		fmt.Fprintf(&s.out, "%.2fs -> refuse %s/%x on %v\n", s.at.Seconds(), r.Task, r.Incarnation, r.Sessions)
	}
	if len(e.Ahead) > 0 {
		fmt.Fprintf(&s.out, "%.2fs -> alarm %v\n", s.at.Seconds(), e.Ahead)
	}
}

func (s *script) show() {
	v := s.core.View(s.now()).Convergence()
	rel := func(g assignment.Generation) int64 {
		if g == 0 {
			return 0
		}
		return int64(g) - epoch.UnixMilli()
	}
	fmt.Fprintf(&s.out, "generation %d, converged %d, stragglers %v, clerks %d, slicelets %d\n",
		rel(generation(s.core.View(s.now()).Stored())), rel(v.Generation), v.Stragglers, v.Clerks, v.Slicelets)
	fmt.Fprintf(&s.out, "holding %q, live %d, imbalance %.2f\n", s.core.View(s.now()).Holding(), s.core.View(s.now()).Live(), s.core.View(s.now()).Imbalance())
	if why := s.core.View(s.now()).Alarm(); why != "" {
		fmt.Fprintf(&s.out, "alarm %q\n", why)
	}
	a := s.core.View(s.now()).Stored()
	if a == nil {
		return
	}
	width := make([]float64, a.NumTasks())
	n := make([]int, a.NumTasks())
	for sl, rs := range a.All() {
		for i := range rs.Len() {
			width[rs.Position(i)] += sl.Fraction()
			n[rs.Position(i)]++
		}
	}
	for i, x := range a.Tasks() {
		fmt.Fprintf(&s.out, "%d %s/%x %s: %d slices, %.1f%%\n", x.Index, x.Name, x.Incarnation, x.State, n[i], 100*width[i])
	}
	slices.Sort(v.Stragglers)
}

func table(a *assignment.Assignment) []assignment.Task {
	var out []assignment.Task
	for _, x := range a.Tasks() {
		out = append(out, x)
	}
	return out
}
