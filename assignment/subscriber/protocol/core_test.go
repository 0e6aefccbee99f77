package protocol

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/subscriber/subscribertest"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// TestTranscripts replays conversations: events and the passing of time in,
// what core wants done out.
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var s *script
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "new" {
				s = newScript(t, d)
			} else {
				s.run(t, d)
			}
			s.settle()
			return s.flush()
		})
	})
}

type script struct {
	receiver
	core       *Core
	start, now time.Time
	out        strings.Builder
	made       map[[2]int]*assignment.Assignment // by store and generation
	twist      int                               // changes what is made
}

func newScript(t *testing.T, d *datadriven.TestData) *script {
	role := "clerk"
	d.MaybeScanArgs(t, "role", &role)
	var dist, back string
	d.MaybeScanArgs(t, "distributors", &dist)
	d.MaybeScanArgs(t, "backups", &back)
	list := func(s string) []string {
		return strings.FieldsFunc(s, func(r rune) bool { return r == '+' })
	}
	var near string
	d.MaybeScanArgs(t, "near", &near)
	cfg := Config{Job: "job", ClientID: "me", Seed: 1, Distributors: list(dist), Backups: list(back), Near: list(near)}
	switch role {
	case "clerk":
		cfg.Role = Clerk
	case "slicelet":
		cfg.Role, cfg.Task = Slicelet, subscribertest.Task("a", 0)
	}
	s := &script{start: time.Unix(0, 0), made: make(map[[2]int]*assignment.Assignment)}
	s.now = s.start
	var cached *assignment.Assignment
	var mode assignment.Mode
	if d.HasArg("cached") {
		var gen int
		d.ScanArgs(t, "cached", &gen)
		cached, mode = s.assignment(t, 1, gen, "job"), assignment.Affinity
	}
	cachedIndex := -1
	d.MaybeScanArgs(t, "cached-index", &cachedIndex)
	if index := 0; d.HasArg("index") {
		d.ScanArgs(t, "index", &index)
		cfg.ClientIndex = new(uint32(index))
	}
	s.core = New(cfg, cached, mode, cachedIndex)
	s.core.Start(s.now)
	return s
}

// assignment of a generation, whose owners depend on it.
func (s *script) assignment(t *testing.T, store, gen int, job string) *assignment.Assignment {
	key := [2]int{store, gen}
	if a := s.made[key]; a != nil && a.Job() == job {
		return a
	}
	tasks := []assignment.Task{subscribertest.Task("a", 0), subscribertest.Task("b", 1)}
	h := assignment.Header{Job: job, StoreID: uint64(store), Generation: assignment.Generation(gen)}
	a := subscribertest.Equal(t, nil, h, tasks, 0, uint32((gen+s.twist)%2))
	s.made[key] = a
	return a
}

func (s *script) run(t *testing.T, d *datadriven.TestData) {
	store, gen, base := 1, 0, 0
	d.MaybeScanArgs(t, "store", &store)
	d.MaybeScanArgs(t, "gen", &gen)
	d.MaybeScanArgs(t, "base", &base)
	id := s.link(t, d)
	frame := func(f *wire.Frame, err error) {
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range subscribertest.Messages(f) {
			s.receiver.received(s.core, id, m, s.now)
		}
	}
	switch d.Cmd {
	case "linked":
		s.core.Linked(s.now, id)
	case "ended":
		s.core.Ended(s.now, id, endOf(t, d))
	case "whole":
		job := "job"
		d.MaybeScanArgs(t, "job", &job)
		if d.HasArg("other") { // contents than before
			delete(s.made, [2]int{store, gen})
			s.twist = 1
		}
		frame(wire.WholeFrame(s.assignment(t, store, gen, job)))
	case "delta":
		frame(wire.DeltaFrame(s.assignment(t, store, base, "job"), s.assignment(t, store, gen, "job")))
	case "garbage":
		f, err := wire.WholeFrame(s.assignment(t, store, gen, "job"))
		f.Data = append([]byte(nil), f.Data...)
		f.Data[len(f.Data)/2] ^= 0x55
		frame(f, err)
	case "status":
		m := &slicerv1.Status{TakesReports: !d.HasArg("no-reports"), Unacknowledged: d.HasArg("unacknowledged"), Mode: slicerv1.Mode_MODE_AFFINITY}
		var repeat, converged int
		d.MaybeScanArgs(t, "repeat-ms", &repeat)
		d.MaybeScanArgs(t, "converged", &converged)
		m.RepeatMs, m.ConvergedGeneration = int64(repeat), int64(converged)
		if index := 0; d.HasArg("index") {
			d.ScanArgs(t, "index", &index)
			m.ClientIndex = new(uint32(index))
		}
		s.receiver.received(s.core, id, &slicerv1.WatchResponse{Message: &slicerv1.WatchResponse_Status{Status: m}}, s.now)
	case "moved":
		s.core.Ended(s.now, id, movedAwayFor(t, 2*time.Second))
	case "report":
		s.core.Report(s.now, &slicerv1.Report{Sequence: uint64(gen), State: slicerv1.TaskState_TASK_STATE_RUNNING})
	case "wait":
		var d2 time.Duration
		for _, a := range d.CmdArgs {
			d2, _ = time.ParseDuration(a.Key)
		}
		s.pass(t, d2)
	default:
		t.Fatalf("%s: no command %q", d.Pos, d.Cmd)
	}
}

