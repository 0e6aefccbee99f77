package attack

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
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

	"github.com/slicer-project/slicer/test/kit/process"
)

var soakFor = flag.Duration("soak", 20*time.Second, "how long BenchmarkSoak attacks; flatness is judged from 5m on")

// soaked are the attacks of a soak: each is begun every period, later than the one
// before by a seventh of it, lasts so long, and then its connections end. With the
// periods it goes from one victim to the next. A third of the soak is to hold whole
// rounds of all victims, or of those attacks that cost most it would hold more than another.
var soaked = []struct {
	name  string
	lasts time.Duration
}{
	{"10000-unknown-names-a-second", time.Second},
	{"300-silent-connections-a-second", 20 * time.Second},
	{"300-stuck-handshakes-a-second", 20 * time.Second},
	{"20000-streams-on-one-connection", 20 * time.Second},
	{"2000-unread-scrapes", 20 * time.Second},
	{"100-joins-a-second-of-3-names", 20 * time.Second},
	{"a-clerk-of-tomorrow", 20 * time.Second},
}

const (
	period   = 25 * time.Second
	judgedAt = 5 * time.Minute // the shortest soak whose flatness is judged
	// Attackers hold thousands of descriptors for some seconds at a time: with a sample
	// each 15 s the average of a third was by a fifth off.
	sampleEvery = time.Second
	// slowJoin and failedShare are what honest clients may see at worst: the machine that
	// serves them is the attackers' as well.
	slowJoin    = 5 * time.Second
	failedShare = .001
)

const webFile = `name: web
heartbeat_timeout: 3s
balance: {interval: 1s}
`

const shopFile = `name: shop
heartbeat_timeout: 3s
balance: {interval: 1s}
`

const ledgerFile = `name: ledger
mode: consistent
heartbeat_timeout: 3s
lease_duration: 2s
balance: {interval: 1s}
`

// soak is a control plane on etcd and one on Pebble, with honest servers and clients.
type soak struct {
	b       *testing.B
	procs   []*process.Process
	scraped []*scraped
	victims []*target // what clients connect to
	etcd    *clientv3.Client
	joins   joins
	starved time.Duration // the longest that this process had to wait for the machine
}

// starve notes how late the clock wakes this process, which has nothing to do: honest
// processes are kept waiting as long, whatever the attackers do.
func (s *soak) starve(ctx context.Context) {
	for {
		began := time.Now()
		if !pause(ctx, 20*time.Millisecond) {
			return
		}
		s.starved = max(s.starved, time.Since(began)-20*time.Millisecond)
	}
}

// joins are what a clerk saw that connects anew and joins, again and again.
type joins struct {
	mu      sync.Mutex
	took    []time.Duration
	failed  int
	lastErr error
}

func (j *joins) add(took time.Duration, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.took = append(j.took, took)
	if err != nil {
		j.failed++
		j.lastErr = err
	}
}

