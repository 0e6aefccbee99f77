package judge

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/test/kit/process"
	"github.com/slicer-project/slicer/test/system/judge/history"
)

const job = "registers"

// jobFile has assignments change about every second, as load does.
const jobFile = `name: registers
mode: consistent
load_metric: custom
heartbeat_timeout: 1500ms
lease_duration: 2s
balance:
  interval: 1s
  smoothing: 1
  min_slices_per_task: 4
  max_slices_per_task: 12
`

const leaseTime = 2 * time.Second

// plan is the size of a run, and what is wrong with it.
type plan struct {
	seed                     uint64
	processes, slicelets     int // slicelets in each process
	clients, perSecond       int
	probes, registers        int
	recycle                  time.Duration
	noDeadline, ignoreTokens bool
	think                    time.Duration
	fronts                   bool // slicelets hold their leases by way of the assigners

	// What is measured rather than judged.
	file           string        // the job, instead of jobFile
	ttl            time.Duration // lease time, instead of leaseTime
	callers        int           // processes
	callersEach    int
	callsPerSecond int // of each caller
	shift          time.Duration
	noBridge       bool
}

func (p plan) sabotaged() bool { return p.noDeadline || p.noBridge }

func (p plan) leaseTime() time.Duration { return cmp.Or(p.ttl, leaseTime) }

// bed is a Slicer with its application.
type bed struct {
	t    *testing.T
	plan plan
	net  network
	dir  string

	etcds, assigners, distributors, backups, owners, clients, callers []*process.Process
	store                                                             *process.Process
	etcdAddrs                                                         []string
	distAddrs                                                         []string

	troubled map[*process.Process]bool

	mu      sync.Mutex
	changes []time.Time
	recalls []recall
}

// recall is how long it took from a guard's recall to the next guard.
type recall struct {
	at   time.Time
	took time.Duration
}

func newBed(t *testing.T, n network, p plan) *bed {
	t.Helper()
	needBinaries(t)
	if p.sabotaged() {
		needSabotage(t)
	}
	b := &bed{t: t, plan: p, net: n, dir: t.TempDir(), troubled: map[*process.Process]bool{}}
	logs := b.logs()
	if err := os.Mkdir(logs, 0o700); err != nil {
		t.Fatal(err)
	}
	b.startEtcd()
	url := "--store=etcd://" + strings.Join(b.etcdAddrs, ",") + "/slicer"
	assigner, assignerEnv := "assigner", []string(nil)
	if p.noBridge {
		assigner, assignerEnv = "assigner-sabotage", []string{"SLICER_SABOTAGE=no-bridge"}
	}
	flags := []string{"--insecure", url, "--http="}
	if p.fronts {
		flags = append(flags, "--serve-leases")
	}
	var assigners []string
	for i := range 2 {
		host := fmt.Sprintf("assigner-%d", i)
		addr := n.listen(host, toPlane, 1)[0]
		assigners = append(assigners, addr)
		b.assigners = append(b.assigners, b.run(host, assignerEnv, assigner, append(flags, "--id", host, "--listen", addr)...))
	}
	for i := range 2 {
		host := fmt.Sprintf("distributor-%d", i)
		addr := n.listen(host, toPlane, 1)[0]
		b.distAddrs = append(b.distAddrs, addr)
		b.distributors = append(b.distributors, b.run(host, nil, "distributor", "--insecure", "--id", host, "--listen", addr, "--assigners", strings.Join(assigners, ","), "--http="))
	}
	backup := n.listen("backup", toPlane, 1)
	b.backups = append(b.backups, b.run("backup", nil, "backupdist", "--insecure", "--listen", backup[0], url, "--http="))

	b.apply(cmp.Or(p.file, jobFile))

	storeAddr := n.listen("store", toPlane, 1)
	b.store = b.actor("store", actorConfig{Role: "store", Addresses: storeAddr, IgnoreTokens: p.ignoreTokens})
	for i := range p.processes {
		host := fmt.Sprintf("owner-%d", i)
		var fronts, etcd []string
		if p.fronts {
			fronts = n.via(host, toPlane, assigners)
		} else {
			etcd = n.via(host, toEtcd, b.etcdAddrs)
		}
		b.owners = append(b.owners, b.actor(host, actorConfig{Role: "slicelets",
			Distributors: n.via(host, toPlane, b.distAddrs), Backups: n.via(host, toPlane, backup), Etcd: etcd, Fronts: fronts,
			Addresses: n.listen(host, toPlane, p.slicelets), Store: n.via(host, toPlane, storeAddr)[0], Recycle: p.recycle, Think: p.think, Shift: p.shift}))
	}
	for i := range p.clients {
		b.clients = append(b.clients, b.actor(fmt.Sprintf("client-%d", i), actorConfig{Role: "clients",
			Distributors: b.distAddrs, Backups: backup, PerSecond: p.perSecond}))
	}
	for i := range p.callers {
		b.callers = append(b.callers, b.actor(fmt.Sprintf("caller-%d", i), actorConfig{Role: "callers",
			Distributors: b.distAddrs, Backups: backup, PerSecond: p.callsPerSecond, Callers: p.callersEach, Shift: p.shift}))
	}
	b.watchGuard()
	return b
}

