package distributor

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/slicer-project/slicer/assignment"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// crowdEnv has the test binary be a crowd of subscribers instead.
const crowdEnv = "SLICER_TEST_CROWD"

// BenchmarkFanOut changes 1 % of an assignment of 1,000 tasks and 10^5 slices
// and waits until the last of many subscribers, raw streams in a process of
// their own, has seen the trailer's checksum. Limits: last-ms 1000, KiB/sub 64
// (what the Distributor's process grows by, buffers of its kernel apart),
// encodes/gen 1.
func BenchmarkFanOut(b *testing.B) {
	for _, n := range []int{100, 1000, 10000} {
		b.Run(fmt.Sprintf("subscribers=%d", n), func(b *testing.B) { fanOut(b, n) })
	}
}

func fanOut(b *testing.B, n int) {
	reg := prometheus.NewRegistry()
	_, f, address := loopback(b, Config{Registerer: reg})
	a := firstOf(b, testJob, testStore, baseGen, 100_000)
	f.set(a)
	before := resident()
	crowd := startCrowd(b, address, n)
	crowd.until(b, a)
	perSub := float64(resident()-before) / float64(n) / 1024
	encodes := value(b, reg, "slicer_distributor_encodes_total", kindDelta)
	var last time.Duration
	for b.Loop() {
		b.StopTimer()
		next := after(b, a, 1000)
		b.StartTimer()
		began := time.Now()
		f.set(next)
		crowd.until(b, next)
		last = max(last, time.Since(began))
		a = next
	}
	b.StopTimer()
	b.ReportMetric(float64(last.Milliseconds()), "last-ms")
	b.ReportMetric(perSub, "KiB/sub")
	b.ReportMetric(float64(resident()-before)/float64(n)/1024, "KiB/sub-after")
	b.ReportMetric((value(b, reg, "slicer_distributor_encodes_total", kindDelta)-encodes)/float64(b.N), "encodes/gen")
}

// resident is the memory of this process, bytes.
func resident() int64 {
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.Sys - m.HeapReleased)
}

// crowdProcess is a process with many subscribers.
type crowdProcess struct {
	in  io.WriteCloser
	out *bufio.Reader
}

func startCrowd(b *testing.B, address string, n int) *crowdProcess {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crowdEnv+"="+strconv.Itoa(n)+" "+address)
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
	return &crowdProcess{in, bufio.NewReader(out)}
}

// until waits until all of the crowd have seen a's checksum.
func (c *crowdProcess) until(b *testing.B, a *assignment.Assignment) {
	b.Helper()
	if err := binary.Write(c.in, binary.LittleEndian, a.Checksum()); err != nil {
		b.Fatal(err)
	}
	line, err := c.out.ReadString('\n')
	if err != nil || line != fmt.Sprintln(a.Checksum()) {
		b.Fatalf("the crowd says %q, %v", line, err)
	}
}

// crowdMain is the crowd: it reads checksums from stdin and answers each with
// itself once everybody has seen it.
func crowdMain(arg string) {
	var n int
	var address string
	fmt.Sscan(arg, &n, &address)
	var mu sync.Mutex
	seen := make(map[uint64]int)
	moved := sync.NewCond(&mu)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	// Two hundred at a time, or the handshakes time out on a busy machine.
	joining := make(chan struct{}, 200)
	go func() {
		for i := range n {
			joining <- struct{}{}
			go func() {
				err := rawSubscriber(ctx, address, i, func(sum uint64) {
					mu.Lock()
					seen[sum]++
					if seen[sum] == 1 && len(seen) == 1 || seen[sum] == n {
						moved.Broadcast()
					}
					mu.Unlock()
				}, func() { <-joining })
				if ctx.Err() == nil {
					fmt.Fprintln(os.Stderr, "subscriber", i, "ended:", err)
				}
			}()
		}
	}()
	for {
		var sum uint64
		if err := binary.Read(os.Stdin, binary.LittleEndian, &sum); err != nil {
			return
		}
		mu.Lock()
		for seen[sum] < n {
			moved.Wait()
		}
		delete(seen, sum)
		mu.Unlock()
		fmt.Println(sum)
	}
}

// rawSubscriber acknowledges what it is sent without decoding it.
func rawSubscriber(ctx context.Context, address string, i int, saw func(uint64), joined func()) error {
	once := sync.OnceFunc(joined)
	defer once()
	cc, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithReadBufferSize(4<<10), grpc.WithWriteBufferSize(4<<10))
	if err != nil {
		return err
	}
	defer cc.Close()
	stream, err := slicerv1.NewSubscriberServiceClient(cc).Watch(ctx)
	if err != nil {
		return err
	}
	hello := &slicerv1.Hello{Job: testJob, Role: slicerv1.Role_ROLE_CLERK, ClientId: fmt.Sprint("c", i)}
	if err := stream.Send(&slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Hello{Hello: hello}}); err != nil {
		return err
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		if t := m.GetTrailer(); t != nil {
			once()
			saw(t.Checksum)
			if err := stream.Send(&slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Ack{Ack: &slicerv1.Ack{Generation: t.Generation}}}); err != nil {
				return err
			}
		}
	}
}
