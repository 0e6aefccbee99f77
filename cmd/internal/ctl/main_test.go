package ctl_test

import (
	"bytes"
	"context"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store/pebblestore"
	"github.com/slicer-project/slicer/assignment/waittest"
	"github.com/slicer-project/slicer/cmd/internal/ctl"
	"github.com/slicer-project/slicer/cmd/internal/plane"
	"github.com/slicer-project/slicer/cmd/internal/run"
	"github.com/slicer-project/slicer/slicelet"
)

func TestMain(m *testing.M) {
	for _, env := range []string{ctl.ServerEnv, ctl.CertEnv, ctl.KeyEnv, ctl.CAEnv, ctl.ContextEnv, ctl.ConfigEnv} {
		os.Unsetenv(env)
	}
	os.Setenv("XDG_CONFIG_HOME", "/nonexistent") // not that of the developer
	os.Setenv("USER", "ada")
	waittest.SideBySide()
	goleak.VerifyTestMain(m)
}

// limit bounds every wait of these tests; nothing is asserted on it.
const limit = 2 * time.Minute

// world is a real control plane with slicerctl in front of it.
type world struct {
	t                   *testing.T
	distributor, backup string
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return lis
}

func newWorld(t *testing.T) *world {
	t.Helper()
	db, err := pebblestore.Open(t.TempDir(), pebblestore.Config{Timeout: waittest.Patience})
	if err != nil {
		t.Fatal(err)
	}
	d, b := listen(t), listen(t)
	p, err := plane.Start(plane.Config{ID: "a0", Store: db, Distributor: d, Backup: b, Credentials: insecure.NewCredentials()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	w := &world{t: t, distributor: d.Addr().String(), backup: b.Addr().String()}
	w.eventually("the control plane is ready", func() bool { return p.Ready() == nil })
	return w
}

// eventually polls a condition that has no event of its own.
func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for !ok() {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			w.t.Fatalf("not within %s: %s\n%s", limit, what, w.ctl("inspect", "web").out)
		}
	}
}

type result struct {
	code      int
	out, errs string
	// told is the line that says where something is about to be changed, before errs.
	told string
}

// ctlAt runs slicerctl against a server, with a standard input.
func (w *world) ctlAt(server, in string, args ...string) result {
	var out, errs bytes.Buffer
	code := run.Execute(context.Background(), ctl.New(), append([]string{"--server", server, "--timeout", limit.String()}, args...), strings.NewReader(in), &out, &errs)
	r := result{code: code, out: out.String(), errs: errs.String()}
	if line := "slicerctl: server " + server + "\n"; strings.HasPrefix(r.errs, line) {
		r.told, r.errs = line, r.errs[len(line):]
	}
	return r
}

func (w *world) ctl(args ...string) result { return w.ctlAt(w.distributor, "", args...) }

// must runs slicerctl, which has to succeed, and returns what it printed.
func (w *world) must(args ...string) string {
	w.t.Helper()
	r := w.ctl(args...)
	if r.code != 0 {
		w.t.Fatalf("slicerctl %s: exit %d: %s", strings.Join(args, " "), r.code, r.errs)
	}
	return r.out
}

func (w *world) apply(yaml string) {
	w.t.Helper()
	if r := w.ctlAt(w.distributor, yaml, "job", "apply", "-f", "-"); r.code != 0 {
		w.t.Fatalf("apply: exit %d: %s", r.code, r.errs)
	}
}

// tasks starts servers of a job and waits until each owns something.
func (w *world) tasks(job string, names ...string) map[string]*slicelet.Slicelet {
	w.t.Helper()
	all := map[string]*slicelet.Slicelet{}
	for i, n := range names {
		s, err := slicelet.New(slicelet.Config{Job: job, Task: n, Address: "127.0.0.1:" + string(rune('1'+i)), Distributors: []string{w.distributor}, Backups: []string{w.backup}})
		if err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(func() { s.Close() })
		all[n] = s
	}
	for n, s := range all {
		w.eventually(n+" owns slices", func() bool { return len(s.Slices()) > 0 })
	}
	w.eventually("all hold one generation", func() bool {
		seen := map[assignment.Generation]bool{}
		for _, s := range all {
			seen[s.Assignment().Generation()] = true
		}
		return len(seen) == 1
	})
	return all
}

// lines collects what a command prints while it runs.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Split(strings.TrimSuffix(l.b.String(), "\n"), "\n")
}
