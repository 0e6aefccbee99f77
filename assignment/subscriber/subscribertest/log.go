package subscribertest

import (
	"bytes"
	"log"
	"log/slog"
	"strings"
	"sync"
	"testing"
)

// DefaultLog takes what goes to slog.Default() until the test ends, of all levels,
// and returns a function that gives its lines so far. Tests that use it must not run
// in parallel.
func DefaultLog(t testing.TB) (lines func() []string) {
	before, out, flags := slog.Default(), log.Writer(), log.Flags()
	t.Cleanup(func() {
		slog.SetDefault(before)
		log.SetOutput(out)
		log.SetFlags(flags)
	})
	b := &buffer{}
	slog.SetDefault(slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: slog.LevelDebug})))
	return b.lines
}

type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) lines() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.FieldsFunc(b.b.String(), func(r rune) bool { return r == '\n' })
}
