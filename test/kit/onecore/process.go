package onecore

import (
	"bufio"
	"context"
	"errors"
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

	"github.com/slicer-project/slicer/test/examples/greeter/hello"
)

const serverEnv = "SLICER_BENCH_SERVER" // kind, CPU time of a request, Distributors

// burner is a server whose requests take CPU time.
type burner struct {
	hello.Greeter
	loops int
}

var sink atomic.Uint64

func burn(loops int) {
	x := uint64(1)
	for range loops {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	sink.Store(x)
}

// calibrate finds out how many loops take so long on an idle core.
func calibrate(takes time.Duration) int {
	const loops = 1 << 20
	best := time.Hour
	for range 20 {
		begin := time.Now()
		burn(loops)
		best = min(best, time.Since(begin))
	}
	return int(float64(loops) * float64(takes) / float64(best))
}

func (b *burner) SayHello(_ context.Context, in *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
	burn(b.loops)
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
	b := &burner{loops: calibrate(takes)}
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

// process is such a server, on one core.
type process struct {
	place Place
	cmd   *exec.Cmd
	stdin io.Closer
}

// onCore is a command that runs on one core, where that can be had.
func onCore(n int, args ...string) *exec.Cmd {
	if taskset, err := exec.LookPath("taskset"); err == nil && runtime.NumCPU() > 1 {
		args = append([]string{taskset, "-c", strconv.Itoa(n)}, args...)
	}
	return exec.Command(args[0], args[1:]...)
}

func startProcess(tb testing.TB, place Place, takes time.Duration) *process {
	tb.Helper()
	p := &process{place: place, cmd: onCore(1, os.Args[0])}
	spec := append([]string{place.Job, takes.String()}, place.Distributors...)
	p.cmd.Env = append(os.Environ(), "GOMAXPROCS=1", serverEnv+"="+strings.Join(spec, ","))
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		p.stdin, err = p.cmd.StdinPipe()
	}
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.end)
	addr, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		tb.Fatal("the server has not said its address: ", err)
	}
	p.place.Addr = strings.TrimSpace(addr)
	return p
}

func (p *process) end() {
	_ = p.stdin.Close()
	_ = p.cmd.Wait()
}

// cpu is what the process has used.
func (p *process) cpu(tb testing.TB) time.Duration {
	tb.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		tb.Fatal(err)
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	user, err := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	if err := errors.Join(err, err2); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(user+system) * (time.Second / 100)
}

// settle waits until the process has done what nothing waits for any more: an unprotected
// server works on for long after a load, and would take the core from the next one.
func (p *process) settle(tb testing.TB) {
	tb.Helper()
	for before := p.cpu(tb); ; {
		time.Sleep(300 * time.Millisecond)
		now := p.cpu(tb)
		if now-before < 30*time.Millisecond {
			return
		}
		before = now
	}
}
