package alerts

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	prom "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/slicer-project/slicer/assignment/certs/certstest"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/test/kit/process"
)

const root = "../../.."

// The test binary runs again as a process with some of the job's servers, and as one with a
// server that is to have too much to do: the addresses of its metrics and of a Distributor.
const tasksEnv, distributorEnv, busyEnv = "ALERTS_TASKS", "ALERTS_DISTRIBUTOR", "ALERTS_BUSY"

func TestMain(m *testing.M) {
	if names := os.Getenv(tasksEnv); names != "" {
		if err := runTasks(strings.Split(names, ","), os.Getenv(distributorEnv)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if addrs := strings.Split(os.Getenv(busyEnv), ","); len(addrs) == 2 {
		if err := runBusy(addrs[0], addrs[1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	process.Dir = root
	os.Exit(process.Main(m))
}

// runTasks runs tasks with an even load. SIGUSR1 makes the first one's load ten times the
// others', or even again.
func runTasks(names []string, distributor string) error {
	var hot atomic.Bool
	flips := make(chan os.Signal, 1)
	signal.Notify(flips, syscall.SIGUSR1)
	var all []*slicelet.Slicelet
	for i, name := range names {
		s, err := slicelet.New(slicelet.Config{Job: job, Task: name, Address: fmt.Sprintf("127.0.0.1:%d", 10000+os.Getpid()%10000+i), Distributors: []string{distributor}})
		if err != nil {
			return err
		}
		all = append(all, s)
	}
	for {
		select {
		case <-flips:
			hot.Store(!hot.Load())
		case <-time.After(100 * time.Millisecond):
		}
		for i, s := range all {
			times := 1
			if i == 0 && hot.Load() {
				times = 10
			}
			for k := range 2000 {
				if key := fmt.Sprint("key-", k); s.IsAffinitized(key) {
					for range times {
						s.Handle(key)
					}
				}
			}
		}
	}
}

const (
	job     = "web"
	jobFile = `name: web
max_replicas: 1
heartbeat_timeout: 2s
balance: {interval: 1s, min_slices_per_task: 10}
`
	consistentFile = `name: ledger
mode: consistent
lease_duration: 2s
`
	busyJob  = "busy"
	busyFile = `name: busy
overload: {admission: on}
`
	quota = 24 << 20 // bytes, of etcd
)

// bed is a whole Slicer of real processes, with what is scraped.
type bed struct {
	*testing.T
	p   *prometheus
	dir string

	etcds, assigners                   []*process.Process
	distributor, backup, prober, proxy *process.Process
	secured                            *process.Process // a Backup Distributor in TLS
	authority                          *certstest.Authority
	few, many, busy                    *process.Process // servers
	silence                            func()           // ends the silent clerk
	etcdAddrs                          []string
	distributorAddr, backupAddr        string
	wall, rules, policy                string // files
	etcd                               *clientv3.Client
}

func newBed(t *testing.T) *bed {
	t.Helper()
	process.BuildSlicer(t)
	process.Build(t, "assigner", "github.com/slicer-project/slicer/cmd/assigner", "steppedclock")
	process.Build(t, "slicerproxy", "github.com/slicer-project/slicer/cmd/slicerproxy")
	b := &bed{T: t, dir: t.TempDir(), p: newPrometheus(t, readRules(t, filepath.Join(root, "deploy", "alerts.yaml")))}
	ports := process.FreePorts(t, 21)
	take := func() (addr string) { addr, ports = ports[0], ports[1:]; return addr }
	scraped := func(name, addr string) string {
		b.p.targets[name] = "http://" + addr + "/metrics"
		return addr
	}
	e := process.Etcd{Dir: b.dir, Flags: []string{"--log-level=error", "--unsafe-no-fsync", "--quota-backend-bytes=" + strconv.Itoa(quota)}}
	for range 3 {
		e.Clients, e.Peers = append(e.Clients, take()), append(e.Peers, take())
	}
	b.etcdAddrs, b.etcds = e.Clients, e.Start(t)
	var err error
	if b.etcd, err = clientv3.New(clientv3.Config{Endpoints: e.Clients, Logger: zap.NewNop()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.etcd.Close() })
	store := "--store=etcd://" + strings.Join(e.Clients, ",") + "/slicer"
	var assigners []string
	b.wall = filepath.Join(b.dir, "offset")
	for i := range 2 {
		addr, name := take(), fmt.Sprint("assigner-", i)
		assigners = append(assigners, addr)
		b.assigners = append(b.assigners, process.Start(t, name, []string{"SLICER_WALL_OFFSET=" + b.wall}, process.Program("assigner"),
			"--id", name, "--listen", addr, "--http", scraped(name, take()), "--registration-ttl", "2s", "--lease-ttl", "2s", store))
	}
	b.distributorAddr, b.backupAddr = take(), take()
	b.distributor = process.Start(t, "distributor", nil, process.Program("distributor"),
		"--listen", b.distributorAddr, "--http", scraped("distributor", take()), "--assigners", strings.Join(assigners, ","))
	b.backup = process.Start(t, "backupdist", nil, process.Program("backupdist"), "--listen", b.backupAddr, "--http", scraped("backupdist", take()), store)
	b.authority = certstest.NewAuthority(t, "ours", certstest.Expires(1000*24*time.Hour))
	cert, key := b.certify(90 * 24 * time.Hour)
	b.policy = b.write("policy.yaml", goodPolicy)
	b.secured = process.Start(t, "secured", nil, process.Program("backupdist"), "--listen", take(), "--http", scraped("secured", take()),
		"--tls-cert", cert, "--tls-key", key, "--tls-ca", b.authority.CA, "--policy", b.policy, store)
	for name, text := range map[string]string{"web": jobFile, "ledger": consistentFile, busyJob: busyFile} {
		file := b.write(name+".yaml", text)
		process.Eventually(t, time.Minute, "apply "+name, func() error { return b.ctl("job", "apply", "-f", file) })
	}
	b.few, b.many = b.tasks("few", 5), b.tasks("many", 15)
	b.busy = process.Start(t, "busy", []string{busyEnv + "=" + scraped("busy", take()) + "," + b.distributorAddr}, os.Args[0])
	b.prober = process.Start(t, "probe", nil, process.Program("slicerctl"), "--server", b.distributorAddr, "--timeout", "2s", "probe", job,
		"--target", b.distributorAddr+","+b.backupAddr, "--interval", "300ms", "--metrics-address", scraped("probe", take()))
	b.rules = b.write("rules.yaml", "rules:\n- job: web\n  key: {header: X-User}\n")
	b.proxy = process.Start(t, "slicerproxy", nil, process.Program("slicerproxy"), "--config", b.rules, "--distributors", b.distributorAddr,
		"--listen", take(), "--http", scraped("slicerproxy", take()))
	b.client()
	return b
}

// goodPolicy is the one of the process in TLS.
const goodPolicy = "admin: [spiffe://corp/user/sre/ann]\n"

// certify puts a certificate into the files of the process in TLS.
func (b *bed) certify(expires time.Duration) (cert, key string) {
	b.Helper()
	return b.authority.Issue("secured", certstest.Expires(expires))
}

func (b *bed) write(name, text string) string {
	b.Helper()
	file := filepath.Join(b.dir, name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	return file
}

func (b *bed) ctl(args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, process.Program("slicerctl"), append([]string{"--server", b.distributorAddr}, args...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("slicerctl %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

func (b *bed) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// tasks starts a process with servers of the job.
func (b *bed) tasks(name string, n int) *process.Process {
	b.Helper()
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("%s-%d", name, i))
	}
	return process.Start(b.T, name, []string{tasksEnv + "=" + strings.Join(names, ","), distributorEnv + "=" + b.distributorAddr}, os.Args[0])
}

// client runs a clerk, with its metrics.
func (b *bed) client() {
	b.Helper()
	reg := prom.NewRegistry()
	c, err := clerk.New(clerk.Config{Job: job, Distributors: []string{b.distributorAddr}, Backups: []string{b.backupAddr}, Registerer: reg})
	b.must(err)
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	b.must(err)
	srv := &http.Server{Handler: promhttp.HandlerFor(reg, promhttp.HandlerOpts{})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := srv.Serve(lis); !errors.Is(err, http.ErrServerClosed) {
			b.Error(err)
		}
	}()
	b.Cleanup(func() { srv.Close(); <-done; c.Close() })
	b.p.targets["client"] = "http://" + lis.Addr().String() + "/metrics"
}
