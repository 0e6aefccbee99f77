package greeter

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/assignment/waittest"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/slicelet/sliceletgrpc"
	"github.com/slicer-project/slicer/test/examples/greeter/hello"
)

const (
	taskVariable   = "SLICER_TEST_GREETER_TASK"
	slicerVariable = "SLICER_TEST_GREETER_SLICER"
)

// The answers of a server that tells whether it owns the key.
const owned, notOwned = "owned", "not owned"

// teller answers with that instead of a greeting.
type teller struct{ hello.Greeter }

func (teller) SayHello(ctx context.Context, _ *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
	if h, ok := sliceletgrpc.HandleFrom(ctx); !ok || !h.Owned() {
		return wrapperspb.String(notOwned), nil
	}
	return wrapperspb.String(owned), nil
}

// greeterServer is what the program server is made of.
type greeterServer struct {
	lis      net.Listener
	slicelet *slicelet.Slicelet
	server   *grpc.Server
}

func newServer(task, slicer string) (*greeterServer, error) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s, err := slicelet.New(slicelet.Config{Job: job, Task: task, Address: lis.Addr().String(), Distributors: []string{slicer}})
	if err != nil {
		return nil, errors.Join(err, lis.Close())
	}
	server := grpc.NewServer(sliceletgrpc.ServerOptions(s, sliceletgrpc.Config{Key: nameOf})...)
	hello.RegisterGreeterServer(server, teller{})
	return &greeterServer{lis, s, server}, nil
}

// serve is a server's process: it ends as the program server does when it is told
// so, and at once when the process that started it is no more.
func serve(task, slicer string) error {
	s, err := newServer(task, slicer)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- s.server.Serve(s.lis) }()
	fmt.Println(s.lis.Addr())
	drain := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(os.Stdin).ReadString('\n')
		drain <- line
	}()
	if line := <-drain; line == "" {
		return errors.New("orphaned")
	}
	return errors.Join(sliceletgrpc.Drain(context.Background(), s.slicelet, s.server, nil), <-ended)
}

// nameOf is the key of RPCs that do not bring it in their metadata.
func nameOf(_ string, request any) (string, bool) {
	name, ok := request.(*wrapperspb.StringValue)
	return name.GetValue(), ok
}

// process is a server's process, as the test sees it.
type process struct {
	task string
	addr string
	cmd  *exec.Cmd
	in   io.WriteCloser
	err  *strings.Builder
}

func start(task, slicer string) (*process, error) {
	p := &process{task: task, cmd: exec.Command(os.Args[0]), err: &strings.Builder{}}
	p.cmd.Env = append(os.Environ(), taskVariable+"="+task, slicerVariable+"="+slicer)
	p.cmd.Stderr = p.err
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, errors.Join(err, p.kill())
	}
	p.addr = strings.TrimSpace(line)
	return p, nil
}

// drain has the process drain and waits for its end.
func (p *process) drain() error {
	if _, err := io.WriteString(p.in, "drain\n"); err != nil {
		return err
	}
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w: %s", p.task, err, p.err)
	}
	return nil
}

// kill kills the process and waits until it is dead.
func (p *process) kill() error {
	if err := p.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	err := p.cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil
	}
	return fmt.Errorf("%s was killed: %w", p.task, err)
}

// startAll starts servers; those that are left are killed at the end.
func startAll(tb testing.TB, n int, slicer string) []*process {
	tb.Helper()
	all := make([]*process, n)
	for i := range all {
		p, err := start(fmt.Sprintf("greeter-%02d", i), slicer)
		if err != nil {
			tb.Fatal(err)
		}
		all[i] = p
	}
	tb.Cleanup(func() {
		for _, p := range all {
			if p.cmd.ProcessState != nil {
				continue
			}
			if err := p.kill(); err != nil {
				tb.Error(err)
			}
		}
	})
	return all
}

func await(tb testing.TB, what string, done func() bool) {
	tb.Helper()
	for end := time.Now().Add(waittest.Patience); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatalf("not within a minute: %s", what)
		}
	}
}
