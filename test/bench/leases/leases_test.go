// Package leases measures what the sessions of consistent mode cost an etcd of three
// members, directly and by way of a front.
package leases

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/slicer-project/slicer/assigner"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/lease"
	etcdlease "github.com/slicer-project/slicer/lease/etcd"
	"github.com/slicer-project/slicer/lease/front"
	"github.com/slicer-project/slicer/lease/leasetest"
	"github.com/slicer-project/slicer/lease/remote"
	"github.com/slicer-project/slicer/test/kit/process"
)

var (
	sessions = flag.Int("leases.sessions", 1000, "sessions, each with connections of its own, as processes have them")
	ttl      = flag.Duration("leases.ttl", 10*time.Second, "lease time")
	window   = flag.Duration("leases.window", 20*time.Second, "how long the processor time of etcd is measured")
	changes  = flag.Int("leases.changes", 50, "changes of which the recall is measured")
	fronted  = flag.Bool("leases.front", true, "measure sessions by way of a front")
	direct   = flag.Bool("leases.direct", true, "measure sessions that speak to etcd themselves, too")
)

// frontVariable makes the test's binary a front.
const frontVariable = "SLICER_TEST_LEASES_FRONT"

type frontConfig struct {
	Etcd   []string
	Listen string
}

func TestMain(m *testing.M) {
	for variable, run := range map[string]func(string) error{frontVariable: serve, fleetVariable: fleet} {
		if text := os.Getenv(variable); text != "" {
			if err := run(text); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			return
		}
	}
	flag.Parse()
	os.Exit(process.Main(m))
}

// serve is a front as an assigner has it, alone in its process, until that is killed.
func serve(text string) error {
	var cfg frontConfig
	if err := json.Unmarshal([]byte(text), &cfg); err != nil {
		return err
	}
	f, err := front.New(front.Config{
		Store: func(ctx context.Context) (*etcdlease.Store, error) {
			return etcdlease.Open(ctx, etcdlease.Config{Endpoints: cfg.Etcd, Logger: slog.Default()})
		},
		LeaseTime: func(context.Context, string) (time.Duration, error) { return lease.MaxTTL, nil },
	})
	if err != nil {
		return err
	}
	lis, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return err
	}
	s := grpc.NewServer(assigner.ServerOptions()...)
	f.Register(s)
	return s.Serve(lis)
}

// bed is an etcd of three members and a front of it, as processes.
type bed struct {
	b       *testing.B
	etcds   []*process.Process
	clients []string
	front   *process.Process
	addr    string
}

func newBed(b *testing.B) *bed {
	b.Helper()
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 200_000, Max: 200_000}); err != nil {
		b.Logf("few open files: %v", err)
	}
	process.BuildSlicer(b)
	ports := process.FreePorts(b, 7)
	n := &bed{b: b, clients: ports[:3], addr: ports[6]}
	n.etcds = process.Etcd{Dir: b.TempDir(), Clients: ports[:3], Peers: ports[3:6], Flags: []string{"--log-level=error", "--unsafe-no-fsync"}}.Start(b)
	return n
}

// open opens a store, whenever etcd answers.
func (n *bed) open() *etcdlease.Store {
	n.b.Helper()
	for {
		st, err := etcdlease.Open(n.b.Context(), etcdlease.Config{Endpoints: n.clients})
		if err == nil {
			n.b.Cleanup(func() { st.Close() })
			return st
		}
		if !errors.Is(err, lease.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
			n.b.Fatal(err)
		}
	}
}

func (n *bed) startFront() {
	n.b.Helper()
	text, err := json.Marshal(frontConfig{n.clients, n.addr})
	if err != nil {
		n.b.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		n.b.Fatal(err)
	}
	n.front = process.Start(n.b, "front", []string{frontVariable + "=" + string(text)}, self)
	process.Eventually(n.b, time.Minute, "the front listens", func() error {
		conn, err := net.Dial("tcp", n.addr)
		if err == nil {
			conn.Close()
		}
		return err
	})
}

// remote is a slicelet's way to the front.
func (n *bed) remote() (lease.Readers, func()) {
	conn, err := grpc.NewClient(n.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		n.b.Fatal(err)
	}
	return remote.New(conn), func() { conn.Close() }
}

// crowd is readers of one job.
type crowd struct {
	b     *testing.B
	n     int
	jobs  []*lease.Job
	ends  []func()
	mu    sync.Mutex
	cache map[assignment.Generation]*assignment.Assignment
	w     lease.WriteSession
	token lease.Token
	job   string
	g     assignment.Generation
}

// newCrowd makes n readers, each of which opens its store.
func newCrowd(b *testing.B, job string, writers lease.Writers, n int, ttl time.Duration, open func() (lease.Readers, func())) *crowd {
	b.Helper()
	c := &crowd{b: b, n: n, job: job, cache: map[assignment.Generation]*assignment.Assignment{}}
	var err error
	if c.w, err = writers.OpenWriter(b.Context(), lease.MaxTTL); err != nil {
		b.Fatal(err)
	}
	if c.token, err = c.w.Lead(b.Context(), job); err != nil {
		b.Fatal(err)
	}
	c.advance()
	for i := range n {
		readers, end := open()
		r, err := lease.NewReader(lease.Config{Readers: readers, TTL: ttl})
		if err != nil {
			b.Fatal(err)
		}
		j, err := r.Join(lease.JobConfig{Job: job, Task: leasetest.TaskName(i), Incarnation: leasetest.Incarnation(i),
			Fetch: func(_ context.Context, g assignment.Generation) (*assignment.Assignment, error) { return c.fetch(g) }})
		if err != nil {
			b.Fatal(err)
		}
		c.jobs = append(c.jobs, j)
		c.ends = append(c.ends, func() { _ = r.Close(); end() })
		for j.Belief() == nil && i%50 == 49 { // not all at once
			time.Sleep(time.Millisecond)
		}
	}
	c.wait()
	return c
}

func (c *crowd) fetch(g assignment.Generation) (*assignment.Assignment, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cache[g] == nil {
		a, err := leasetest.Assignment(c.job, g, min(c.n, 50))
		if err != nil {
			return nil, err
		}
		c.cache[g] = a
	}
	return c.cache[g], nil
}

// advance carries the job on, and returns how long it took from the recall to the next guard.
func (c *crowd) advance() (recall time.Duration) {
	c.b.Helper()
	c.g++
	_, err := lease.Advance(c.b.Context(), c.w, lease.Change{Job: c.job, Token: c.token, Wanted: c.g, Wait: 10 * time.Second,
		Observe: func(s lease.Step, _ lease.State, took time.Duration) {
			if s.Kind == lease.Rewrite {
				recall = took
			}
		}})
	if err != nil {
		c.b.Fatal(err)
	}
	c.wait()
	return recall
}

// wait waits until all believe in the newest generation.
func (c *crowd) wait() {
	for _, j := range c.jobs {
		for {
			if before, after := j.Belief().Assignments(); before != nil && after == nil && before.Generation() == c.g {
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
}

func (c *crowd) end() {
	var wg sync.WaitGroup
	for _, end := range c.ends {
		wg.Go(end)
	}
	wg.Wait()
	_ = c.w.Close(c.b.Context())
}
