package webapp

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/waittest"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/test/kit/bed"
	"github.com/slicer-project/slicer/test/kit/process"
)

// maxLines is what the documentation promises.
const maxLines = 40

func TestLines(t *testing.T) {
	for _, program := range []string{"server", "client"} {
		data, err := os.ReadFile(filepath.Join(program, "main.go"))
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(data), "\n"); n > maxLines {
			t.Errorf("%s has %d lines, limit %d", program, n, maxLines)
		}
	}
}

// TestPrograms runs the programs as their users would: the visits of a user are
// counted by one server, whether they come from the client or by slicerproxy.
func TestPrograms(t *testing.T) {
	bin := t.TempDir()
	process.BuildIn(t, bin, "./server", "./client", "../../../cmd/slicerproxy")
	ctx, cancel := context.WithTimeout(t.Context(), 3*waittest.Patience)
	defer cancel()
	plane := bed.Start(t, bed.Config{})
	// Once both servers own something nothing moves users and their counts: neither the
	// balance, nor that a server warms up.
	cfg := assignment.JobConfig{Name: "visits", WarmUp: assignment.NoWarmUp, Balance: assignment.BalanceConfig{Interval: time.Hour, MoveBudget: 1}}
	if err := plane.PutJob(ctx, cfg.WithDefaults()); err != nil {
		t.Fatal(err)
	}
	slicer := plane.Addrs()[0]
	run := func(program string, args ...string) (*exec.Cmd, io.Reader) {
		cmd := exec.CommandContext(ctx, filepath.Join(bin, program), args...)
		errs, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if cmd.ProcessState == nil {
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
			}
		})
		return cmd, errs
	}
	first, _ := run("server", "-task", "visits-0", "-slicer", slicer)
	run("server", "-task", "visits-1", "-slicer", slicer)
	_, log := run("slicerproxy", "--config", "rules.yaml", "--distributors", slicer, "--listen", "127.0.0.1:0", "--http", "", "--log-format", "json")
	var proxy string
	for lines := bufio.NewScanner(log); proxy == "" && lines.Scan(); {
		var m struct{ Msg, Listen string }
		if json.Unmarshal(lines.Bytes(), &m) == nil && m.Msg == "serving" {
			proxy = "http://" + m.Listen
		}
	}
	go func() { _, _ = io.Copy(io.Discard, log) }()

	ck, err := clerk.New(clerk.Config{Job: "visits", Distributors: []string{slicer}})
	if err != nil {
		t.Fatal(err)
	}
	bed.CloseAtEnd(t, ck.Close)
	await(ctx, t, ck, 2)
	var users []string
	for i := range 40 {
		users = append(users, fmt.Sprintf("user-%d", i))
	}
	visit := func(n int) {
		t.Helper()
		var want, got []string
		for _, u := range users {
			want = append(want, fmt.Sprintf("visit %d of %s, at %s", n, u, ck.Lookup(u).At(0).Name))
		}
		if n%2 == 1 {
			out, err := exec.CommandContext(ctx, filepath.Join(bin, "client"), append([]string{"-slicer", slicer}, users...)...).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			got = strings.Split(strings.TrimSpace(string(out)), "\n")
		} else {
			for _, u := range users {
				got = append(got, get(t, proxy+"/users/"+u+"/visits"))
			}
		}
		for i := range want {
			if i >= len(got) || got[i] != want[i] {
				t.Errorf("visit %d: %q, want %q", n, got[min(i, len(got)-1)], want[i])
			}
		}
	}
	for n := 1; n <= 4; n++ {
		visit(n)
	}
	if got := get(t, proxy+"/"); !strings.HasPrefix(got, "slicer: no rule fits") {
		t.Errorf("without a rule: %s", got)
	}
	// One goes, as its orchestrator would have it: the other has all, in its turn.
	if err := first.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := first.Wait(); err != nil {
		t.Error(err)
	}
	await(ctx, t, ck, 1)
	for _, u := range users {
		if got := get(t, proxy+"/users/"+u+"/visits"); !strings.HasSuffix(got, " of "+u+", at visits-1") {
			t.Errorf("after the drain: %s", got)
		}
	}
}

// await waits until so many tasks own something.
func await(ctx context.Context, t *testing.T, ck *clerk.Clerk, tasks int) {
	t.Helper()
	for {
		changed := ck.Changed()
		owners := map[string]bool{}
		if a := ck.Assignment(); a != nil {
			for _, r := range a.All() {
				owners[r.At(0).Name] = true
			}
		}
		if len(owners) == tasks {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("%d tasks own something, want %d", len(owners), tasks)
		}
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	defer http.DefaultClient.CloseIdleConnections()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(body))
}
