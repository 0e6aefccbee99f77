package greeter

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/waittest"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/test/kit/bed"
	programs "github.com/slicer-project/slicer/test/kit/process"
)

// maxAdded and maxLines are what the documentation promises.
const maxAdded, maxLines = 10, 45

func TestLines(t *testing.T) {
	for _, side := range []string{"server", "client"} {
		plain, sharded := lines(t, "plain", side), lines(t, side)
		if len(sharded) > maxLines {
			t.Errorf("%s has %d lines, not %d", side, len(sharded), maxLines)
		}
		left := map[string]int{}
		for _, line := range plain {
			left[line]++
		}
		added := 0
		for _, line := range sharded {
			if left[line]--; left[line] < 0 && !strings.HasPrefix(line, "//") {
				added++
			}
		}
		t.Logf("%s: %d lines added or changed, of %d", side, added, len(sharded))
		if added == 0 || added > maxAdded {
			t.Errorf("%s: %d lines added, limit %d", side, added, maxAdded)
		}
	}
}

func lines(t *testing.T, folder ...string) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(append(folder, "main.go")...))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimRight(string(data), "\n"), "\n")
}

// TestPrograms runs the sharded programs as their users would.
func TestPrograms(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	programs.BuildIn(t, bin, "./server", "./client")
	ctx, cancel := context.WithTimeout(t.Context(), 3*waittest.Patience)
	defer cancel()
	plane := bed.Start(t, bed.Config{})
	// Keys stay where they are while the servers do: it compares the servers that answer
	// with the owners.
	cfg := assignment.JobConfig{Name: job, Balance: assignment.BalanceConfig{Interval: time.Hour}}
	if err := plane.PutJob(ctx, cfg.WithDefaults()); err != nil {
		t.Fatal(err)
	}
	slicer := plane.Addrs()[0]
	var servers []*exec.Cmd
	for i := range 2 {
		cmd := exec.CommandContext(ctx, filepath.Join(bin, "server"), "-task", fmt.Sprintf("greeter-%d", i), "-slicer", slicer)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if cmd.ProcessState == nil {
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
			}
		})
		servers = append(servers, cmd)
	}
	ck, err := clerk.New(clerk.Config{Job: job, Distributors: []string{slicer}})
	if err != nil {
		t.Fatal(err)
	}
	bed.CloseAtEnd(t, ck.Close)
	await(t, "both servers own slices", func() bool { return owning(ck.Assignment()) == 2 })

	var names []string
	for i := range 40 {
		names = append(names, fmt.Sprintf("person-%d", i))
	}
	// An owner that cannot be connected within seconds, as on a machine that is short of
	// CPU, is not waited for; so they are asked until the owners answer.
	greet := func() {
		t.Helper()
		var wrong string
		for end := time.Now().Add(waittest.Patience); time.Now().Before(end); {
			out, err := exec.CommandContext(ctx, filepath.Join(bin, "client"), append([]string{"-slicer", slicer}, names...)...).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if wrong = greeted(string(out), names, ck); wrong == "" {
				return
			}
		}
		t.Error(wrong)
	}
	greet()
	// One goes, as its orchestrator would have it, and its health service tells.
	told := notServing(t, ctx, addressOf(ck.Assignment(), "greeter-0"))
	if err := servers[0].Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := servers[0].Wait(); err != nil {
		t.Error(err)
	}
	if err := <-told; err != nil {
		t.Errorf("its health service did not say that it does not serve any more: %v", err)
	}
	await(t, "one server owns all", func() bool { return owning(ck.Assignment()) == 1 })
	greet()
}

// greeted returns what is wrong with greetings: each is to come from the owner of
// the name.
func greeted(out string, names []string, ck *clerk.Clerk) string {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != len(names) {
		return fmt.Sprintf("%d greetings for %d names", len(lines), len(names))
	}
	for i, line := range lines {
		if want := fmt.Sprintf("hello %s, this is %s", names[i], ck.Lookup(names[i]).At(0).Address); line != want {
			return fmt.Sprintf("%q, want %q", line, want)
		}
	}
	return ""
}

func addressOf(a *assignment.Assignment, task string) string {
	pos, _ := a.Position(task)
	return a.Task(pos).Address
}

// notServing tells when a server's health service says so, or why it has not. It
// returns when the service has said that it serves.
func notServing(t *testing.T, ctx context.Context, address string) <-chan error {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	bed.CloseAtEnd(t, conn.Close)
	ctx, cancel := context.WithCancel(ctx)
	t.Cleanup(cancel)
	w, err := healthv1.NewHealthClient(conn).Watch(ctx, &healthv1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := w.Recv(); err != nil || m.GetStatus() != healthv1.HealthCheckResponse_SERVING {
		t.Fatalf("%v, %v", m, err)
	}
	told := make(chan error, 1)
	go func() {
		defer cancel() // or the server, which ends its RPCs, would wait for this one
		m, err := w.Recv()
		if err == nil && m.GetStatus() != healthv1.HealthCheckResponse_NOT_SERVING {
			err = fmt.Errorf("it says %s", m.GetStatus())
		}
		told <- err
	}()
	return told
}
