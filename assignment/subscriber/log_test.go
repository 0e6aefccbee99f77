package subscriber

import (
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/subscriber/subscribertest"
)

func TestLoggerOrDefault(t *testing.T) {
	lines := subscribertest.DefaultLog(t)
	mine := slog.New(slog.NewTextHandler(io.Discard, nil))
	if LoggerOrDefault(mine) != mine {
		t.Error("a logger that is named is not used")
	}
	log := LoggerOrDefault(nil).With("job", "j").WithGroup("g")
	log.Debug("no")
	log.Info("no")
	log.Warn("yes", "a", 1)
	log.Error("yes")
	got := lines()
	if len(got) != 2 || !strings.Contains(got[0], "level=WARN msg=yes job=j g.a=1") || !strings.Contains(got[1], "level=ERROR") {
		t.Errorf("logged %q", got)
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelError})))
	if log := LoggerOrDefault(nil); log.Enabled(t.Context(), slog.LevelWarn) || !log.Enabled(t.Context(), slog.LevelError) {
		t.Error("the level of the default is lowered")
	}
}

// TestWarnings: of what goes wrong there is a warning, and not one each time that it
// is tried again.
func TestWarnings(t *testing.T) {
	refused := func(code codes.Code) func(*testing.T, *subscribertest.Network) func(*Subscriber) {
		return func(_ *testing.T, n *subscribertest.Network) func(*Subscriber) {
			server := n.Start(d1)
			server.Refuse(status.Error(code, "as told"))
			return func(*Subscriber) {
				defer server.Stop()
				time.Sleep(time.Minute)
			}
		}
	}
	serving := func(t *testing.T, n *subscribertest.Network) *subscribertest.Server {
		server := n.Start(d1)
		server.Put(subscribertest.Equal(t, nil, assignment.Header{Job: "job", StoreID: 1, Generation: 1}, []assignment.Task{subscribertest.Task("a", 0)}, 0))
		return server
	}
	for _, x := range []struct {
		name string
		// there is called before the subscriber starts, which dials at once; what
		// it returns, after.
		there func(*testing.T, *subscribertest.Network) (happens func(*Subscriber))
		want  []string // in the lines, one each
	}{
		{"nothing there", func(*testing.T, *subscribertest.Network) func(*Subscriber) {
			return func(*Subscriber) { time.Sleep(time.Minute) }
		}, []string{"distributor " + d1, "backup " + b1}},
		{"unknown job", refused(codes.NotFound), []string{ErrUnknownJob.Error()}},
		{"not allowed", refused(codes.PermissionDenied), []string{ErrNotAllowed.Error()}},
		{"name taken", refused(codes.AlreadyExists), []string{ErrTaskNameTaken.Error()}},
		{"served for a moment each time", func(t *testing.T, n *subscribertest.Network) func(*Subscriber) {
			server := serving(t, n)
			return func(s *Subscriber) {
				defer server.Stop()
				for range 10 {
					server.Refuse(nil)
					await(t, s, "a distributor", holds(1, Distributor))
					time.Sleep(time.Second)
					server.Refuse(status.Error(codes.AlreadyExists, "as told"))
					time.Sleep(time.Second)
				}
			}
		}, []string{ErrTaskNameTaken.Error()}},
		{"lost now and then", func(t *testing.T, n *subscribertest.Network) func(*Subscriber) {
			server := serving(t, n)
			return func(s *Subscriber) {
				for range 10 {
					await(t, s, "a distributor", holds(1, Distributor))
					time.Sleep(time.Minute)
					server.Stop()
					server = serving(t, n)
				}
				server.Stop()
			}
		}, nil},
	} {
		t.Run(x.name, func(t *testing.T) {
			lines := subscribertest.DefaultLog(t)
			synctest.Test(t, func(t *testing.T) {
				n := subscribertest.NewNetwork()
				happens := x.there(t, n)
				s := start(t, n, func(c *Config) { c.Logger, c.Distributors = LoggerOrDefault(nil), []string{d1} })
				happens(s)
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
			got := lines()
			for i, line := range got {
				if i < len(x.want) && (!strings.Contains(line, "level=WARN") || !strings.Contains(line, x.want[i])) {
					t.Errorf("line %d is %q, want %q in it", i, line, x.want[i])
				}
			}
			if len(got) != len(x.want) {
				t.Errorf("%d lines, want %d:\n%s", len(got), len(x.want), strings.Join(got, "\n"))
			}
		})
	}
}
