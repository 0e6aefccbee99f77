package clerk

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/subscriber/subscribertest"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

const (
	distributor = "10.0.0.1:1"
	backup      = "10.0.1.1:1"
)

var tasks = []assignment.Task{subscribertest.Task("a", 0), subscribertest.Task("b", 1)}

func config(n *subscribertest.Network) Config {
	return Config{Job: "job", Distributors: []string{distributor}, Backups: []string{backup}, DialOptions: n.DialOptions()}
}

func header(g assignment.Generation) assignment.Header {
	return assignment.Header{Job: "job", StoreID: 1, Generation: g}
}

func TestLookup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := subscribertest.NewNetwork()
		cfg := config(n)
		r := prometheus.NewRegistry()
		cfg.Registerer = r
		c, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if c.Lookup("k").Len() != 0 || c.Assignment() != nil {
			t.Error("owners without an assignment")
		}
		server := n.Start(distributor)
		defer server.Stop()
		first := subscribertest.Equal(t, nil, header(1), tasks, 0, 1, 0, 1)
		server.Put(first)
		if err := c.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"", "k", "user/4711", strings.Repeat("long", 1<<18)} {
			want := first.Lookup(assignment.KeyOf(key)).At(0).Name
			if got := c.Lookup(key); got.Len() != 1 || got.At(0).Name != want {
				t.Errorf("Lookup(%.10q) is not %s", key, want)
			}
		}
		changed := c.Changed()
		server.Put(subscribertest.Equal(t, first, header(2), tasks, 1, 1, 1, 1))
		<-changed
		if got := c.Lookup("k").At(0).Name; got != "b" || c.Assignment().Generation() != 2 {
			t.Errorf("after the change k belongs to %s", got)
		}
		want := `
# HELP slicer_clerk_selections_total Lookups, by whether they found an owner.
# TYPE slicer_clerk_selections_total counter
slicer_clerk_selections_total{clerk="0",job="job",result="found"} 5
slicer_clerk_selections_total{clerk="0",job="job",result="not_found"} 1
`
		if err := testutil.GatherAndCompare(r, strings.NewReader(want), "slicer_clerk_selections_total"); err != nil {
			t.Error(err)
		}
		if problems, err := testutil.GatherAndLint(r); err != nil || len(problems) > 0 {
			t.Errorf("%v, %v", problems, err)
		}
		if err := errors.Join(c.Close(), c.Close()); err != nil {
			t.Error(err)
		}
		if c.Lookup("k").Len() != 1 {
			t.Error("Lookup forgot after Close")
		}
		if left, _ := r.Gather(); len(left) != 0 {
			t.Errorf("%d metrics left after Close", len(left))
		}
	})
}

// A clerk that starts while only the Backup Distributor lives, and then one that
// starts when nothing does.
func TestStartWithPartsDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := subscribertest.NewNetwork()
		cfg := config(n)
		cfg.CacheFile = filepath.Join(t.TempDir(), "cache")
		server := n.Start(backup)
		server.Say(&slicerv1.Status{})
		server.Put(subscribertest.Equal(t, nil, header(1), tasks, 0, 1))
		for _, alive := range []string{"the backup", "nothing"} {
			c, err := New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			if err := c.Ready(t.Context()); err != nil || c.Lookup("k").Len() != 1 {
				t.Errorf("with %s alive: %v", alive, err)
			}
			if d := time.Since(began); d > 2*time.Second {
				t.Errorf("with %s alive it took %s of virtual time", alive, d)
			}
			if alive == "the backup" {
				server.Stop()
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestReadySaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := subscribertest.NewNetwork()
		c, err := New(config(n))
		if err != nil {
			t.Fatal(err)
		}
		ready := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
			defer cancel()
			return c.Ready(ctx)
		}
		if err := ready(); !errors.Is(err, ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with no server there: %v", err)
		}
		server := n.Start(distributor)
		defer server.Stop()
		server.Refuse(status.Error(codes.NotFound, "no such job"))
		if err := ready(); !errors.Is(err, ErrUnknownJob) {
			t.Errorf("of an unknown job: %v", err)
		}
		server.Refuse(status.Error(codes.PermissionDenied, "identity x may not watch job job"))
		if err := ready(); !errors.Is(err, ErrNotAllowed) || !strings.Contains(err.Error(), "identity x may not watch job job") {
			t.Errorf("without the right: %v", err)
		}
		server.Refuse(nil)
		for server.Streams() == 0 {
			<-server.Changed()
		}
		if err := ready(); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "no assignment yet") {
			t.Errorf("of a job without tasks: %v", err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := ready(); !errors.Is(err, ErrClosed) {
			t.Errorf("closed: %v", err)
		}
	})
}

// TestWarns: without a Logger what is wrong is heard of all the same, and only that.
func TestWarns(t *testing.T) {
	for _, logger := range []*slog.Logger{nil, slog.New(slog.DiscardHandler)} {
		lines := subscribertest.DefaultLog(t)
		synctest.Test(t, func(t *testing.T) {
			n := subscribertest.NewNetwork()
			server := n.Start(distributor)
			defer server.Stop()
			server.Refuse(status.Error(codes.NotFound, "as told"))
			c, err := New(Config{Job: "job", Distributors: []string{distributor}, DialOptions: n.DialOptions(), Logger: logger})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
		switch got := lines(); {
		case logger != nil && len(got) > 0:
			t.Errorf("silenced, and it says %q", got)
		case logger == nil && (len(got) != 1 || !strings.Contains(got[0], "level=WARN") || !strings.Contains(got[0], ErrUnknownJob.Error())):
			t.Errorf("of an unknown job it says %q", got)
		}
	}
}

func TestConfigRefused(t *testing.T) {
	var fe *assignment.FieldError
	if _, err := New(Config{Job: "a/b", Distributors: []string{"h:1"}}); !errors.As(err, &fe) || fe.Field != "job name" {
		t.Errorf("job name with a slash: %v", err)
	}
	if _, err := New(Config{Job: "job"}); !errors.As(err, &fe) || fe.Field != "distributors" {
		t.Errorf("no server to ask: %v", err)
	}
	for _, n := range []int{-1, maxOutstanding + 1} {
		if _, err := New(Config{Job: "job", Distributors: []string{"h:1"}, MaxOutstanding: n}); !errors.As(err, &fe) || fe.Field != "max_outstanding" {
			t.Errorf("max_outstanding %d: %v", n, err)
		}
	}
	if _, err := New(Config{Job: "job", Distributors: []string{"h:1"}, Criticality: 9}); !errors.As(err, &fe) || fe.Field != "criticality" {
		t.Errorf("a criticality that there is none of: %v", err)
	}
}

func TestLookupDoesNotAllocate(t *testing.T) {
	c := &Clerk{tally: newTally()}
	c.newest.Store(subscribertest.Equal(t, nil, header(1), tasks, 0, 1))
	if n := testing.AllocsPerRun(1000, func() { c.Lookup("user/4711") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
