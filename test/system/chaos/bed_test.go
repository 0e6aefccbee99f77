//go:build system

package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"github.com/slicer-project/slicer/test/kit/boottime"
	"github.com/slicer-project/slicer/test/kit/netns"
	"github.com/slicer-project/slicer/test/kit/process"
	"github.com/slicer-project/slicer/test/system/chaos/record"
)

func TestMain(m *testing.M) { os.Exit(process.Main(m)) }

const job = "chaos"

// jobFile asks for quick reactions, so that phases can be short.
const jobFile = `name: chaos
max_replicas: 2
heartbeat_timeout: 2s
balance:
  interval: 1s
`

const (
	singles, crowds, crowd = 20, 2, 5 // processes with one server, those with several, and how many
	clientProcesses, each  = 5, 3
	keys                   = 5000
	callTimeout            = 2 * time.Second
)

// bed is a whole Slicer with its application.
type bed struct {
	t    *testing.T
	net  *netns.Network
	dir  string
	rng  *rand.Rand
	seed uint64
	now  string // the phase

	etcds, assigners, distributors, backups []*process.Process
	etcdAddrs, assignerAddrs, distAddrs     []string
	backupAddrs                             []string
	servers, clients                        []*group
	watch                                   *watch
	world                                   World
}

// group is a process with several servers or clients.
type group struct {
	*process.Process
	names []string
	log   string
}

// emptyBed has a network and nothing in it.
func emptyBed(t *testing.T, seed uint64) *bed {
	t.Helper()
	process.Build(t, "actor", "github.com/slicer-project/slicer/test/system/chaos/actor")
	return &bed{t: t, net: netns.New(t, 1), dir: t.TempDir(), rng: rand.New(rand.NewPCG(seed, 0)), seed: seed,
		world: World{Down: map[string]Spans{}, Apart: map[Pair]Spans{}, Mute: map[string]Spans{}}}
}

func newBed(t *testing.T, seed uint64, perSecond int) *bed {
	t.Helper()
	process.BuildSlicer(t)
	process.Build(t, "assigner", "github.com/slicer-project/slicer/cmd/assigner", "steppedclock")
	b := emptyBed(t, seed)
	b.startPlane()
	for i := range singles + crowds {
		n := 1
		if i >= singles {
			n = crowd
		}
		b.startServers(i, n)
	}
	b.settled(90 * time.Second)
	for i := range clientProcesses {
		b.startClients(i, perSecond)
	}
	b.calling(perSecond)
	return b
}

func (b *bed) startServers(i, n int) {
	b.t.Helper()
	host := fmt.Sprintf("servers-%d", i)
	var names []string
	for k := range n {
		names = append(names, fmt.Sprintf("task-%d-%d", i, k))
	}
	b.servers = append(b.servers, b.actor(host, "servers", names, b.net.Listen(host, 0, n), 0))
}

func (b *bed) startClients(i, perSecond int) {
	b.t.Helper()
	var names []string
	for k := range each {
		names = append(names, fmt.Sprintf("client-%d-%d", i, k))
	}
	b.clients = append(b.clients, b.actor(fmt.Sprintf("clients-%d", i), "clients", names, nil, perSecond))
}

// calling waits until all clients call.
func (b *bed) calling(perSecond int) {
	b.t.Helper()
	for _, c := range b.clients {
		process.Eventually(b.t, 30*time.Second, c.Name+" calls", func() error {
			lines, err := record.Read(c.log)
			if err == nil && len(lines) < each*perSecond {
				err = errors.New("not yet")
			}
			return err
		})
	}
}

func (b *bed) startPlane() {
	t := b.t
	e := process.Etcd{Dir: b.dir, Command: b.net.Command, Flags: []string{"--log-level=error", "--unsafe-no-fsync"}}
	for i := range 3 {
		addrs := b.net.Listen(process.Member(i), 0, 2)
		e.Clients, e.Peers = append(e.Clients, addrs[0]), append(e.Peers, addrs[1])
	}
	b.etcdAddrs, b.etcds = e.Clients, e.Start(t)
	store := "--store=etcd://" + strings.Join(b.etcdAddrs, ",") + "/slicer"
	for i := range 3 {
		host := fmt.Sprintf("assigner-%d", i)
		addr := b.net.Listen(host, 0, 1)[0]
		b.assignerAddrs = append(b.assignerAddrs, addr)
		b.assigners = append(b.assigners, b.run(host, []string{"SLICER_WALL_OFFSET=" + b.clock(host)}, "assigner", "--insecure", "--id", host, "--listen", addr, store, "--http="))
	}
	for i := range 3 {
		host := fmt.Sprintf("distributor-%d", i)
		addr := b.net.Listen(host, 0, 1)[0]
		b.distAddrs = append(b.distAddrs, addr)
		b.distributors = append(b.distributors, b.run(host, nil, "distributor", "--insecure", "--id", host, "--listen", addr, "--assigners", strings.Join(b.assignerAddrs, ","), "--http="))
	}
	b.backupAddrs = b.net.Listen("backup", 0, 1)
	b.backups = append(b.backups, b.run("backup", nil, "backupdist", "--insecure", "--listen", b.backupAddrs[0], store, "--http="))
	b.apply()
	b.watch = startWatch(t, b.etcdAddrs)
}