func endOf(t *testing.T, d *datadriven.TestData) error {
	code := "unavailable"
	d.MaybeScanArgs(t, "code", &code)
	for c := range codes.Unauthenticated + 1 {
		if strings.EqualFold(c.String(), code) {
			return status.Error(c, "as told")
		}
	}
	t.Fatalf("%s: no code %q", d.Pos, code)
	return nil
}

// link is the one that a command is about: that of the Distributors, or with "backup"
// that of the Backup Distributors, with "scan" that to a Distributor that is asked
// whether it is heard, or with link=n another.
func (s *script) link(t *testing.T, d *datadriven.TestData) Link {
	id := s.core.dist.link
	if d.HasArg("backup") {
		id = s.core.back.link
	}
	if d.HasArg("scan") {
		id = s.core.scan.link
	}
	if n := 0; d.HasArg("link") {
		d.ScanArgs(t, "link", &n)
		id = Link(n)
	}
	return id
}

// pass lets time go by, with a tick whenever one is due.
func (s *script) pass(t *testing.T, d time.Duration) {
	for end := s.now.Add(d); ; {
		s.settle()
		w := s.core.Wake()
		if w.IsZero() || w.After(end) {
			s.now = end
			return
		}
		if w.Before(s.now) {
			t.Fatalf("wake at %s, now is %s", w.Sub(s.start), s.now.Sub(s.start))
		}
		s.now = w
		s.core.Tick(s.now)
	}
}

// settle writes down what core wants done.
func (s *script) settle() {
	at := fmt.Sprintf("%6dms ", s.now.Sub(s.start).Milliseconds())
	published := false
	for _, a := range s.core.Actions() {
		switch a.Do {
		case Dial:
			fmt.Fprintf(&s.out, "%sdial %s as %d", at, a.Addr, a.Link)
			if a.Via != 0 {
				fmt.Fprintf(&s.out, " on the connection of %d", a.Via)
			}
			s.out.WriteString("\n")
		case Cut:
			fmt.Fprintf(&s.out, "%scut %d\n", at, a.Link)
		case Send:
			fmt.Fprintf(&s.out, "%ssend %d %s\n", at, a.Link, brief(a.Message))
		case Note:
			if a.Level >= slog.LevelInfo || a.Text == "no better server" {
				fmt.Fprintf(&s.out, "%s%s: %s%s\n", at, a.Level, a.Text, because(a.Err))
			}
		case Publish:
			published = true
		}
	}
	if published {
		st := s.core.State()
		gen := assignment.Generation(0)
		if st.Assignment != nil {
			gen = st.Assignment.Generation()
		}
		fmt.Fprintf(&s.out, "%sholds %d from %s, served by %s %s", at, gen, st.Source, st.Link, st.Peer)
		if st.ClientIndex >= 0 {
			fmt.Fprintf(&s.out, ", index %d", st.ClientIndex)
		}
		if st.Disconnected {
			s.out.WriteString(", disconnected")
		}
		s.out.WriteString("\n")
	}
}

func because(err error) string {
	if err == nil {
		return ""
	}
	return ": " + err.Error()
}

func (s *script) flush() string {
	defer s.out.Reset()
	// Protobuf's errors vary their spaces from build to build, so that they are not
	// compared.
	return strings.ReplaceAll(s.out.String(), "\u00a0", " ")
}

func brief(m *slicerv1.WatchRequest) string {
	switch m := m.Message.(type) {
	case *slicerv1.WatchRequest_Hello:
		h := m.Hello
		text := fmt.Sprintf("hello generation=%d store=%d", h.Generation, h.StoreId)
		if h.Role == slicerv1.Role_ROLE_OBSERVER {
			text += " as an observer"
		}
		if h.ClientIndex != nil {
			text += fmt.Sprintf(" index=%d", *h.ClientIndex)
		}
		if h.Report != nil {
			text += fmt.Sprintf(" report=%d", h.Report.Sequence)
		}
		return text
	case *slicerv1.WatchRequest_Ack:
		if m.Ack.Refusal != "" {
			return fmt.Sprintf("ack %d, refusing: %s", m.Ack.Generation, m.Ack.Refusal)
		}
		return fmt.Sprintf("ack %d", m.Ack.Generation)
	case *slicerv1.WatchRequest_Report:
		return fmt.Sprintf("report %d", m.Report.Sequence)
	}
	return "nothing"
}
