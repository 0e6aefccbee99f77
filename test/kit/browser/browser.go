// Package browser drives a Chromium without a screen, by the DevTools protocol over two
// pipes, for tests of pages. Chromium is to be installed.
package browser

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"
)

// limit bounds every call and every wait.
const limit = 60 * time.Second

// errEnded is why a call of a browser that has ended fails.
var errEnded = errors.New("the browser has ended")

// Browser is a Chromium with a profile of its own, which ends with the test.
type Browser struct {
	tb      testing.TB
	cmd     *exec.Cmd
	to      *os.File
	reading sync.WaitGroup

	mu      sync.Mutex
	last    int
	pending map[int]chan message
	tabs    map[string]*Tab
	ended   bool
}

// message is any of the protocol's: a command, its answer, or an event.
type message struct {
	ID      int             `json:"id,omitempty"`
	Session string          `json:"sessionId,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  any             `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// Start starts Chromium, which has no way to any host but this one.
func Start(tb testing.TB, flags ...string) *Browser {
	tb.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		tb.Fatalf("Chromium is not installed: %v", err)
	}
	fromUs, to, err := os.Pipe()
	if err != nil {
		tb.Fatal(err)
	}
	from, fromIt, err := os.Pipe()
	if err != nil {
		tb.Fatal(err)
	}
	b := &Browser{tb: tb, to: to, pending: make(map[int]chan message), tabs: make(map[string]*Tab)}
	b.cmd = exec.Command(path, append([]string{
		"--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars", "--user-data-dir=" + tb.TempDir(),
	}, flags...)...)
	b.cmd.ExtraFiles = []*os.File{fromUs, fromIt} // 3 and 4, as the protocol has them
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := b.cmd.Start(); err != nil {
		tb.Fatalf("start %s: %v", path, err)
	}
	fromUs.Close()
	fromIt.Close()
	b.reading.Go(func() { b.read(from) })
	tb.Cleanup(b.close)
	return b
}

func (b *Browser) close() {
	_ = syscall.Kill(-b.cmd.Process.Pid, syscall.SIGKILL) // with all that it has started
	_ = b.cmd.Wait()
	b.to.Close()
	b.reading.Wait()
}

// read takes answers and events until the browser ends.
func (b *Browser) read(from *os.File) {
	defer from.Close()
	r := bufio.NewReaderSize(from, 1<<20)
	for {
		data, err := r.ReadBytes(0)
		if err != nil {
			break
		}
		var m message
		var params json.RawMessage
		m.Params = &params
		if json.Unmarshal(data[:len(data)-1], &m) == nil {
			b.take(m, params)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	for _, c := range b.pending {
		close(c)
	}
	b.pending = nil
}

func (b *Browser) take(m message, params json.RawMessage) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := b.pending[m.ID]; c != nil {
		delete(b.pending, m.ID)
		c <- m
		return
	}
	if t := b.tabs[m.Session]; t != nil && m.Method != "" {
		t.noteLocked(m.Method, params)
	}
}

// call sends a command and waits for its answer, of which result, unless nil, takes what
// there is.
func (b *Browser) call(session, method string, params, result any) error {
	answer := make(chan message, 1)
	b.mu.Lock()
	if b.ended {
		b.mu.Unlock()
		return errEnded
	}
	b.last++
	m := message{ID: b.last, Session: session, Method: method, Params: params}
	b.pending[m.ID] = answer
	data, err := json.Marshal(m)
	if err == nil {
		_, err = b.to.Write(append(data, 0))
	}
	b.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case m, ok := <-answer:
		switch {
		case !ok:
			return errEnded
		case m.Error != nil:
			return fmt.Errorf("%s: %s", method, m.Error.Message)
		case result != nil:
			return json.Unmarshal(m.Result, result)
		}
		return nil
	case <-timer.C:
		return fmt.Errorf("%s: no answer within %s", method, limit)
	}
}
