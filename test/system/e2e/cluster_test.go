package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/slicer-project/slicer/assignment/waittest"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"github.com/slicer-project/slicer/test/kit/process"
)

const (
	job = "cache"
	// within is how long anything may take on a busy machine.
	within = waittest.Patience
)

// jobFile asks for quick reactions, so that the test is short.
const jobFile = `name: cache
max_replicas: 2
heartbeat_timeout: 2s
balance:
  interval: 1s
`

// cluster is a whole Slicer on a three-process etcd.
type cluster struct {
	t                                       testing.TB
	dir                                     string
	etcdAddrs, assignerAddrs, distAddrs     []string
	backupAddr                              string
	etcds, assigners, distributors, backups []*process.Process
	servers                                 map[string]*process.Process
	serverAddrs                             map[string]string
	clients                                 []*clientProcess
}

func startCluster(t testing.TB) *cluster {
	t.Helper()
	process.BuildSlicer(t)
	c := &cluster{t: t, dir: t.TempDir(), servers: map[string]*process.Process{}, serverAddrs: map[string]string{}}
	addrs := process.FreePorts(t, 3+3+2+2+1)
	c.etcdAddrs, c.assignerAddrs, c.distAddrs, c.backupAddr = addrs[0:3], addrs[6:8], addrs[8:10], addrs[10]
	c.etcds = process.Etcd{Dir: c.dir, Clients: c.etcdAddrs, Peers: addrs[3:6], Flags: []string{"--log-level=warn"}}.Start(t)
	store := "--store=etcd://" + strings.Join(c.etcdAddrs, ",") + "/slicer"
	common := []string{"--log-level=debug", "--http="}
	for i, a := range c.assignerAddrs {
		c.assigners = append(c.assigners, process.Start(t, fmt.Sprintf("assigner-%d", i), nil,
			append([]string{process.Program("assigner"), "--id", assignerID(i), "--listen", a, store}, common...)...))
	}
	for i, a := range c.distAddrs {
		c.distributors = append(c.distributors, process.Start(t, fmt.Sprintf("distributor-%d", i), nil,
			append([]string{process.Program("distributor"), "--id", fmt.Sprintf("d%d", i), "--listen", a,
				"--assigners", strings.Join(c.assignerAddrs, ",")}, common...)...))
	}
	c.backups = append(c.backups, process.Start(t, "backupdist", nil,
		append([]string{process.Program("backupdist"), "--listen", c.backupAddr, store}, common...)...))

	file := filepath.Join(c.dir, "job.yaml")
	if err := os.WriteFile(file, []byte(jobFile), 0o600); err != nil {
		t.Fatal(err)
	}
	process.Eventually(t, within, "apply the job", func() error {
		_, err := c.ctl(0, "job", "apply", "-f", file)
		return err
	})
	return c
}

func assignerID(i int) string { return fmt.Sprintf("a%d", i) }

// ctl runs slicerctl against a distributor and returns its standard output.
func (c *cluster) ctl(distributor int, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, process.Program("slicerctl"), append([]string{"--server", c.distAddrs[distributor]}, args...)...)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("slicerctl %s: %w: %s", strings.Join(args, " "), err, exit.Stderr)
	}
	return string(out), err
}

// starter is process.Start or process.StartPiped.
type starter = func(testing.TB, string, []string, ...string) *process.Process