func startSoak(b *testing.B) *soak {
	process.BuildSlicer(b)
	process.Build(b, "slicer", "github.com/slicer-project/slicer/cmd/slicer")
	s, dir := &soak{b: b}, b.TempDir()
	ports := process.FreePorts(b, 18)
	take := func() (addr string) { addr, ports = ports[0], ports[1:]; return addr }
	run := func(name string, args ...string) string {
		addr := take()
		program, _, _ := strings.Cut(name, "-")
		if program == "slicer" {
			args = append([]string{"serve"}, args...)
		}
		p := process.Start(b, name, nil, append([]string{process.Program(program), "--http", addr, "--log-level", "error"}, args...)...)
		s.procs = append(s.procs, p)
		s.scraped = append(s.scraped, &scraped{name: name, url: "http://" + addr + "/metrics"})
		return addr
	}
	// etcd keeps its newest entries in memory, 10,000 and 5,000 by default, and would
	// grow until it has as many. The disk is not what is tried.
	e := process.Etcd{Dir: dir, Clients: []string{take()}, Peers: []string{take()},
		Flags: []string{"--log-level=error", "--unsafe-no-fsync", "--snapshot-count=500", "--snapshot-catchup-entries=500"}}
	s.procs = append(s.procs, e.Start(b)...)
	s.scraped = append(s.scraped, &scraped{name: "etcd", url: "http://" + e.Clients[0] + "/metrics"})
	var err error
	if s.etcd, err = clientv3.New(clientv3.Config{Endpoints: e.Clients, Logger: zap.NewNop()}); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.etcd.Close() })
	store := "--store=etcd://" + e.Clients[0] + "/slicer"
	assigners := []string{take(), take()}
	for i, addr := range assigners {
		run(fmt.Sprint("assigner-", i), "--listen", addr, "--etcd-compact", "15s", store)
	}
	cfg := honestConfig{Etcd: e.Clients}
	for i := range 2 {
		addr := take()
		cfg.Distributors = append(cfg.Distributors, addr)
		page := run(fmt.Sprint("distributor-", i), "--listen", addr, "--assigners", strings.Join(assigners, ","))
		s.victims = append(s.victims, &target{b: b, address: addr, http: page})
	}
	addr := take()
	cfg.Backups = []string{addr}
	s.victims = append(s.victims, &target{b: b, address: addr, http: run("backupdist", "--listen", addr, store)})
	cfg.Serve = take()
	s.victims = append(s.victims, &target{b: b, address: cfg.Serve,
		http: run("slicer", "--listen", cfg.Serve, "--backup-listen", take(), "--store", "pebble://"+dir+"/db")})
	s.scraped[len(s.scraped)-1].dir = filepath.Join(dir, "db")
	for i, text := range []string{webFile, shopFile, ledgerFile} {
		file := filepath.Join(dir, fmt.Sprint(i, ".yaml"))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
		for _, server := range []string{cfg.Distributors[0], cfg.Serve} {
			process.Eventually(b, time.Minute, "apply "+file, func() error {
				ctx, cancel := context.WithTimeout(b.Context(), 10*time.Second)
				defer cancel()
				out, err := exec.CommandContext(ctx, process.Program("slicerctl"), "--server", server, "job", "apply", "-f", file).CombinedOutput()
				if err != nil {
					err = fmt.Errorf("%w: %s", err, out)
				}
				return err
			})
		}
	}
	for _, role := range []string{"servers", "clients"} {
		cfg.Role, cfg.HTTP = role, take()
		text, err := json.Marshal(cfg)
		if err != nil {
			b.Fatal(err)
		}
		s.procs = append(s.procs, process.Start(b, role, []string{honestEnv + "=" + string(text)}, os.Args[0]))
		s.scraped = append(s.scraped, &scraped{name: role, url: "http://" + cfg.HTTP + "/metrics"})
	}
	return s
}

