//go:build system

package versions

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment/store/etcdstore/etcdtest"
	"github.com/slicer-project/slicer/test/kit/process"
)

// since is the commit from which on parts of all versions have to work together.
const since = "8c1e4e180a7d2823043e98826e9d5fa3b77ac733"

// within bounds what is waited for, on a busy machine.
const within = time.Minute

func TestMain(m *testing.M) { os.Exit(process.Main(m)) }

// parts are the programs of which one at a time is of the other version.
var parts = map[string]string{
	"assigner": "cmd/assigner", "distributor": "cmd/distributor", "backupdist": "cmd/backupdist", "slicerctl": "cmd/slicerctl",
	"server": "test/examples/greeter/server", "client": "test/examples/greeter/client",
}

// TestPartsOfTwoVersions: a cluster of one version has one part of the other: it serves every
// call, also while a server is drained and while that part is brought to the version of the
// others.
func TestPartsOfTwoVersions(t *testing.T) {
	if git(t, "", "rev-parse", "--is-shallow-repository") == "true" {
		t.Skip("what the parts were at " + since + " is not in this clone: git fetch --unshallow")
	}
	dirs := map[string]string{"new": build(t, root(t)), "old": build(t, earlier(t))}
	etcd := etcdtest.NewCluster(t, 1).Endpoints()[0]
	other := map[string]string{"new": "old", "old": "new"}
	for odd := range parts {
		for version := range dirs {
			t.Run(fmt.Sprintf("%s %s among %s", other[version], odd, version), func(t *testing.T) {
				t.Parallel()
				c := &cluster{T: t, odd: odd, store: fmt.Sprintf("--store=etcd://%s/%s-%s", etcd, version, odd)}
				c.program = func(part string, upgraded bool) string {
					if part == odd && !upgraded {
						return filepath.Join(dirs[other[version]], part)
					}
					return filepath.Join(dirs[version], part)
				}
				c.run()
			})
		}
	}
}

// root is the top folder of the module.
func root(t *testing.T) string { return git(t, "", "rev-parse", "--show-toplevel") }

// earlier is a folder with what the module was at since.
func earlier(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	archive := filepath.Join(t.TempDir(), "earlier.tar")
	git(t, root(t), "archive", "--output="+archive, since)
	if out, err := exec.Command("tar", "-xf", archive, "-C", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		why := ""
		if exit, ok := err.(*exec.ExitError); ok {
			why = string(exit.Stderr)
		}
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, why)
	}
	return strings.TrimSpace(string(out))
}

// build builds the parts of the module in a folder, and returns where they are.
func build(t *testing.T, module string) string {
	t.Helper()
	dir := t.TempDir()
	args := []string{"build", "-buildvcs=false", "-ldflags=-w", "-o", dir + "/"}
	for _, pkg := range parts {
		args = append(args, "./"+pkg)
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = module
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

// cluster is one of each part, and the servers of a job.
type cluster struct {
	*testing.T
	odd                           string // the part of the other version
	program                       func(part string, upgraded bool) string
	store                         string
	assigner, distributor, backup string // addresses
	upgraded                      bool
}

func (c *cluster) run() {
	free := process.FreePorts(c, 3)
	c.assigner, c.distributor, c.backup = free[0], free[1], free[2]
	planes := map[string]*process.Process{}
	for _, part := range []string{"assigner", "distributor", "backupdist"} {
		planes[part] = c.plane(part)
	}
	file := filepath.Join(c.TempDir(), "job.yaml")
	if err := os.WriteFile(file, []byte("name: greeter\nheartbeat_timeout: 2s\nbalance:\n  interval: 1s\n"), 0o600); err != nil {
		c.Fatal(err)
	}
	c.eventually("the job is made", "slicerctl", "--server="+c.distributor, "job", "apply", "-f", file)
	servers := map[string]*process.Process{}
	for _, name := range []string{"g-0", "g-1"} {
		servers[name] = c.server(name)
	}
	c.eventually("all are greeted", "client", c.greet(c.distributor)...)

	stop := c.callers()
	servers["g-2"] = c.server("g-2")
	c.sees("g-0", "g-1", "g-2")
	servers["g-0"].End(within)
	c.sees("g-1", "g-2")

	c.upgraded = true
	switch p := planes[c.odd]; {
	case p != nil:
		p.End(within)
		c.plane(c.odd)
	case c.odd == "server":
		for _, name := range []string{"g-1", "g-2"} {
			servers[name].End(within)
			servers[name] = c.server(name)
			c.sees("g-1", "g-2")
		}
	}
	servers["g-3"] = c.server("g-3")
	c.sees("g-1", "g-2", "g-3")
	stop()
	c.eventually("all are greeted by what the Backup Distributor says", "client", c.greet(c.backup)...)
	if out, err := c.command("slicerctl", "--server="+c.distributor, "history", "greeter"); err != nil {
		c.Errorf("history: %v\n%s", err, out)
	}
}

func (c *cluster) plane(part string) *process.Process {
	args := map[string][]string{
		"assigner":    {"--listen=" + c.assigner, c.store},
		"distributor": {"--listen=" + c.distributor, "--assigners=" + c.assigner},
		"backupdist":  {"--listen=" + c.backup, c.store},
	}[part]
	return process.Start(c, part, nil, append([]string{c.program(part, c.upgraded), "--http="}, args...)...)
}

func (c *cluster) server(name string) *process.Process {
	return process.Start(c, name, nil, c.program("server", c.upgraded), "-task", name, "-slicer", c.distributor)
}

func (c *cluster) command(part string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(c.Context(), within)
	defer cancel()
	out, err := exec.CommandContext(ctx, c.program(part, false), args...).CombinedOutput()
	return string(out), err
}

func (c *cluster) eventually(what, part string, args ...string) {
	c.Helper()
	process.Eventually(c, within, what, func() error {
		out, err := c.command(part, args...)
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// sees waits until slicerctl says that these tasks run, and that no other does, and own something.
func (c *cluster) sees(tasks ...string) {
	c.Helper()
	process.Eventually(c, within, fmt.Sprint("the tasks are ", tasks), func() error {
		out, err := c.command("slicerctl", "--server="+c.distributor, "inspect", "greeter")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		for i := range 4 {
			name, wanted := fmt.Sprint("g-", i), false
			for _, task := range tasks {
				wanted = wanted || task == name
			}
			if runs(out, name) != wanted {
				return fmt.Errorf("%s runs: %t, in\n%s", name, !wanted, out)
			}
		}
		return nil
	})
}

// runs reports whether inspect's table has a task that runs.
func runs(table, task string) bool {
	for line := range strings.Lines(table) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == task && strings.Contains(line, "running") {
			return true
		}
	}
	return false
}

// greet are the arguments of a client that has 40 people greeted.
func (c *cluster) greet(slicer string) []string {
	args := []string{"-slicer", slicer}
	for i := range 40 {
		args = append(args, fmt.Sprint("person-", i))
	}
	return args
}

// callers has clients call until stop is called; no call may fail.
func (c *cluster) callers() (stop func()) {
	ctx, cancel := context.WithCancel(c.Context())
	var wg sync.WaitGroup
	calls := 0
	wg.Go(func() {
		for ; ctx.Err() == nil; calls++ {
			if out, err := c.command("client", c.greet(c.distributor)...); err != nil {
				c.Errorf("call %d: %v\n%s", calls, err, out)
			}
		}
	})
	return func() {
		cancel()
		wg.Wait()
		if calls == 0 {
			c.Error("no calls")
		}
		c.Logf("%d times 40 calls", calls)
	}
}
