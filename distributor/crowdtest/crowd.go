// Package crowdtest is a crowd of subscribers in a process of their own, for
// measurements: a process may have 20,000 descriptors open, and the subscribers' work
// is not to count as the server's. A test binary becomes the crowd when its TestMain
// calls Main.
package crowdtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// env has the test binary be a crowd of subscribers instead.
const env = "SLICER_TEST_CROWD"

// Kinds of crowds.
const (
	// Slicer are raw streams to a Distributor, each on a connection of its own, that
	// look at the trailer's checksum, acknowledge, decode nothing, and come back when
	// they have lost the Distributor.
	Slicer = "slicer"
	// Etcd are watches of one key, each on a connection of its own, from a revision
	// on that stands behind the address and an @. What they have seen is told by its
	// revision.
	Etcd = "etcd"
)

// Key is what a crowd of kind Etcd watches.
const Key = "assignment"

// Job is what a crowd of kind Slicer subscribes to.
const Job = "web"

// Store is the id of the store that the assignments are of.
const Store = 0xabc

// Main runs the crowd if this process is to be one, and says whether it was.
func Main() (was bool) {
	arg := os.Getenv(env)
	if arg != "" {
		crowdMain(arg)
	}
	return arg != ""
}

// Process is a process with many subscribers.
type Process struct {
	in  io.WriteCloser
	out *bufio.Reader
}

// Start starts a crowd of n that lasts until the test is over.
func Start(b testing.TB, kind, address string, n int) *Process {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %s", env, kind, n, address))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	return &Process{in, bufio.NewReader(out)}
}

// ask says a line to the crowd and reads what it answers into values.
func (c *Process) ask(b testing.TB, question string, values ...any) {
	b.Helper()
	if _, err := fmt.Fprintln(c.in, question); err != nil {
		b.Fatal(err)
	}
	line, err := c.out.ReadString('\n')
	if err == nil && len(values) > 0 {
		_, err = fmt.Sscan(line, values...)
	}
	if err != nil {
		b.Fatalf("the crowd says %q: %v", line, err)
	}
}

// Until waits until all of the crowd have seen a checksum.
func (c *Process) Until(b testing.TB, sum uint64) {
	b.Helper()
	var got uint64
	if c.ask(b, fmt.Sprint("until ", sum), &got); got != sum {
		b.Fatalf("the crowd waited for %d", got)
	}
}

// Spread is how long after a moment a checksum was seen, by those who had seen
// another one by then: how many these are, half of them, 99 %, and the last.
func (c *Process) Spread(b testing.TB, sum, before uint64, since time.Time) (n int, p50, p99, last time.Duration) {
	b.Helper()
	var at [3]int64
	c.ask(b, fmt.Sprint("spread ", sum, " ", before, " ", since.UnixNano()), &n, &at[0], &at[1], &at[2])
	return n, time.Duration(at[0]), time.Duration(at[1]), time.Duration(at[2])
}

// Lost is how many streams have ended that had been served.
func (c *Process) Lost(b testing.TB) (n int) {
	b.Helper()
	c.ask(b, "lost", &n)
	return n
}

// crowd is what runs in that process.
type crowd struct {
	n       int
	kind    string
	address string

	mu    sync.Mutex
	moved *sync.Cond
	seen  map[uint64][]int64 // by checksum: when each subscriber has seen it, Unix nanoseconds
	count map[uint64]int
	lost  int // streams that have ended
}

// crowdMain is the crowd: it reads questions from stdin and answers them.
func crowdMain(arg string) {
	c := &crowd{seen: make(map[uint64][]int64), count: make(map[uint64]int)}
	c.moved = sync.NewCond(&c.mu)
	fmt.Sscan(arg, &c.kind, &c.n, &c.address)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		// Two hundred at a time, or the handshakes time out on a busy machine.
		joining := make(chan struct{}, 200)
		for i := range c.n {
			joining <- struct{}{}
			joined := sync.OnceFunc(func() { <-joining })
			if c.kind == Etcd {
				go c.watchKey(ctx, i, joined)
			} else {
				go c.subscribe(ctx, i, joined)
			}
		}
	}()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var what string
		var sum, before uint64
		var since int64
		fmt.Sscan(lines.Text(), &what, &sum, &before, &since)
		switch what {
		case "until":
			c.until(sum)
			fmt.Println(sum)
		case "spread":
			all := c.spread(sum, before, since)
			if len(all) == 0 {
				fmt.Println(0, 0, 0, 0)
				continue
			}
			at := func(share float64) int64 { return all[int(share*float64(len(all)-1))] }
			fmt.Println(len(all), at(.5), at(.99), at(1))
		case "lost":
			c.mu.Lock()
			fmt.Println(c.lost)
			c.mu.Unlock()
		}
	}
}

