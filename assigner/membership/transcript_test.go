package membership

import (
	"fmt"
	"iter"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/slicer-project/slicer/assignment"
)

// TestTranscripts runs testdata/transcripts. Times are seconds since the start; every
// command that gives a time first moves the clock there in scan steps, as a
// shell would.
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata/transcripts", func(t *testing.T, path string) {
		var s script
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			return s.run(t, d)
		})
	})
}

type script struct {
	t   *Table
	now time.Duration
	gen assignment.Generation
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	if d.Cmd == "new" {
		s.now, s.gen = 0, 0
		cfg := Config{HeartbeatTimeout: 5 * time.Second, Freeze: assignment.FreezeConfig{For: 30 * time.Second}}
		if d.HasArg("max") {
			d.ScanArgs(t, "max", &cfg.MaxTasks)
		}
		var stored *assignment.Assignment
		if strings.TrimSpace(d.Input) != "" {
			stored = s.parseStored(t, d.Input)
		}
		s.t = New(cfg, 0, stored)
		return s.show()
	}
	if d.HasArg("at") {
		var at string
		d.ScanArgs(t, "at", &at)
		s.to(seconds(t, at))
	}
	var id int
	if d.HasArg("s") {
		d.ScanArgs(t, "s", &id)
	}
	switch d.Cmd {
	case "attach":
		name := fmt.Sprintf("d%d", id)
		if d.HasArg("name") {
			d.ScanArgs(t, "name", &name)
		}
		s.t.Attach(s.now, Session(id), name)
	case "detach":
		s.t.Detach(s.now, Session(id))
	case "heard":
		s.t.Heard(s.now, Session(id), s.now)
	case "report":
		s.t.Report(s.now, Session(id), d.HasArg("complete"), s.parseReports(t, d.Input))
	case "beat": // reports of all named tasks each second, up to a time
		var until string
		d.ScanArgs(t, "until", &until)
		for end := seconds(t, until); s.now+time.Second <= end; {
			s.to(s.now + time.Second)
			rs := s.parseReports(t, d.Input)
			for i := range rs {
				rs[i].Sequence = uint64(s.now / time.Millisecond)
			}
			s.t.Report(s.now, Session(id), false, rs)
		}
	case "pass":
	case "jump": // the assigner itself was stopped
		var to string
		d.ScanArgs(t, "to", &to)
		s.now = seconds(t, to)
		s.t.Advance(s.now)
	case "stored":
		s.t.Stored(s.parseStored(t, d.Input), d.HasArg("own"))
	case "drain", "undrain":
		var name string
		d.ScanArgs(t, "task", &name)
		drains := maps.Clone(s.t.roster.drains)
		if delete(drains, name); d.Cmd == "drain" {
			if drains == nil {
				drains = map[string]uint64{}
			}
			drains[name] = s.t.roster.lookup(name).cur.Incarnation
		}
		s.t.Drain(s.now, drains)
	case "ended": // why the drain of a task has ended, if it has
		var name string
		d.ScanArgs(t, "task", &name)
		return s.t.Ended(name, s.t.roster.lookup(name).cur.Incarnation)
	case "configure":
		cfg := s.t.cfg
		d.ScanArgs(t, "max", &cfg.MaxTasks)
		s.t.Configure(s.now, cfg)
	case "compact":
		s.t.Compact()
	case "expect":
		s.t.Names.Expect()
	case "hold":
		var version int64
		d.ScanArgs(t, "version", &version)
		s.t.Names.Hold(s.now, version, parseHolders(d.Input))
	case "kept":
		var version int64
		d.ScanArgs(t, "version", &version)
		s.t.Names.Kept(version)
	case "follow": // a table that is made anew takes the place of this one
		was := s.t
		var stored *assignment.Assignment
		if strings.TrimSpace(d.Input) != "" {
			stored = s.parseStored(t, d.Input)
		}
		s.t = New(was.cfg, s.now, stored)
		for _, x := range was.attached.all {
			s.t.Attach(s.now, x.id, x.name)
		}
		s.t.Follow(s.now, was)
	case "holders":
		var b strings.Builder
		for _, h := range s.t.Names.Holders() {
			fmt.Fprintf(&b, "%s=%s\n", h.Task, h.Identity)
		}
		return b.String()
	case "tasks":
		var b strings.Builder
		for _, x := range s.t.Tasks() {
			fmt.Fprintf(&b, "%d %s/%x %s\n", x.Index, x.Name, x.Incarnation, x.State)
		}
		for _, x := range s.t.Statuses(s.now) {
			if !x.Indexed {
				fmt.Fprintf(&b, "- %s/%x %s\n", x.Task.Name, x.Task.Incarnation, x.Task.State)
			}
		}
		return b.String()
	case "holding":
		if since, frozen := s.t.Frozen(); frozen {
			return fmt.Sprintf("frozen for %s\n", since)
		}
		return s.t.Listening() + "\n"
	default:
		d.Fatalf(t, "unknown command")
	}
	s.t.Advance(s.now)
	return s.show()
}

