// Package record is what the processes of a chaos run write down: a JSON line
// for each call of a client, one for each start of a server process, and one for
// each time that a process did not get to run. All times are boottime.Now, which
// is the same in every process of one machine.
package record

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/test/kit/boottime"
)

// Line is one of these.
type Line struct {
	Call  *Call       `json:",omitempty"`
	Up    *Up         `json:",omitempty"`
	Still *Standstill `json:",omitempty"`
}

// Call is a request of a client, with all that its library did about it.
type Call struct {
	Client     string
	Key        string
	Begin, End time.Duration
	// Generation is what the client held when it began.
	Generation assignment.Generation
	// Task answered, and owned the key by what it knew, or else there is an error.
	Task  string `json:",omitempty"`
	Owned bool   `json:",omitempty"`
	Err   string `json:",omitempty"`
}

// Up says that tasks serve from then on.
type Up struct {
	Tasks []string
	At    time.Duration
}

// Standstill is a time in which the process did not run, because the machine had
// no time for it or because it was stopped.
type Standstill struct {
	From, To time.Duration
}

const (
	// lookEvery is how often Watch looks at the clock, and standstill what is one.
	lookEvery  = 20 * time.Millisecond
	standstill = 250 * time.Millisecond
)

// Watch writes down standstills until ctx ends.
func (l *Log) Watch(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for last := boottime.Now(); ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		now := boottime.Now()
		if now-last > standstill {
			l.Add(Line{Still: &Standstill{last, now}})
		}
		last = now
	}
}

// maxUnwritten is how many bytes may wait for the next Flush.
const maxUnwritten = 1 << 20

// Log is a file of lines. All methods are safe for concurrent use.
type Log struct {
	mu  sync.Mutex
	f   *os.File
	w   *bufio.Writer
	enc *json.Encoder
	err error
}

// Append opens a log, to go on where another process ended.
func Append(file string) (*Log, error) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	l := &Log{f: f, w: bufio.NewWriterSize(f, maxUnwritten)}
	l.enc = json.NewEncoder(l.w)
	return l, nil
}

// Add adds a line. Errors come with Flush.
func (l *Log) Add(line Line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.enc.Encode(line); err != nil && l.err == nil {
		l.err = err
	}
}

// Flush has all that was added reach the file.
func (l *Log) Flush() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.w.Flush(); err != nil && l.err == nil {
		l.err = err
	}
	return l.err
}

// flushEvery is how late lines may reach the file.
const flushEvery = 200 * time.Millisecond

// FlushUntil flushes now and then until ctx ends, and returns the first error.
func (l *Log) FlushUntil(ctx context.Context) error {
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	for {
		if err := l.Flush(); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// Close flushes and closes.
func (l *Log) Close() error {
	err := l.Flush()
	if closed := l.f.Close(); err == nil {
		err = closed
	}
	return err
}

// Read reads a log. What a killed process has left of its last line is left out,
// but nothing else may be wrong.
func Read(file string) (lines []Line, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for n := 1; len(data) > 0; n++ {
		text, rest, whole := bytes.Cut(data, []byte("\n"))
		if !whole {
			break
		}
		var line Line
		if err := json.Unmarshal(text, &line); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, n, err)
		}
		if line.Call != nil && line.Call.End < line.Call.Begin {
			return nil, fmt.Errorf("%s:%d: a call ends before it begins", file, n)
		}
		lines, data = append(lines, line), rest
	}
	return lines, nil
}