// attack runs one attack every period until ctx ends.
func (s *soak) attack(ctx context.Context, i int) {
	if !pause(ctx, period/time.Duration(len(soaked))*time.Duration(i)) {
		return
	}
	for n := i; ; n++ {
		v, began := s.victims[n%len(s.victims)], time.Now()
		// An attacker has a machine of its own otherwise.
		cmd := exec.CommandContext(ctx, "nice", "-n", "5", os.Args[0])
		cmd.Env = append(os.Environ(), attackOf(soaked[i].name, v, soaked[i].lasts))
		if out, err := cmd.CombinedOutput(); err != nil && ctx.Err() == nil {
			s.b.Errorf("%s: %v: %s", soaked[i].name, err, out)
		}
		if !pause(ctx, period-time.Since(began)) {
			return
		}
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// BenchmarkSoak is described by the package.
func BenchmarkSoak(b *testing.B) {
	for b.Loop() {
		s := startSoak(b)
		for _, v := range s.victims {
			process.Eventually(b, time.Minute, "an assignment", func() error { _, _, err := v.join(); return err })
		}
		process.Eventually(b, time.Minute, "calls", func() error {
			c, err := fetch(s.scraped[len(s.scraped)-1].url)
			if err == nil && c["soak_calls_total"] < 100 {
				err = fmt.Errorf("%v", c["soak_calls_total"])
			}
			return err
		})
		ctx, cancel := context.WithTimeout(b.Context(), *soakFor)
		var wg sync.WaitGroup
		for i := range soaked {
			wg.Go(func() { s.attack(ctx, i) })
		}
		wg.Go(func() { s.starve(ctx) })
		wg.Go(func() {
			for i := 0; pause(ctx, 250*time.Millisecond); i++ {
				_, took, err := s.victims[i%len(s.victims)].join()
				s.joins.add(took, err)
			}
		})
		for explained := false; pause(ctx, sampleEvery); {
			s.sample(ctx)
			if !explained && s.failing() {
				explained = true
				s.explain()
			}
		}
		cancel()
		wg.Wait()
		s.report()
		for _, p := range s.procs {
			if p.Ended() {
				b.Errorf("%s has ended: %s", p.Name, p.State())
			}
		}
	}
}

// failing reports whether calls have failed for the last 20 samples.
func (s *soak) failing() bool {
	clients := s.scraped[len(s.scraped)-1].samples
	n := len(clients)
	failed := func(i int) float64 { return clients[i]["soak_failures_total"] }
	return n > 20 && failed(n-1)-failed(n-10) > 50 && failed(n-10)-failed(n-20) > 50
}

// explain prints what both control planes say of their jobs while calls fail and go on
// to fail: afterwards there is nothing left that could tell.
func (s *soak) explain() {
	fmt.Printf("\n%s: calls have failed for 20 s\n", time.Now().Format(time.RFC3339))
	for _, v := range []*target{s.victims[0], s.victims[len(s.victims)-1]} {
		for _, job := range []string{"shop", "ledger"} {
			ctx, cancel := context.WithTimeout(s.b.Context(), 10*time.Second)
			out, err := exec.CommandContext(ctx, process.Program("slicerctl"), "--server", v.address, "inspect", job).CombinedOutput()
			cancel()
			fmt.Printf("inspect %s at %s: %v\n%s\n", job, v.address, err, out)
		}
	}
}

func (s *soak) report() {
	b := s.b
	// Metrics are not printed of a benchmark that fails.
	fmt.Printf("\n%s", table(s.scraped))
	if *soakFor >= judgedAt {
		for _, x := range s.scraped {
			for _, bad := range x.grown() {
				b.Error(bad)
			}
		}
	}
	j := &s.joins
	slices.Sort(j.took)
	if len(j.took) == 0 {
		b.Fatal("nothing has joined")
	}
	slowest := j.took[len(j.took)-1]
	fmt.Printf("the machine kept this process waiting for %s at most\n", s.starved.Round(time.Millisecond))
	fmt.Printf("%d honest joins, %d failed; p50 %s, p99 %s, slowest %s\n", len(j.took), j.failed,
		j.took[len(j.took)/2].Round(time.Millisecond), j.took[len(j.took)*99/100].Round(time.Millisecond), slowest.Round(time.Millisecond))
	if j.failed > 0 || slowest > slowJoin {
		b.Errorf("%d of %d honest joins failed, the slowest took %s: %v", j.failed, len(j.took), slowest, j.lastErr)
	}
	c, err := fetch(s.scraped[len(s.scraped)-1].url)
	if err != nil {
		b.Fatal(err)
	}
	calls, failed := c["soak_calls_total"], c["soak_failures_total"]
	fmt.Printf("%.0f honest calls, %.0f failed\n", calls, failed)
	if failed > calls*failedShare {
		b.Errorf("%.0f of %.0f honest calls failed: %s", failed, calls, s.procs[len(s.procs)-1].LastWords())
	}
}

func fetch(url string) (map[string]float64, error) {
	c := http.Client{Timeout: 10 * time.Second}
	resp, err := c.Get(url)
	if err != nil {
		return nil, err
	}
	defer c.CloseIdleConnections()
	defer resp.Body.Close()
	return parse(resp.Body)
}
