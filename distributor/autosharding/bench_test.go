package autosharding

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/distributor/autosharding/autoshardingtest"
)

// crowdEnv has the test binary be a crowd of clients instead.
const crowdEnv = "SLICER_TEST_AUTOSHARDING_CROWD"

func BenchmarkEncode(b *testing.B) {
	a := makeAssignment(b, baseGen, 1000, 100_000, false)
	b.ReportAllocs()
	size := 0
	for b.Loop() {
		size = 0
		for _, m := range encode(a, addresses) {
			size += len(m)
		}
	}
	b.SetBytes(int64(size))
	b.ReportMetric(float64(size)/1e5, "bytes/slice")
}

// BenchmarkFanOut changes an assignment and waits until the last of many clients,
// in a process of their own, has acknowledged it. KiB/client is what this process
// has grown by, one encoding of the assignment included.
func BenchmarkFanOut(b *testing.B) {
	for _, c := range []struct{ clients, slices int }{{100, 100_000}, {1000, 10_000}, {10_000, 1000}} {
		b.Run(fmt.Sprintf("clients=%d,slices=%d", c.clients, c.slices), func(b *testing.B) { fanOut(b, c.clients, c.slices) })
	}
}

func fanOut(b *testing.B, clients, slices int) {
	src := newCountingSource()
	s, err := New(Config{Source: src})
	if err != nil {
		b.Fatal(err)
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	// As distributor.ServerOptions has them.
	server := grpc.NewServer(grpc.ReadBufferSize(4<<10), grpc.WriteBufferSize(16<<10), grpc.StaticStreamWindowSize(64<<10), grpc.StaticConnWindowSize(128<<10))
	s.Register(server)
	go server.Serve(lis)
	b.Cleanup(func() { s.Close(); server.Stop() })

	gen := assignment.Generation(baseGen)
	src.set(makeAssignment(b, gen, 100, slices, false), nil)
	before := resident()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s", crowdEnv, clients, lis.Addr()))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { in.Close(); cmd.Wait() })
	src.until(b, gen, clients)
	first := resident()
	var last time.Duration
	for b.Loop() {
		gen++
		next := makeAssignment(b, gen, 100, slices, false)
		began := time.Now()
		src.set(next, nil)
		src.until(b, gen, clients)
		last = max(last, time.Since(began))
	}
	b.ReportMetric(float64(last.Milliseconds()), "last-ms")
	b.ReportMetric(float64(first-before)/float64(clients)/1024, "KiB/client")
	b.ReportMetric(float64(resident()-before)/float64(clients)/1024, "KiB/client-after")
}

// resident is the memory of this process, bytes.
func resident() int64 {
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.Sys - m.HeapReleased)
}

// countingSource counts how many clients hold what.
type countingSource struct {
	*fakeSource
	gen   atomic.Int64
	holds atomic.Int64
}

func newCountingSource() *countingSource { return &countingSource{fakeSource: newFakeSource()} }

func (c *countingSource) Join(context.Context, string, string, assignment.Generation) (Feed, error) {
	return countingFeed{fakeFeed{fakeSource: c.fakeSource}, c}, nil
}

func (c *countingSource) until(b *testing.B, g assignment.Generation, n int) {
	for began := time.Now(); c.gen.Load() != int64(g) || c.holds.Load() < int64(n); time.Sleep(time.Millisecond) {
		if time.Since(began) > 2*time.Minute {
			b.Fatalf("%d of %d hold generation %d", c.holds.Load(), n, g)
		}
	}
}

type countingFeed struct {
	fakeFeed
	c *countingSource
}

func (f countingFeed) Leave(time.Time) {}
func (f countingFeed) Holds(_ time.Time, g assignment.Generation) {
	if f.c.gen.Swap(int64(g)) != int64(g) {
		f.c.holds.Store(0)
	}
	f.c.holds.Add(1)
}

// crowdMain is the crowd, until its standard input ends.
func crowdMain(arg string) {
	var n int
	var addr string
	fmt.Sscan(arg, &n, &addr)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	joining := make(chan struct{}, 200)
	go func() {
		for i := range n {
			joining <- struct{}{}
			go func() {
				defer func() { <-joining }()
				cc, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
					grpc.WithReadBufferSize(4<<10), grpc.WithWriteBufferSize(4<<10))
				if err == nil {
					err = crowdClient(ctx, cc, i)
				}
				if err != nil && ctx.Err() == nil {
					fmt.Fprintln(os.Stderr, "client", i, "ended:", err)
				}
			}()
		}
	}()
	bufio.NewReader(os.Stdin).ReadByte()
}

// crowdClient returns when the first assignment has come, and goes on.
func crowdClient(ctx context.Context, cc *grpc.ClientConn, i int) error {
	c, err := autoshardingtest.Watch(ctx, cc, "web", fmt.Sprint("u", i), 0)
	if err != nil {
		return err
	}
	g, err := c.Skim()
	if err != nil {
		return err
	}
	go func() {
		for err == nil {
			c.Ack(g, "")
			g, err = c.Skim()
		}
	}()
	return nil
}
