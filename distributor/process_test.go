package distributor

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/slicer-project/slicer/assignment/limiter"
	"github.com/slicer-project/slicer/distributor/crowdtest"
)

// processEnv has the test binary be a Distributor instead: where it is to listen, its
// assigner, and the kind of crowd that it is for.
const processEnv = "SLICER_TEST_DISTRIBUTOR"

// processMain runs the Distributor if this process is to be one, until its input ends,
// and reports whether it was.
func processMain() (was bool) {
	arg := os.Getenv(processEnv)
	if arg == "" {
		return false
	}
	var listen, assigner, how string
	fmt.Sscan(arg, &listen, &assigner, &how)
	l, err := net.Listen("tcp", listen)
	if err != nil {
		panic(err)
	}
	d, err := New(Config{ID: "d1", Assigners: []string{assigner}})
	if err != nil {
		panic(err)
	}
	if how == crowdtest.AtOnce {
		d.wholes = limiter.NewWholes[*job](math.MaxInt, 0)
	} else {
		l = d.Admit(l)
	}
	s := grpc.NewServer(ServerOptions()...)
	d.Register(s)
	go s.Serve(l)
	fmt.Println(l.Addr())
	io.Copy(io.Discard, os.Stdin)
	return true
}

// distributorProcess is a Distributor in a process of its own.
type distributorProcess struct {
	b       *testing.B
	cmd     *exec.Cmd
	address string
}

// startProcess starts one and waits until it listens. It lasts until it is killed, or
// the benchmark is over.
func startProcess(b *testing.B, listen, assigner, how string) *distributorProcess {
	b.Helper()
	p := &distributorProcess{b: b, cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %s", processEnv, listen, assigner, how))
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if _, err := p.cmd.StdinPipe(); err != nil { // it ends with this process at the latest
		b.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(p.kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal("the Distributor does not say where it listens: ", err)
	}
	p.address = strings.TrimSpace(line)
	return p
}

func (p *distributorProcess) kill() {
	p.cmd.Process.Kill()
	p.cmd.Wait()
}

// used is the CPU time that it has used, to 10 ms, and the most memory that it has had
// resident, MiB.
func (p *distributorProcess) used() (cpu time.Duration, peak float64) {
	p.b.Helper()
	read := func(name string) string {
		content, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p.cmd.Process.Pid, name))
		if err != nil {
			p.b.Fatal(err)
		}
		return string(content)
	}
	// The 14th and 15th field of stat are user and system time; the second ends with
	// the last parenthesis.
	stat := read("stat")
	var state string
	var user, system, skip int64
	fmt.Sscan(stat[strings.LastIndexByte(stat, ')')+1:], &state, &skip, &skip, &skip, &skip, &skip, &skip, &skip, &skip, &skip, &skip, &user, &system)
	_, most, _ := strings.Cut(read("status"), "VmHWM:")
	var kib float64
	fmt.Sscan(most, &kib)
	return time.Duration(user+system) * 10 * time.Millisecond, kib / 1024
}