// apply makes the job what a file says.
func (b *bed) apply(text string) {
	b.t.Helper()
	file := filepath.Join(b.dir, "job.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
	process.Eventually(b.t, 30*time.Second, "apply the job", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		out, err := exec.CommandContext(ctx, process.Program("slicerctl"), "--server", b.distAddrs[0], "job", "apply", "-f", file).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

func (b *bed) logs() string { return filepath.Join(b.dir, "logs") }

// run starts one of our programs at a host of its own.
func (b *bed) run(host string, env []string, program string, args ...string) *process.Process {
	b.t.Helper()
	return process.Start(b.t, host, env, b.net.command(host, append([]string{process.Program(program)}, args...)...)...)
}

func (b *bed) startEtcd() {
	const members = 3
	e := process.Etcd{Dir: b.dir, Command: b.net.command,
		// What a killed process has written is in the kernel's hands, and the disk is not what is judged here.
		Flags: []string{"--log-level=error", "--unsafe-no-fsync"}}
	for i := range members {
		addrs := b.net.listen(process.Member(i), toEtcd, 2)
		e.Clients, e.Peers = append(e.Clients, addrs[0]), append(e.Peers, addrs[1])
	}
	b.etcdAddrs, b.etcds = e.Clients, e.Start(b.t)
}

// actorConfig is what the actor takes.
type actorConfig struct {
	Role, Name, Logs, Job       string
	Distributors, Backups, Etcd []string
	Fronts, Addresses           []string
	Store                       string
	TTL                         time.Duration
	Seed                        uint64
	Probes, Registers           int
	PerSecond, Callers          int
	Recycle, Think, Shift       time.Duration
	IgnoreTokens                bool
}

func (b *bed) actor(host string, cfg actorConfig) *process.Process {
	b.t.Helper()
	cfg.Name, cfg.Logs, cfg.Job, cfg.TTL, cfg.Seed = host, b.logs(), job, b.plan.leaseTime(), b.plan.seed
	cfg.Probes, cfg.Registers = b.plan.probes, b.plan.registers
	data, err := json.Marshal(cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	program, env := "actor", []string{"SLICER_ACTOR=" + string(data)}
	if b.plan.noDeadline && cfg.Role == "slicelets" {
		program, env = "actor-sabotage", append(env, "SLICER_SABOTAGE=no-deadline")
	}
	return b.run(host, env, program)
}

// watchGuard notes when the guard is opened for another generation.
func (b *bed) watchGuard() {
	cli, err := clientv3.New(clientv3.Config{Endpoints: b.etcdAddrs, Logger: zap.NewNop()})
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		var last lease.Guard
		var recalled time.Time
		take := func(text []byte) {
			var g lease.Guard
			switch err := g.UnmarshalText(text); {
			case err != nil:
			case !g.Open:
				recalled = time.Now()
			case g.Generation > last.Generation:
				last = g
				b.mu.Lock()
				b.changes = append(b.changes, time.Now())
				if !recalled.IsZero() {
					b.recalls = append(b.recalls, recall{recalled, time.Since(recalled)})
				}
				b.mu.Unlock()
			}
		}
		for next := int64(1); ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
			// Members are killed: a watch ends, and another goes on from there.
			for resp := range cli.Watch(ctx, "/slicer/lease/"+job+"/r/guard", clientv3.WithRev(next)) {
				for _, e := range resp.Events {
					take(e.Kv.Value)
					next = e.Kv.ModRevision + 1
				}
				next = max(next, resp.CompactRevision)
			}
		}
	})
	b.t.Cleanup(func() {
		cancel()
		_ = cli.Close()
		wg.Wait()
	})
}

// changed is when there were changes of the assignment in force since.
func (b *bed) changed(since time.Time) []time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(b.changes), func(at time.Time) bool { return at.Before(since) })
}

// read reads what has been written down so far.
func (b *bed) read() *history.History {
	b.t.Helper()
	h, err := history.ReadDir(b.logs())
	if err != nil {
		b.t.Fatal(err)
	}
	return h
}

// flows waits until clients' operations succeed again.
func (b *bed) flows(limit time.Duration) {
	b.t.Helper()
	before := b.written()
	process.Eventually(b.t, limit, "operations succeed", func() error {
		for _, p := range b.all() {
			if p.Ended() {
				b.t.Fatalf("%s has ended: %s", p.Name, p.State())
			}
		}
		if n := b.written(); n < before+10<<10 {
			return fmt.Errorf("clients have written %d bytes, %d before", n, before)
		}
		return nil
	})
}

// written is how much clients have written down.
func (b *bed) written() (n int64) {
	files, _ := filepath.Glob(filepath.Join(b.logs(), "client-*.log"))
	for _, f := range files {
		if st, err := os.Stat(f); err == nil {
			n += st.Size()
		}
	}
	return n
}

func (b *bed) all() []*process.Process {
	all := []*process.Process{b.store}
	for _, ps := range [][]*process.Process{b.etcds, b.assigners, b.distributors, b.backups, b.owners, b.clients, b.callers} {
		all = append(all, ps...)
	}
	return all
}

// end has clients and slicelets finish what they do, and write it down.
func (b *bed) end() {
	b.t.Helper()
	for _, ps := range [][]*process.Process{b.clients, b.callers, b.owners} {
		var wg sync.WaitGroup
		for _, p := range ps {
			wg.Go(func() { p.End(30 * time.Second) })
		}
		wg.Wait()
	}
}