func (c *crowd) until(sum uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.count[sum] < c.n {
		c.moved.Wait()
	}
	// Only the last two matter from here on.
	for s := range c.seen {
		if len(c.seen) > 4 && s != sum && c.count[s] == c.n {
			delete(c.seen, s)
			delete(c.count, s)
		}
	}
}

func (c *crowd) spread(sum, before uint64, since int64) (all []int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, at := range c.seen[sum] {
		if b := c.seen[before]; at != 0 && len(b) > 0 && b[i] != 0 && b[i] < since {
			all = append(all, at-since)
		}
	}
	slices.Sort(all)
	return all
}

func (c *crowd) saw(i int, sum uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen[sum] == nil {
		c.seen[sum] = make([]int64, c.n)
	}
	if c.seen[sum][i] == 0 {
		c.seen[sum][i] = time.Now().UnixNano()
		if c.count[sum]++; c.count[sum] == c.n {
			c.moved.Broadcast()
		}
	}
}

// subscribe keeps one subscriber on the Distributor, with the waits that package
// subscriber has between attempts.
func (c *crowd) subscribe(ctx context.Context, i int, joined func()) {
	hello := &slicerv1.Hello{Job: Job, Role: slicerv1.Role_ROLE_CLERK, ClientId: fmt.Sprint("c", i)}
	for fails := 0; ctx.Err() == nil; {
		began := time.Now()
		err := c.watch(ctx, i, hello, joined)
		if ctx.Err() != nil {
			return
		}
		joined()
		if hello.Generation != 0 && time.Since(began) > 10*time.Millisecond {
			c.mu.Lock()
			c.lost++
			c.mu.Unlock()
		}
		wait := time.Duration(rand.Int64N(int64(300 * time.Millisecond)))
		if fails++; time.Since(began) >= 5*time.Second {
			fails = 0
		} else {
			most := min(250*time.Millisecond<<min(fails-1, 10), 5*time.Second)
			wait = most/2 + rand.N(most/2)
		}
		for _, d := range status.Convert(err).Details() {
			if m, ok := d.(*slicerv1.ComeBack); ok {
				asked := time.Duration(m.GetAfterMs()) * time.Millisecond
				wait = asked + rand.N(asked/2+1)
			}
		}
		time.Sleep(wait)
	}
}

func (c *crowd) dial() (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+c.address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithReadBufferSize(4<<10), grpc.WithWriteBufferSize(4<<10), grpc.WithIdleTimeout(0),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: 10 * time.Second}))
}

// watchKey has one subscriber watch the key in etcd.
func (c *crowd) watchKey(ctx context.Context, i int, joined func()) {
	defer joined()
	err := func() error {
		address, revision, _ := strings.Cut(c.address, "@")
		from, err := strconv.ParseInt(revision, 10, 64)
		if err != nil {
			return err
		}
		cl, err := clientv3.New(clientv3.Config{Endpoints: []string{address}, DialTimeout: time.Minute, Context: ctx, MaxCallRecvMsgSize: 64 << 20})
		if err != nil {
			return err
		}
		defer cl.Close()
		for r := range cl.Watch(ctx, Key, clientv3.WithRev(from)) {
			if err := r.Err(); err != nil {
				return err
			}
			for _, e := range r.Events {
				joined()
				c.saw(i, uint64(e.Kv.ModRevision))
			}
		}
		return nil
	}()
	if ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "watcher", i, "ended:", err)
	}
}

// watch runs one stream, and keeps in the hello what it holds.
func (c *crowd) watch(ctx context.Context, i int, hello *slicerv1.Hello, joined func()) error {
	cc, err := c.dial()
	if err != nil {
		return err
	}
	defer cc.Close()
	stream, err := slicerv1.NewSubscriberServiceClient(cc).Watch(ctx)
	if err != nil {
		return err
	}
	if err := stream.Send(&slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Hello{Hello: hello}}); err != nil {
		return err
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		t := m.GetTrailer()
		if t == nil {
			continue
		}
		if t.Base != 0 && t.Base != hello.Generation {
			return errors.New("a delta on something else than what is held")
		}
		joined()
		c.saw(i, t.Checksum)
		hello.Generation, hello.StoreId, hello.Checksum = t.Generation, Store, t.Checksum
		if err := stream.Send(&slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Ack{Ack: &slicerv1.Ack{Generation: t.Generation}}}); err != nil {
			return err
		}
	}
}