// to lets time pass as a shell does, and prefixes events with it.
func (s *script) to(at time.Duration) {
	for s.now < at {
		s.now = min(at, s.now+50*time.Millisecond)
		before := len(s.t.roster.events)
		s.t.Advance(s.now)
		for i := before; i < len(s.t.roster.events); i++ {
			s.t.roster.events[i].Reason += fmt.Sprintf(" (at %.2fs)", s.now.Seconds())
		}
	}
}

func (s *script) show() string {
	var b strings.Builder
	for _, e := range s.t.Events() {
		fmt.Fprintln(&b, e)
	}
	return b.String()
}

func seconds(t *testing.T, s string) time.Duration {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(f * float64(time.Second))
}

func parseTask(t *testing.T, word string) assignment.Task {
	name, inc, ok := strings.Cut(word, "/")
	n, err := strconv.ParseUint(inc, 16, 64)
	if !ok || err != nil {
		t.Fatalf("%q is no name/incarnation", word)
	}
	return assignment.Task{Name: name, Incarnation: n, Address: name + ":80", Weight: 1}
}

// parseReports reads lines of name/incarnation [state] [seq=N] [age=S] [gone] [silent] [by=IDENTITY].
func (s *script) parseReports(t *testing.T, input string) []Report {
	var out []Report
	for line := range strings.Lines(input) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		r := Report{Task: parseTask(t, f[0]), Said: true, State: assignment.TaskRunning, Sequence: uint64(s.now / time.Millisecond)}
		for _, w := range f[1:] {
			key, val, _ := strings.Cut(w, "=")
			switch key {
			case "seq":
				r.Sequence, _ = strconv.ParseUint(val, 10, 64)
			case "by":
				r.Identity = val
			case "age":
				r.Age = seconds(t, val)
			case "gone":
				r.Disconnected = true
			case "silent":
				r.Said = false
			default:
				st, err := assignment.ParseTaskState(key)
				if err != nil {
					t.Fatal(err)
				}
				r.State = st
			}
		}
		out = append(out, r)
	}
	return out
}

// parseStored reads lines of index name/incarnation state [owns].
func (s *script) parseStored(t *testing.T, input string) *assignment.Assignment {
	s.gen++
	var tasks []assignment.Task
	var owners []uint32
	for line := range strings.Lines(input) {
		f := strings.Fields(line)
		x := parseTask(t, f[1])
		i, err := strconv.Atoi(f[0])
		if err != nil {
			t.Fatal(err)
		}
		x.Index = uint32(i)
		if x.State, err = assignment.ParseTaskState(f[2]); err != nil {
			t.Fatal(err)
		}
		if len(f) > 3 {
			owners = append(owners, uint32(len(tasks)))
		}
		tasks = append(tasks, x)
	}
	a, err := assignment.New(assignment.Header{Job: "job", StoreID: 1, Generation: s.gen, Previous: s.gen - 1},
		tasks, assignment.Columns{Starts: assignment.Equal(len(owners)), Owners: owners})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// parseHolders reads lines of name=IDENTITY.
func parseHolders(input string) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for line := range strings.Lines(input) {
			if name, identity, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !yield(name, identity) {
				return
			}
		}
	}
}
