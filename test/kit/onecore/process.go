package onecore

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/assignment/cputest"
	"github.com/slicer-project/slicer/test/examples/greeter/hello"
)

const serverEnv = "SLICER_BENCH_SERVER" // kind, CPU time of a request, Distributors

// burner is a server whose requests take CPU time.
type burner struct {
	hello.Greeter
	loops int
}

var sink atomic.Uint64

// Burn takes CPU time.
func Burn(loops int) {
	x := uint64(1)
	for range loops {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	sink.Store(x)
}

// Loops are how many loops of Burn take so long on an idle core.
func Loops(takes time.Duration) int {
	const loops = 1 << 20
	best := time.Hour
	for range 20 {
		begin := time.Now()
		Burn(loops)
		best = min(best, time.Since(begin))
	}
	return int(float64(loops) * float64(takes) / float64(best))
}

func (b *burner) SayHello(_ context.Context, in *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
	Burn(b.loops)
	return in, nil
}

// Serve is called by a TestMain before all else. In the process of a server it serves, and ends
// the process with its standard input; in any other it does nothing.
func Serve(kinds []Kind) {
	spec := os.Getenv(serverEnv)
	if spec == "" {
		return
	}
	if err := serveAlone(kinds, spec); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// serveAlone is the process of a server: it prints its address, and ends with its input.
func serveAlone(kinds []Kind, spec string) error {
	fields := strings.Split(spec, ",")
	place := Place{Job: fields[0], Distributors: fields[2:]}
	takes, err := time.ParseDuration(fields[1])
	if err != nil {
		return err
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	place.Addr = lis.Addr().String()
	b := &burner{loops: Loops(takes)}
	var opts []grpc.ServerOption
	for _, k := range kinds {
		if k.Name != place.Job || k.Options == nil {
			continue
		}
		var end func()
		if opts, end, err = k.Options(place); err != nil {
			return err
		}
		if end != nil {
			defer end()
		}
	}
	server := grpc.NewServer(opts...)
	hello.RegisterGreeterServer(server, b)
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); server.Stop() }()
	fmt.Println(place.Addr)
	return server.Serve(lis)
}

// Process is this program once more, as a server, on the servers' core.
type Process struct {
	Addr string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Scanner
	// group is the cgroup that says how much of a core it may have, empty without.
	group string
}

// Start starts this program with more in its environment, by which it knows what to do. It is
// to print the address that it serves, and to end with its standard input.
func Start(tb testing.TB, env ...string) *Process {
	tb.Helper()
	p := &Process{cmd: exec.Command(os.Args[0])}
	if taskset, err := exec.LookPath("taskset"); err == nil && runtime.NumCPU() > 1 {
		p.cmd = exec.Command(taskset, "-c", "1", os.Args[0])
	}
	p.cmd.Env = append(append(os.Environ(), "GOMAXPROCS=1"), env...)
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		p.in, err = p.cmd.StdinPipe()
	}
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.Stop)
	if p.out = bufio.NewScanner(out); !p.out.Scan() {
		tb.Fatal("the server has not said its address")
	}
	p.Addr = p.out.Text()
	return p
}

// Apart keeps the load and the control plane off the servers' core until the benchmark ends.
func Apart(b *testing.B) {
	taskset, err := exec.LookPath("taskset")
	if err != nil || runtime.NumCPU() < 2 {
		return
	}
	pin := func(cores string) {
		if out, err := exec.Command(taskset, "-a", "-c", "-p", cores, strconv.Itoa(os.Getpid())).CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
	}
	pin("0")
	b.Cleanup(func() { pin(fmt.Sprintf("0-%d", runtime.NumCPU()-1)) })
}

// Stop ends it, and may be called again.
func (p *Process) Stop() {
	_ = p.in.Close()
	_ = p.cmd.Wait()
	if p.group != "" {
		_ = os.Remove(p.group)
		p.group = ""
	}
}

// Ask is what it answers to a line of input, in one line.
func (p *Process) Ask(tb testing.TB, what string) string {
	tb.Helper()
	if _, err := fmt.Fprintln(p.in, what); err != nil || !p.out.Scan() {
		tb.Fatal("the server has ended")
	}
	return p.out.Text()
}

func (p *Process) proc(tb testing.TB, file string) string {
	tb.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p.cmd.Process.Pid, file))
	if err != nil {
		tb.Fatal(err)
	}
	return string(text)
}

// CPU is what it has used.
func (p *Process) CPU(tb testing.TB) time.Duration {
	tb.Helper()
	used, err := cputest.Of(p.cmd.Process.Pid)
	if err != nil {
		tb.Fatal(err)
	}
	return used
}

// MostMemory is the most that it has had resident, bytes.
func (p *Process) MostMemory(tb testing.TB) int64 {
	tb.Helper()
	_, after, _ := strings.Cut(p.proc(tb, "status"), "VmHWM:")
	var kib int64
	if _, err := fmt.Sscan(after, &kib); err != nil {
		tb.Fatal(err)
	}
	return kib << 10
}

// process is a server of a Kind.
type process struct {
	*Process
	place Place
}

func startProcess(tb testing.TB, place Place, takes time.Duration) *process {
	tb.Helper()
	spec := append([]string{place.Job, takes.String()}, place.Distributors...)
	p := &process{Start(tb, serverEnv+"="+strings.Join(spec, ",")), place}
	p.place.Addr = p.Addr
	return p
}

// settle waits until the process has done what nothing waits for any more: an unprotected
// server works on for long after a load, and would take the core from the next one.
func (p *process) settle(tb testing.TB) {
	tb.Helper()
	for before := p.CPU(tb); ; {
		time.Sleep(300 * time.Millisecond)
		now := p.CPU(tb)
		if now-before < 30*time.Millisecond {
			return
		}
		before = now
	}
}
