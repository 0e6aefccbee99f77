package suite

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/slicer-project/slicer/test/conformance/line"
)

// session is a driver's process, with one slicelet or clerk in it.
type session struct {
	t       *T
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     io.Closer
	replies chan line.Reply // closed when the process has ended
	errors  tail
	ended   chan struct{}
	state   string // how it has ended
	closed  bool   // by quit
	blamed  bool   // for having ended
}

// tail keeps the end of what a driver writes to standard error.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const maxTail = 2 << 10

// Write is io.Writer's.
func (b *tail) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text = append(b.text, p...)
	if n := len(b.text) - maxTail; n > 0 {
		b.text = append([]byte(nil), b.text[n:]...)
	}
	return len(p), nil
}

func (b *tail) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.TrimSpace(string(b.text))
}

// startsWithin is how long a driver's process may take besides until it answers: many at once
// load a language's runtime.
const startsWithin = 30 * time.Second

// run starts a driver.
func (t *T) run() *session {
	s := &session{t: t, replies: make(chan line.Reply, 1), ended: make(chan struct{})}
	s.cmd = exec.Command(t.command[0], t.command[1:]...)
	s.cmd.Stderr = &s.errors
	s.cmd.WaitDelay = t.patience
	in, err := s.cmd.StdinPipe()
	if err != nil {
		panic(trouble{err})
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		panic(trouble{err})
	}
	s.in, s.out = in, out
	if err := s.cmd.Start(); err != nil {
		panic(trouble{fmt.Errorf("driver: %w", err)})
	}
	t.sessions = append(t.sessions, s)
	go func() {
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, line.MaxLine)
		for lines.Scan() {
			var r line.Reply
			if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
				r = line.Reply{Error: fmt.Sprintf("no reply as CONFORMANCE.md describes it: %q", clip(lines.Text(), 200))}
			}
			s.replies <- r
		}
		_, _ = io.Copy(io.Discard, out) // after a line that is too long
		s.state = "ended"
		if err := s.cmd.Wait(); err != nil && !errors.Is(err, exec.ErrWaitDelay) { // what it has started holds standard error
			s.state = err.Error()
		}
		close(s.ended)
		close(s.replies)
	}()
	return s
}

// start is run, and the operation start.
func (t *T) start(c startConfig) *session {
	s := t.run()
	q := line.Request{Op: "start", Job: job, Distributors: addrs(c.distributors), Backups: addrs(c.backups), CacheFile: c.cacheFile, Zone: zone}
	if t.role == Slicelet {
		q.Task, q.Address, q.Starting = me, myAddress, c.starting
		if c.leases != nil {
			q.Leases = addrs(c.leases)
		}
	} else {
		q.ClientID = cmp.Or(c.clientID, clientID)
	}
	s.do(q)
	return s
}

// startConfig is what start is given besides names.
type startConfig struct {
	distributors, backups []*server
	leases                []*server // where leases are had, nil for a slicelet without
	cacheFile             string
	clientID              string // of a clerk; empty for the usual one
	starting              bool
}

func addrs(servers []*server) []string {
	out := []string{}
	for _, s := range servers {
		out = append(out, s.addr())
	}
	return out
}

// do has one operation carried out. What the implementation does not have ends the check.
func (s *session) do(q line.Request) line.Reply {
	text, err := json.Marshal(q)
	if err != nil {
		panic(trouble{err})
	}
	if _, err := s.in.Write(append(text, '\n')); err != nil {
		s.died(q.Op)
	}
	within := s.t.patience
	if q.Op == "start" {
		within += startsWithin
	}
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case r, ok := <-s.replies:
		switch {
		case !ok:
			s.died(q.Op)
		case r.Unsupported:
			panic(unsupported{q.Op})
		case r.Error != "":
			s.t.faultAt(refDriver, fmt.Sprintf("%s carried out", q.Op), "the error: "+r.Error)
		}
		s.t.note("driver: %s -> %s", clip(string(text), 300), clip(jsonOf(r), 300))
		return r
	case <-timer.C:
		s.t.faultAt(refDriver, fmt.Sprintf("an answer to %s within %s", q.Op, within), "none")
	}
	panic("not reached")
}

// died blames the driver for having ended.
func (s *session) died(op string) {
	select {
	case <-s.ended:
	case <-time.After(time.Second):
	}
	s.blamed = true
	s.t.fault("a driver that is alive at "+op, "one that "+s.lastWords())
}

// lastWords is how it has ended, and what it has written to standard error.
func (s *session) lastWords() string {
	how := "has closed its standard input"
	select {
	case <-s.ended:
		how = fmt.Sprintf("has ended (%s)", s.state)
	default:
	}
	text := s.errors.String()
	if i := strings.Index(text, "panic: "); i >= 0 {
		text = text[i:]
	}
	return fmt.Sprintf("%s; its last words: %s", how, clip(strings.ReplaceAll(text, "\n", " | "), 300))
}

// quit has the driver end in an orderly way.
func (s *session) quit() {
	s.closed = true
	s.do(line.Request{Op: "close"})
	_ = s.in.Close()
	timer := time.NewTimer(s.t.patience)
	defer timer.Stop()
	select {
	case <-s.ended:
		if s.state != "ended" {
			s.t.faultAt(refDriver, "a driver that ends with exit code 0 after close", s.state)
		}
	case <-timer.C:
		s.t.faultAt(refDriver, fmt.Sprintf("a driver that ends within %s of close", s.t.patience), "it runs")
	}
}

// kill ends the process and waits for it.
func (s *session) kill() {
	_ = s.in.Close()
	_ = s.cmd.Process.Kill()
	// A process that it has started may live on, and with it its standard output.
	abandon := time.AfterFunc(time.Second, func() { _ = s.out.Close() })
	defer abandon.Stop()
	for range s.replies {
	}
	<-s.ended
}

// generation is that of the assignment in hand.
func (s *session) generation() int64 { return s.do(line.Request{Op: "state"}).Generation }

func jsonOf(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}