// apply makes the job.
func (b *bed) apply() {
	b.t.Helper()
	file := filepath.Join(b.dir, "job.yaml")
	if err := os.WriteFile(file, []byte(jobFile), 0o600); err != nil {
		b.t.Fatal(err)
	}
	process.Eventually(b.t, 30*time.Second, "apply the job", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if out, err := exec.CommandContext(ctx, process.Program("slicerctl"), "--server", b.distAddrs[0], "job", "apply", "-f", file).CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// clock is the file that says by how much an assigner's wall clock is wrong.
func (b *bed) clock(assigner string) string { return filepath.Join(b.dir, assigner+".clock") }

func (b *bed) run(host string, env []string, program string, args ...string) *process.Process {
	b.t.Helper()
	return process.Start(b.t, host, env, b.net.Command(host, append([]string{process.Program(program)}, args...)...)...)
}

func (b *bed) actor(host, role string, names, addrs []string, perSecond int) *group {
	b.t.Helper()
	cfg := map[string]any{"Role": role, "Job": job, "Log": filepath.Join(b.dir, host+".log"), "Names": names, "Addresses": addrs,
		"Distributors": b.distAddrs, "Backups": b.backupAddrs, "PerSecond": perSecond, "Keys": keys, "Timeout": callTimeout,
		"Seed": b.seed + uint64(len(b.clients))}
	data, err := json.Marshal(cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	return &group{Process: b.run(host, []string{"SLICER_CHAOS=" + string(data)}, "actor"), names: names, log: cfg["Log"].(string)}
}

// preferred is the assigner that writes the job's assignments.
func (b *bed) preferred() *process.Process {
	var p *process.Process
	process.Eventually(b.t, 30*time.Second, "an assigner is preferred", func() error {
		for i, addr := range b.assignerAddrs {
			if r, err := inspect(addr); err == nil && r.Preferred && r.AssignerId == b.assigners[i].Name && r.Distributors > 0 {
				p = b.assigners[i]
				return nil
			}
		}
		return errors.New("none is")
	})
	return p
}

func inspect(addr string) (*slicerv1.InspectJobResponse, error) {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return slicerv1.NewAdminServiceClient(conn).InspectJob(ctx, &slicerv1.InspectJobRequest{Job: job})
}

// settled waits until every server runs and owns something.
func (b *bed) settled(limit time.Duration) {
	b.t.Helper()
	var want []string
	for _, g := range b.servers {
		want = append(want, g.names...)
	}
	process.Eventually(b.t, limit, "every server owns something", func() error {
		own := map[string]bool{}
		if a := b.watch.newest(); a != nil {
			for _, r := range a.All() {
				for t := range r.All() {
					own[t.Name] = true
				}
			}
		}
		missing := slices.DeleteFunc(slices.Clone(want), func(n string) bool { return own[n] })
		if len(missing) > 0 {
			return fmt.Errorf("%d do not: %v", len(missing), missing)
		}
		return nil
	})
}

// begins notes a span of something that has begun by now, and returns what ends it.
func begins[K comparable](m map[K]Spans, keys ...K) (end func()) {
	at := map[K]int{}
	for _, k := range keys {
		at[k] = len(m[k])
		m[k] = append(m[k], Span{From: boottime.Now(), To: forever})
	}
	return func() {
		for k, i := range at {
			m[k][i].To = boottime.Now()
		}
	}
}

// comes waits until a server process serves again that was started since, and
// says since when.
func (g *group) comes(t *testing.T, since time.Duration) (at time.Duration) {
	t.Helper()
	process.Eventually(t, 30*time.Second, g.Name+" serves", func() error {
		lines, err := record.Read(g.log)
		if err != nil {
			return err
		}
		for _, l := range lines {
			if l.Up != nil && l.Up.At > since {
				at = l.Up.At
				return nil
			}
		}
		return errors.New("not yet")
	})
	return at
}
