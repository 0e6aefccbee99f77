//go:build system

package xds

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
)

var (
	python  = flag.Bool("xds.python", false, "keep Python's client while routes change, of which Debian 12's dies")
	modules = flag.String("xds.modules", "", "the node_modules that Node's client uses; empty: npm installs them")
)

// workdir has the clients, with what Node's needs.
func workdir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata")); err != nil {
		t.Fatal(err)
	}
	if *modules != "" {
		if err := os.Symlink(*modules, filepath.Join(dir, "node_modules")); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	run(t, dir, "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	return dir
}

func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	c := exec.Command(name, args...)
	c.Dir = dir
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// other is a client in another language, in a process of its own.
type other struct {
	t       *testing.T
	name    string
	in      io.WriteCloser
	out     *bufio.Reader
	process *exec.Cmd
	ended   sync.Once
}

func startOther(t *testing.T, name, dir string, addrs []string, argv ...string) *other {
	t.Helper()
	c := exec.Command(argv[0], append(argv[1:], job)...)
	c.Dir, c.Stderr = dir, t.Output()
	c.Env = append(os.Environ(), "GRPC_XDS_BOOTSTRAP_CONFIG="+string(bootstrap(t, name, addrs)))
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	o := &other{t: t, name: name, in: in, out: bufio.NewReaderSize(out, 1<<20), process: c}
	t.Cleanup(o.close)
	return o
}

// close ends the process, which must have lived until then.
func (o *other) close() {
	o.ended.Do(func() {
		o.in.Close()
		kill := time.AfterFunc(10*time.Second, func() { o.process.Process.Kill() })
		defer kill.Stop()
		if err := o.process.Wait(); err != nil {
			o.t.Errorf("%s: %v", o.name, err)
		}
	})
}

// said is what clients answer.
type said struct {
	Tasks         []string
	Calls, Failed int
	Errors        []string
	Error         string
}

// answerWithin is how long a client may take to do what it is asked: 3,000 calls, say, of
// which the first waits for 5,000 slices.
const answerWithin = 3 * time.Minute

func (o *other) ask(what string, v int) (s said) {
	o.t.Helper()
	late := time.AfterFunc(answerWithin, func() { o.process.Process.Kill() })
	defer late.Stop()
	fmt.Fprintf(o.in, "{%q: %d}\n", what, v)
	line, err := o.out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &s)
	}
	if err != nil || s.Error != "" {
		o.t.Fatalf("%s, asked to %s: %v %s", o.name, what, err, s.Error)
	}
	return s
}

func (o *other) check(keys int) []string { return o.ask("check", keys).Tasks }
func (o *other) begin(rate int)          { o.ask("rate", rate) }
func (o *other) stop() (int, int, []string) {
	s := o.ask("stop", 1)
	return s.Calls, s.Failed, s.Errors
}

// Clients of three languages at once go where keys are, and those of Go and Node lose no call
// while tasks come, drain and die, and a Distributor restarts.
func TestStockClients(t *testing.T) {
	dir := workdir(t)
	f := newFleet(t, assignment.JobConfig{HeartbeatTimeout: 2 * time.Second}, 3)
	all := map[string]caller{
		"go":     &inGo{t: t, cc: f.dial("go-0")},
		"node":   startOther(t, "node-0", dir, f.plane.Addrs(), "node", "client.mjs"),
		"python": startOther(t, "python-0", dir, f.plane.Addrs(), "/usr/bin/python3", "client.py"),
	}
	step := func(name string, do func(), tasks int) {
		began := time.Now()
		do()
		f.settled(tasks)
		f.agree(all, 300)
		t.Logf("%s: all agree after %s", name, time.Since(began).Round(time.Millisecond))
	}
	step("start", func() {}, 3)
	f.agree(all, 3000)
	if !*python { // grpcio 1.51.1 dies of a segmentation fault when routes change: see XDS.md
		all["python"].(*other).close()
		delete(all, "python")
	}
	for _, c := range all {
		c.begin(*rate)
	}
	step("a task added", func() { f.add("t3") }, 4)
	step("a task drained", func() { f.drain("t0") }, 3)
	step("a task killed", func() {
		f.kill("t1")
	}, 2)
	step("a distributor restarted", func() {
		if err := f.plane.Distributors[0].Stop(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if err := f.plane.Distributors[0].Restart(); err != nil {
			t.Fatal(err)
		}
	}, 2)
	step("another task added", func() { f.add("t4") }, 3)
	for name, c := range all {
		calls, failed, errors := c.stop()
		t.Logf("%s: %d calls, %d failed", name, calls, failed)
		if failed > 0 || calls == 0 {
			t.Errorf("%s: %d of %d calls failed: %q", name, failed, calls, errors)
		}
	}
	for i := range f.plane.Distributors {
		m, err := f.inspect(i)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range m.Xds {
			t.Logf("inspect: %v", x)
			if x.Refusing > 0 || x.Nacks > 0 {
				t.Errorf("a client refuses: %v", x)
			}
		}
	}
}

// Those of Node and Python go where keys are at 150 and at 5,000 slices, where slices end
// anywhere and where the balancer ends them.
func TestStockClientsOfManySlices(t *testing.T) {
	dir := workdir(t)
	addrs := serveAll(t, stageTasks)
	for _, x := range stages {
		s := x.make(t, addrs)
		for name, argv := range map[string][]string{"node": {"node", "client.mjs"}, "python": {"/usr/bin/python3", "client.py"}} {
			t.Run(x.name+"/"+name, func(t *testing.T) {
				began := time.Now()
				o := startOther(t, name, dir, []string{s.addr}, argv...)
				for i, task := range o.check(3000) {
					if key := fmt.Sprintf("user-%d", i); !owns(s.a, task, key) {
						t.Errorf("%s is answered by %s", key, task)
					}
				}
				o.close()
				t.Logf("%d slices: 3,000 calls after %s", s.a.NumSlices(), time.Since(began).Round(time.Millisecond))
			})
		}
	}
}

// The hash of each language gives what Go's gives.
func TestHashes(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata")); err != nil {
		t.Fatal(err)
	}
	run(t, dir, "g++", "-O1", "-o", "slicekey", "slicekey.cc")
	run(t, dir, "javac", "-encoding", "UTF-8", "SliceKey.java")
	var want strings.Builder
	for _, key := range vectors {
		fmt.Fprintln(&want, assignment.KeyOf(key))
	}
	for _, argv := range [][]string{
		{"node", "--input-type=module", "-e", "import { sliceKey } from './slicekey.mjs'; for (const key of process.argv.slice(1)) console.log(sliceKey(key));", "--"},
		{"/usr/bin/python3", "-c", "import sys\nfrom slicekey import slice_key\nfor key in sys.argv[1:]: print(slice_key(key))"},
		{"env", "LC_ALL=C.UTF-8", "java", "SliceKey"},
		{filepath.Join(dir, "slicekey")},
	} {
		if got := run(t, dir, argv[0], append(argv[1:], vectors...)...); got != want.String() {
			t.Errorf("%s: other slice keys than Go's:\n%s", argv[0], got)
		}
	}
}
