package run

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/access"
)

// policyOf has one administrator.
func policyOf(admin string) string { return "admin: [spiffe://corp/" + admin + "]\n" }

// value is that of a counter or gauge.
func value(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			m := f.GetMetric()[0]
			return m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

// A file is read again when it, or what a link leads to, has changed, once it is
// not being written any more. One that is no good leaves the former in force, with one line
// in the log and one count for each change.
func TestPolicyIsReadAgain(t *testing.T) {
	dir := t.TempDir()
	path, link, other := filepath.Join(dir, "policy"), filepath.Join(dir, "link"), filepath.Join(dir, "other")
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(path, policyOf("a"))
	write(other, policyOf("other"))
	if err := os.Symlink("policy", link); err != nil {
		t.Fatal(err)
	}
	relink := func(to string) {
		t.Helper()
		next := filepath.Join(dir, "next")
		if err := os.Symlink(to, next); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, link); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		var log LockedBuffer
		reg := prometheus.NewRegistry()
		f, err := openPolicy(link, slog.New(slog.NewTextHandler(&log, nil)), reg)
		if err != nil {
			t.Fatal(err)
		}
		quit, done := make(chan struct{}), make(chan struct{})
		go func() { defer close(done); f.watch(quit) }()
		defer func() { close(quit); <-done }()
		time.Sleep(policyPoll / 2) // between two looks
		step := func(what, admin string, errors, failures int) {
			t.Helper()
			synctest.Wait()
			policy, _ := f.rights.Policy()
			if _, ok := policy.May(access.Question{Identity: access.Identity("spiffe://corp/" + admin), Verb: assignment.Configure, Job: "job"}); !ok {
				t.Errorf("%s: %s is no administrator", what, admin)
			}
			if n := strings.Count(log.String(), "the policy in force stays"); n != errors {
				t.Errorf("%s: %d lines of errors, want %d\n%s", what, n, errors, log.String())
			}
			if n := value(t, reg, "slicer_access_policy_reload_failures_total"); n != float64(failures) {
				t.Errorf("%s: %v failures, want %d", what, n, failures)
			}
			f.mu.Lock()
			stale := 0.
			if f.bad != nil {
				stale = 1
			}
			f.mu.Unlock()
			if n := value(t, reg, "slicer_access_policy_stale"); n != stale {
				t.Errorf("%s: stale is %v, want %v", what, n, stale)
			}
		}
		step("at first", "a", 0, 0)
		loaded := value(t, reg, "slicer_access_policy_loaded_timestamp_seconds")

		write(path, policyOf("bb"))
		time.Sleep(policyPoll)
		write(path, policyOf("ccc"))
		time.Sleep(policyPoll)
		step("while it is being written", "a", 0, 0)
		time.Sleep(policyPoll)
		step("when it is written", "ccc", 0, 0)
		if value(t, reg, "slicer_access_policy_loaded_timestamp_seconds") <= loaded {
			t.Error("the time of loading stays")
		}
		relink("other")
		time.Sleep(2 * policyPoll)
		step("when a link leads elsewhere", "other", 0, 0)
		relink("policy")
		time.Sleep(2 * policyPoll)
		step("and back", "ccc", 0, 0)

		write(path, "admin: {}\n")
		time.Sleep(10 * policyPoll)
		step("a bad one", "ccc", 1, 1)
		f.reread() // SIGHUP
		step("a bad one again", "ccc", 2, 1)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * policyPoll)
		step("none", "ccc", 3, 2)
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * policyPoll)
		step("a pipe", "ccc", 4, 3)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		write(path, strings.Repeat("#", maxPolicySize)+"\n")
		f.reread()
		step("too much", "ccc", 5, 4)
		next := filepath.Join(dir, "next")
		write(next, policyOf("dddd"))
		if err := os.Rename(next, path); err != nil {
			t.Fatal(err)
		}
		f.reread()
		step("SIGHUP", "dddd", 5, 4)

		// The same inode, size and times, and another content.
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		write(path, policyOf("eeee"))
		if err := os.Chtimes(path, info.ModTime(), info.ModTime()); err != nil {
			t.Fatal(err)
		}
		if now, err := os.Stat(path); err != nil || !os.SameFile(now, info) || now.Size() != info.Size() || !now.ModTime().Equal(info.ModTime()) {
			t.Fatalf("%v, %v: the file can be told from before", now, err)
		}
		time.Sleep(2 * policyPoll)
		step("with the times of before", "eeee", 5, 4)
	})
}
