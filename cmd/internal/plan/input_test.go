package plan

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/cmd/internal/run"
	"github.com/slicer-project/slicer/loadbalance/sim"
)

// What of a pipe is kept for reading twice is bounded, and gone afterwards.
func TestSpool(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	for _, c := range []struct {
		ctx  context.Context
		most int64
		want string
	}{
		{context.Background(), 5, ""},
		{context.Background(), 4, "standard input can be read once, and keeping it failed: it has more than 0 MiB; give --interval, or a file"},
		{cancelled, 5, "standard input can be read once, and keeping it failed: context canceled; give --interval, or a file"},
	} {
		in, err := openInput(stdin, strings.NewReader("trace"))
		if err != nil {
			t.Fatal(err)
		}
		var got [2]string
		read := func(i int) error {
			b, err := io.ReadAll(in.stream)
			got[i] = string(b)
			return err
		}
		err = in.twice(c.ctx, c.most, func() error { return read(0) })
		if c.want != "" {
			if err == nil || err.Error() != c.want {
				t.Errorf("%v, want %s", err, c.want)
			}
		} else if err = errors.Join(err, read(1)); err != nil || got != [2]string{"trace", "trace"} {
			t.Errorf("%q, %v", got, err)
		}
		in.close()
	}
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// An error is the command line's fault only if it is about a flag.
func TestExplain(t *testing.T) {
	var asJSON bool
	cmd := Simulate(&asJSON)
	cmd.SetContext(context.Background())
	for field, want := range map[string]string{
		"max_replicas": "--max-replicas: 9 is not allowed: want 1 to 3",
		"owners":       "algorithm static: owners: 9 is not allowed: want 1 to 3",
	} {
		err := explain(fmt.Errorf("algorithm static: %w", &assignment.FieldError{Field: field, Value: 9, Allowed: "1 to 3"}), cmd)
		var usage *run.UsageError
		if err.Error() != want || errors.As(err, &usage) != strings.HasPrefix(want, "--") {
			t.Errorf("%T %v, want %s", err, err, want)
		}
	}
	if err := explain(nil, &cobra.Command{}); err != nil {
		t.Error(err)
	}
}

// An interrupted replay does not wait for a decision.
func TestInterruptedDecision(t *testing.T) {
	src, err := sim.Workload{Name: "a", Tasks: 1}.Open()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	release := make(chan struct{})
	defer close(release)
	config := func(string) sim.Config {
		return sim.Config{Algorithm: "static", Tasks: 1, Clock: func() time.Time {
			cancel()
			<-release
			return time.Time{}
		}}
	}
	if _, err := replay(ctx, src, []string{"static", "static"}, config, func(sim.Window) {}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
