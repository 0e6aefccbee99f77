package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/slicer-project/slicer/cmd/internal/run/runtest"
	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/lease/remote"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"github.com/slicer-project/slicer/slicelet"
)

// wire is a task's way to Slicer, which can be cut: then nothing passes any more,
// and no connection breaks.
type wire struct{ cut atomic.Bool }

func (w *wire) dial(ctx context.Context, addr string) (net.Conn, error) {
	if w.cut.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &wired{Conn: c, w: w, closed: make(chan struct{})}, nil
}

type wired struct {
	net.Conn
	w      *wire
	once   sync.Once
	closed chan struct{}
}

func (c *wired) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.w.cut.Load() {
		<-c.closed
		return 0, net.ErrClosed
	}
	return n, err
}

func (c *wired) Write(p []byte) (int, error) {
	if c.w.cut.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c *wired) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// task is a process of the job "web" with a wire of its own.
type task struct {
	*slicelet.Slicelet
	reader *lease.Reader
	conn   *grpc.ClientConn
	wire   *wire
	once   sync.Once
}

// close ends it; what it would give its leases back to may be dead or cut off.
func (x *task) close() {
	x.once.Do(func() { _ = errors.Join(x.Close(), x.reader.Close(), x.conn.Close()) })
}

func startTask(t *testing.T, addr, name string) *task {
	t.Helper()
	x := &task{wire: &wire{}}
	opts := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(x.wire.dial)}
	var err error
	if x.conn, err = grpc.NewClient("passthrough:///"+addr, opts...); err != nil {
		t.Fatal(err)
	}
	if x.reader, err = lease.NewReader(lease.Config{Readers: remote.New(x.conn)}); err != nil {
		t.Fatal(err)
	}
	x.Slicelet, err = slicelet.New(slicelet.Config{Job: "web", Task: name, Address: "127.0.0.1:1", Distributors: []string{addr}, DialOptions: opts, Leases: x.reader})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.close)
	return x
}

// watchOwners looks for keys with two owners, all the time, until stop is called,
// which returns how many there were.
func watchOwners(all func() []*task, keys []string) (stop func() (looks, overlaps int)) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	looks, overlaps := 0, 0
	wg.Go(func() {
		for ctx.Err() == nil {
			for _, key := range keys {
				looks++
				var owned []slicelet.Handle
				for _, x := range all() {
					if h := x.Handle(key); h.Owned() {
						owned = append(owned, h)
					}
				}
				// What is still so was so when the others were asked.
				if len(owned) > 1 && owned[0].AssignedContinuously() && owned[1].AssignedContinuously() {
					overlaps++
				}
			}
			time.Sleep(time.Millisecond)
		}
	})
	return func() (int, int) {
		cancel()
		wg.Wait()
		return looks, overlaps
	}
}

// TestDirectoryPutBack: the directory of "slicer serve" is replaced by a copy from
// before anything was granted, while one task is cut off and goes by its deadline,
// one goes on, and one starts anew: no key has two owners, and changes go on. And
// so with restarts besides, until the store's numbers are past those of before.
func TestDirectoryPutBack(t *testing.T) {
	t.Parallel()
	for _, restarts := range []int{0, 3} {
		t.Run(fmt.Sprint(restarts), func(t *testing.T) {
			t.Parallel()
			putBack(t, restarts)
		})
	}
}

func putBack(t *testing.T, restarts int) {
	dir, copied := filepath.Join(t.TempDir(), "store"), filepath.Join(t.TempDir(), "copy")
	ctx, cancel := context.WithTimeout(t.Context(), 4*limit)
	defer cancel()
	args := lastingArgs(t, dir)
	start := func() (*runtest.Process, map[string]string) {
		p := runtest.Start(t, "serve", args...)
		return p, p.Where()
	}
	p, w := start()
	becomesReady(t, w["http"])
	if _, err := admin(t, w["listen"]).PutJob(ctx, &slicerv1.PutJobRequest{Config: &slicerv1.JobConfig{Name: "web", Mode: slicerv1.Mode_MODE_CONSISTENT, LeaseDurationMs: 4000}}); err != nil {
		t.Fatal(err)
	}
	p.Stop(syscall.SIGTERM)
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}

	p, _ = start()
	var mu sync.Mutex
	tasks := map[string]*task{}
	begin := func(name string) {
		x := startTask(t, w["listen"], name)
		mu.Lock()
		defer mu.Unlock()
		tasks[name] = x
	}
	all := func() (list []*task) {
		mu.Lock()
		defer mu.Unlock()
		for _, x := range tasks {
			list = append(list, x)
		}
		return list
	}
	keys := make([]string, 100)
	for i := range keys {
		keys[i] = fmt.Sprint(i)
	}
	own := func(names ...string) func() bool {
		return func() bool {
			for _, name := range names {
				if len(tasks[name].Slices()) == 0 {
					return false
				}
			}
			return !slices.ContainsFunc(keys, func(key string) bool {
				return !slices.ContainsFunc(all(), func(x *task) bool { return x.IsAffinitized(key) })
			})
		}
	}
	begin("a")
	begin("b")
	until(t, "each key has an owner", own("a", "b"))

	stop := watchOwners(all, keys)
	tasks["a"].wire.cut.Store(true)
	cut := time.Now()
	p.Signal(syscall.SIGKILL) // an orderly end waits for a
	p.End()
	if err := errors.Join(os.RemoveAll(dir), os.CopyFS(dir, os.DirFS(copied))); err != nil {
		t.Fatal(err)
	}
	for range restarts {
		p, _ = start()
		p.Signal(syscall.SIGKILL)
		p.End()
	}
	p, _ = start()
	started := time.Now()
	begin("c") // remembers nothing
	until(t, "each key has an owner again", own("b", "c"))
	t.Logf("each key has an owner %s after the start, which was %s after a was cut off", time.Since(started).Round(time.Millisecond), started.Sub(cut).Round(time.Millisecond))
	// A change beside: another task.
	began := time.Now()
	begin("d")
	until(t, "another task has keys", own("b", "c", "d"))
	t.Logf("a change %s later took %s", began.Sub(started).Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	looks, overlaps := stop()
	if t.Logf("%d looks at a key of %d tasks", looks, len(tasks)); overlaps > 0 {
		t.Errorf("%d times a key had two owners", overlaps)
	}
	var wg sync.WaitGroup
	for _, x := range all() {
		wg.Go(x.close)
	}
	wg.Wait()
	p.Stop(syscall.SIGTERM)
}
