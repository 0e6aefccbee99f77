package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/slicelet"
)

// The test binary runs again as the application's servers and clients: they
// link slicelet and clerk as a user's programs do.
const roleEnv = "SLICER_E2E_ROLE"

// appConfig comes in the environment, as JSON.
type appConfig struct {
	Job, Name, Address    string
	Distributors, Backups []string
	CacheFile             string
	CallsPerSecond        int
}

const configEnv = "SLICER_E2E_CONFIG"

func appMain(role string) int {
	var cfg appConfig
	err := json.Unmarshal([]byte(os.Getenv(configEnv)), &cfg)
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		switch role {
		case "server":
			err = serve(ctx, cfg)
		case "client":
			err = call(ctx, cfg)
		default:
			err = fmt.Errorf("no role %q", role)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "app:", err)
		return 1
	}
	return 0
}

func appLog() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// serve answers each request with the task's name and whether it owns the key.
// SIGTERM drains it first.
func serve(ctx context.Context, cfg appConfig) error {
	l, err := net.Listen("tcp", cfg.Address)
	if err != nil {
		return err
	}
	s, err := slicelet.New(slicelet.Config{
		Job: cfg.Job, Task: cfg.Name, Address: cfg.Address,
		Distributors: cfg.Distributors, Backups: cfg.Backups, CacheFile: cfg.CacheFile, Logger: appLog(),
	})
	if err != nil {
		return err
	}
	defer s.Close()
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := s.Handle(r.URL.Query().Get("key"))
		fmt.Fprintf(w, "%s %t", cfg.Name, h.Owned())
	})}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		<-ctx.Done()
		drain, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := s.Drain(drain); err != nil {
			fmt.Fprintln(os.Stderr, "app: drain:", err)
		}
		_ = srv.Shutdown(drain)
	}()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	<-drained
	return nil
}

// counts is what a client prints, as a JSON line for each line on its stdin.
type counts struct {
	Ready        bool
	Calls        int
	NoAssignment int // no task to call: Slicer's fault
	Failed       int // no task answered, after one retry
	Retried      int // the owner did not answer, another task did
	Misrouted    int // the task that answered did not own the key
	Generation   int64
	Running      int // tasks, by the assignment in hand
}

type client struct {
	c    *clerk.Clerk
	http *http.Client

	mu sync.Mutex
	n  counts
}

// call sends requests in an open loop until its stdin ends.
func call(ctx context.Context, cfg appConfig) error {
	c, err := clerk.New(clerk.Config{
		Job: cfg.Job, Distributors: cfg.Distributors, Backups: cfg.Backups, CacheFile: cfg.CacheFile, Logger: appLog(),
	})
	if err != nil {
		return err
	}
	defer c.Close()
	// A task that is dead refuses at once: what takes long is a busy machine.
	cl := &client{c: c, http: &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { cl.loop(ctx, cfg.CallsPerSecond) })
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		if err := json.NewEncoder(os.Stdout).Encode(cl.snapshot()); err != nil {
			break
		}
	}
	cancel()
	wg.Wait()
	return nil
}

func (cl *client) snapshot() counts {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	n := cl.n
	if a := cl.c.Assignment(); a != nil {
		n.Generation = int64(a.Generation())
		for _, t := range a.Tasks() {
			if t.State == assignment.TaskRunning {
				n.Running++
			}
		}
	}
	return n
}

func (cl *client) loop(ctx context.Context, perSecond int) {
	if cl.c.Ready(ctx) != nil {
		return
	}
	cl.mu.Lock()
	cl.n.Ready = true
	cl.mu.Unlock()
	tick := time.NewTicker(time.Second / time.Duration(max(perSecond, 1)))
	defer tick.Stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			key := fmt.Sprintf("user/%d", rand.IntN(10000))
			wg.Go(func() { cl.one(key) })
		}
	}
}

func (cl *client) one(key string) {
	rs := cl.c.Lookup(key)
	var got counts
	got.Calls = 1
	if rs.Len() == 0 {
		got.NoAssignment = 1
	} else {
		owner := rs.At(0)
		owned, err := cl.ask(owner, key)
		if err != nil {
			// As a user's client would in affinity mode: another task will do.
			got.Retried = 1
			owned, err = cl.ask(another(cl.c.Assignment(), owner), key)
		}
		switch {
		case err != nil:
			got.Failed = 1
			fmt.Fprintln(os.Stderr, "app: call:", err)
		case !owned:
			got.Misrouted = 1
		}
	}
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.n.Calls += got.Calls
	cl.n.NoAssignment += got.NoAssignment
	cl.n.Failed += got.Failed
	cl.n.Retried += got.Retried
	cl.n.Misrouted += got.Misrouted
}

// another picks a running task that is not t, or t when it is the only one.
func another(a *assignment.Assignment, t assignment.Task) assignment.Task {
	from := rand.IntN(a.NumTasks())
	for i := range a.NumTasks() {
		if u := a.Task((from + i) % a.NumTasks()); u.Name != t.Name && u.State == assignment.TaskRunning {
			return u
		}
	}
	return t
}

func (cl *client) ask(t assignment.Task, key string) (owned bool, err error) {
	resp, err := cl.http.Get("http://" + t.Address + "/?key=" + key)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	if err != nil {
		return false, err
	}
	return strings.HasSuffix(string(body), " true"), nil
}
