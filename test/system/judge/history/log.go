package history

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/slicer-project/slicer/assignment"
)

// Log is a process's file. Each line is one write, so that a killed process has
// written all that it said it did, but for the last line, perhaps. Safe for
// concurrent use.
type Log struct {
	mu   sync.Mutex
	file *os.File
	err  error
}

// Create begins a log.
func Create(path string) (*Log, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	return &Log{file: f}, nil
}

func (l *Log) line(format string, args ...any) {
	text := fmt.Appendf(nil, format+"\n", args...)
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.file.Write(text); err != nil && l.err == nil {
		l.err = err
	}
}

// Close returns the first error that there was.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.file.Close(); l.err == nil {
		l.err = err
	}
	return l.err
}

// Took: a handle that is kept was taken, and the key was the owner's own.
func (l *Log) Took(owner, key string, token assignment.Generation, began, ended time.Duration) {
	l.line("took %s %s %d %d %d", owner, key, token, began, ended)
}

// Held: all handles kept, n of them, were still good; the checks lie between
// began and ended.
func (l *Log) Held(owner string, n int, began, ended time.Duration) {
	l.line("held %s %d %d %d", owner, n, began, ended)
}

// Lost: a handle kept was not good any more, and is dropped.
func (l *Log) Lost(owner, key string) { l.line("lost %s %s", owner, key) }

// Use is a request as its owner saw it: a handle was taken, and n checks of it
// said yes.
type Use struct {
	Owner, Key           string
	Token                assignment.Generation
	TakenBegan, Taken    time.Duration
	N                    int
	CheckBegan, CheckEnd time.Duration // of the last
}

// Used writes down a use.
func (l *Log) Used(u Use) {
	l.line("used %s %s %d %d %d %d %d %d", u.Owner, u.Key, u.Token, u.TakenBegan, u.Taken, u.N, u.CheckBegan, u.CheckEnd)
}

// Set: the owner's usable set, for as many keys as it was compared with.
func (l *Log) Set(owner string, keys []string, began, ended time.Duration) {
	l.line("set %s %d %d %s", owner, began, ended, strings.Join(append([]string{"."}, keys...), ","))
}

// Told: the listener was called.
func (l *Log) Told(t Told) {
	l.line("told %s %d %s %s", t.Owner, t.At, ranges(t.Arrived), ranges(t.Departed))
}

// Did: a client's operation has ended.
func (l *Log) Did(o Op) {
	kind, got := "read", "="+o.Got
	if o.Write {
		kind = "write"
	}
	if o.Unknown {
		got = "?"
	}
	l.line("did %s %s %s =%s %s %d %d", o.Client, o.Key, kind, o.Arg, got, o.Call, o.Return)
}

// Rate says how calls have fared.
func (l *Log) Rate(r Rate) {
	l.line("rate %s %d %d %d %d", r.Client, r.At, r.Asked, r.Satisfied, r.Served)
}

// Count adds to a figure.
func (l *Log) Count(name string, n int) { l.line("count %s %d", name, n) }

func ranges(s []assignment.Slice) string {
	text := "."
	for _, r := range s {
		text += fmt.Sprintf(",%d-%d", r.Start, r.End)
	}
	return text
}