func (c *cluster) app(role, name string, run starter, cfg appConfig) *process.Process {
	cfg.Job, cfg.Name = job, name
	cfg.Distributors, cfg.Backups = c.distAddrs, []string{c.backupAddr}
	data, err := json.Marshal(cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	return run(c.t, name, []string{roleEnv + "=" + role, configEnv + "=" + string(data)}, os.Args[0])
}

func (c *cluster) startServer(name string) {
	c.serverAddrs[name] = process.FreePorts(c.t, 1)[0]
	c.servers[name] = c.app("server", name, process.Start, appConfig{Address: c.serverAddrs[name]})
}

// clientProcess is a client that keeps calling until the test ends.
type clientProcess struct {
	t testing.TB
	*process.Process
	lines *bufio.Scanner
}

func (c *cluster) startClient(name, cacheFile string) *clientProcess {
	p := c.app("client", name, process.StartPiped, appConfig{CallsPerSecond: 150, CacheFile: cacheFile})
	return &clientProcess{c.t, p, bufio.NewScanner(p.Out)}
}

// counts asks the client how far it is.
func (p *clientProcess) counts() counts {
	p.t.Helper()
	var n counts
	if _, err := p.In.Write([]byte("\n")); err != nil {
		p.t.Fatalf("%s is gone: %v\n%s", p.Name, err, p.LastWords())
	}
	if !p.lines.Scan() {
		p.t.Fatalf("%s is gone: %v\n%s", p.Name, p.lines.Err(), p.LastWords())
	}
	if err := json.Unmarshal(p.lines.Bytes(), &n); err != nil {
		p.t.Fatalf("%s: %v", p.Name, err)
	}
	return n
}

func (c *cluster) total() (sum counts) {
	for _, p := range c.clients {
		n := p.counts()
		sum.Calls += n.Calls
		sum.NoAssignment += n.NoAssignment
		sum.Failed += n.Failed
		sum.Retried += n.Retried
		sum.Misrouted += n.Misrouted
	}
	return sum
}

// during reports what clients saw while f ran, and that none of it was for want
// of an assignment. It returns the counts of the phase.
func (c *cluster) during(phase string, f func()) counts {
	c.t.Helper()
	before, begin := c.total(), time.Now()
	f()
	after := c.total()
	d := counts{Calls: after.Calls - before.Calls, NoAssignment: after.NoAssignment - before.NoAssignment,
		Failed: after.Failed - before.Failed, Retried: after.Retried - before.Retried, Misrouted: after.Misrouted - before.Misrouted}
	c.t.Logf("%-44s %5.1fs %6d calls %3d retried %4d misrouted %3d failed %3d without assignment",
		phase, time.Since(begin).Seconds(), d.Calls, d.Retried, d.Misrouted, d.Failed, d.NoAssignment)
	if d.NoAssignment != 0 {
		c.t.Errorf("%s: %d calls found no assignment", phase, d.NoAssignment)
	}
	if d.Calls == 0 {
		c.t.Errorf("%s: no calls", phase)
	}
	return d
}

// inspect asks one process (an assigner or a distributor) about the job.
func inspect(addr string) (*slicerv1.InspectJobResponse, error) {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	return slicerv1.NewAdminServiceClient(conn).InspectJob(ctx, &slicerv1.InspectJobRequest{Job: job})
}

// preferred returns which assigner says that it is preferred and has a Distributor.
func (c *cluster) preferred() (int, error) {
	for i, a := range c.assignerAddrs {
		if r, err := inspect(a); err == nil && r.Preferred && r.AssignerId == assignerID(i) && r.Distributors > 0 {
			return i, nil
		}
	}
	return 0, errors.New("no assigner is preferred")
}

// converged waits until the job has exactly these running tasks, all clients
// hold the newest generation, and each task owns something.
func (c *cluster) converged(tasks ...string) {
	c.t.Helper()
	process.Eventually(c.t, within, fmt.Sprintf("an assignment with just %v", tasks), func() error {
		var r *slicerv1.InspectJobResponse
		err := errors.New("no distributors")
		for _, a := range c.distAddrs {
			if r, err = inspect(a); err == nil {
				break
			}
		}
		if err != nil {
			return err
		}
		running := map[string]bool{}
		for _, s := range r.Tasks {
			if s.Task.State == slicerv1.TaskState_TASK_STATE_RUNNING {
				running[s.Task.Name] = true
			}
		}
		for _, name := range tasks {
			if !running[name] {
				return fmt.Errorf("%s is not running (generation %d)", name, r.Generation)
			}
		}
		if len(running) != len(tasks) {
			return fmt.Errorf("%d tasks run", len(running))
		}
		for _, p := range c.clients {
			if n := p.counts(); n.Generation < r.Generation || n.Running != len(tasks) {
				return fmt.Errorf("%s holds generation %d with %d running tasks, generation %d is out", p.Name, n.Generation, n.Running, r.Generation)
			}
		}
		return nil
	})
}
