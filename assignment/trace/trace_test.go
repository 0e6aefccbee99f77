package trace

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
)

// notes are what a tracer was told, one line each.
type notes struct{ lines []string }

type within struct{}

func (n *notes) Start(ctx context.Context, name string, attrs ...slog.Attr) (context.Context, Span) {
	parent, _ := ctx.Value(within{}).(string)
	n.lines = append(n.lines, fmt.Sprintf("%s in %q %v", name, parent, attrs))
	return context.WithValue(ctx, within{}, name), &note{n, name}
}

type note struct {
	n    *notes
	name string
}

func (s *note) Set(attrs ...slog.Attr) { s.n.lines = append(s.n.lines, fmt.Sprint(s.name, " ", attrs)) }
func (s *note) End(err error)          { s.n.lines = append(s.n.lines, fmt.Sprint(s.name, " ends: ", err)) }

func TestStart(t *testing.T) {
	var n notes
	ctx, outer := Start(t.Context(), &n, "outer", slog.String("job", "web"))
	_, inner := Start(ctx, &n, "inner")
	inner.End(errors.New("x"))
	outer.Set(slog.Int("n", 1))
	outer.End(nil)
	outer.Set(slog.Int("n", 2))
	outer.End(errors.New("too late"))
	want := "outer in \"\" [job=web]\ninner in \"outer\" []\ninner ends: x\nouter [n=1]\nouter ends: <nil>"
	if got := strings.Join(n.lines, "\n"); got != want {
		t.Errorf("told\n%s\nwant\n%s", got, want)
	}
}

func TestWithoutTracer(t *testing.T) {
	ctx, s := Start(t.Context(), nil, "none")
	s.Set(slog.Int("n", 1))
	s.End(nil)
	s.End(nil)
	if ctx != t.Context() {
		t.Error("the context is another one")
	}
}

// Of many that find that a stream is set up, or has failed, the first is told.
func TestEndedByMany(t *testing.T) {
	var n notes
	_, s := Start(t.Context(), &n, "stream")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			s.Set()
			s.End(nil)
		})
	}
	all.Wait()
	if got := strings.Count(strings.Join(n.lines, "\n"), "ends"); got != 1 {
		t.Errorf("ended %d times: %q", got, n.lines)
	}
}
