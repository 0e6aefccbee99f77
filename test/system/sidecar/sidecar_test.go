package sidecar

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/slicer-project/slicer/assignment/waittest"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/front"
	"github.com/slicer-project/slicer/test/kit/process"
	"github.com/slicer-project/slicer/test/slicertest"
)

// The test binary is also the programs of the test: the role comes in this variable, and the
// server's address in the other.
const (
	roleEnv   = "SLICER_TEST_ROLE"
	serverEnv = "SLICER_TEST_SERVER"
)

func TestMain(m *testing.M) {
	var err error
	switch os.Getenv(roleEnv) {
	case "":
		code := process.Main(m)
		if err := goleak.Find(); code == 0 && err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		os.Exit(code)
	case "server":
		body := []byte(strings.Repeat("x", 1023) + "\n")
		err = serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(body) }))
	case "plain":
		err = serve(plain(os.Getenv(serverEnv)))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serve prints where it listens and serves until standard input ends.
func serve(h http.Handler) error {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: h}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		srv.Close()
	}()
	fmt.Println(lis.Addr())
	if err := srv.Serve(lis); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// plain is httputil's ReverseProxy as one would tune it. Its heap is collected as seldom as the
// sidecar's.
func plain(server string) http.Handler {
	ballast := make([]byte, 32<<20)
	dialer := &net.Dialer{Timeout: 2 * time.Second, KeepAlive: 30 * time.Second}
	return &httputil.ReverseProxy{
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.Out.URL.Scheme, pr.Out.URL.Host = "http", server
			pr.Out.Host = pr.In.Host
			pr.SetXForwarded()
		},
		Transport:      &http.Transport{DialContext: dialer.DialContext, MaxIdleConnsPerHost: 1024, IdleConnTimeout: time.Minute, DisableCompression: true},
		BufferPool:     &front.Buffers{},
		ModifyResponse: func(*http.Response) error { _ = ballast; return nil },
	}
}

// program is a process that serves.
type program struct {
	address string
	pid     int
}

// start runs a program until the test ends, and waits until where finds its address in what it says.
func start(tb testing.TB, cmd *exec.Cmd, where func(line string) string) *program {
	tb.Helper()
	in, err := cmd.StdinPipe() // whose end, by our own too, ends it
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	found, done := make(chan string, 1), make(chan struct{})
	go func() {
		defer close(done)
		defer close(found)
		sent := false
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if at := where(lines.Text()); at != "" && !sent {
				found <- at
				sent = true
			} else if !sent {
				tb.Log(lines.Text())
			}
		}
	}()
	tb.Cleanup(func() {
		in.Close()
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-done
		_ = cmd.Wait()
	})
	p := &program{<-found, cmd.Process.Pid}
	if p.address == "" {
		tb.Fatalf("%v does not serve", cmd.Args)
	}
	return p
}

func role(tb testing.TB, name, server string) *program {
	tb.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleEnv+"="+name, serverEnv+"="+server)
	return start(tb, cmd, func(line string) string { return line })
}

// listens finds where slicerproxy listens in what it logs.
func listens(line string) string {
	var m struct{ Msg, Listen string }
	if json.Unmarshal([]byte(line), &m) != nil || m.Msg != "serving" {
		return ""
	}
	return m.Listen
}

// rig is a server, and both before it.
func rig(tb testing.TB) (sidecar, plain *program) {
	tb.Helper()
	process.Build(tb, "slicerproxy", "github.com/slicer-project/slicer/cmd/slicerproxy")
	env := slicertest.Start()
	tb.Cleanup(env.Close)
	server := role(tb, "server", "").address
	plain = role(tb, "plain", server)
	sidecar = start(tb, exec.Command(process.Program("slicerproxy"), "--job=web", "--task=a", "--upstream="+server, "--distributors="+env.Loopback(),
		"--listen=127.0.0.1:0", "--http=", "--log-format=json", "--drain-timeout=1s"), listens)
	c := env.Clerk(clerk.Config{Job: "web"})
	for deadline := time.Now().Add(waittest.Patience); c.Assignment() == nil || !c.Lookup("k").Has(0); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatal("the task owns nothing")
		}
	}
	return sidecar, plain
}

// load has so many clients send requests to a program for a while, one after the other, and returns how
// many were answered.
func load(tb testing.TB, p *program, many int, d time.Duration) float64 {
	tb.Helper()
	tr := &http.Transport{MaxIdleConnsPerHost: 128}
	defer tr.CloseIdleConnections()
	var n, failed atomic.Int64
	var clients sync.WaitGroup
	began := time.Now()
	for c := range many {
		clients.Go(func() {
			for i := 0; time.Since(began) < d; i++ {
				req, err := http.NewRequest("GET", "http://"+p.address+"/profile", nil)
				if err != nil {
					failed.Add(1)
					return
				}
				req.Header["Slicer-Key"] = []string{fmt.Sprint("user/", c, "/", i%1000)}
				req.Header["Slicer-Generation"] = []string{"1"}
				resp, err := tr.RoundTrip(req)
				if err != nil {
					failed.Add(1)
					continue
				}
				if m, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != 200 || m != 1024 {
					failed.Add(1)
				}
				resp.Body.Close()
				n.Add(1)
			}
		})
	}
	clients.Wait()
	if failed.Load() > 0 {
		tb.Errorf("%d requests failed", failed.Load())
	}
	return float64(n.Load())
}

// cpu is what a process's threads have used, nanoseconds: Go ends none of them.
func cpu(tb testing.TB, p *program) (sum float64) {
	tb.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p.pid))
	if err != nil || len(threads) == 0 {
		tb.Fatal(threads, err)
	}
	for _, file := range threads {
		data, err := os.ReadFile(file)
		if err != nil {
			tb.Fatal(err)
		}
		ran, _, _ := strings.Cut(string(data), " ")
		ns, err := strconv.ParseFloat(ran, 64)
		if err != nil {
			tb.Fatal(err)
		}
		sum += ns
	}
	return sum
}

// each is the CPU that a program takes for a request, microseconds.
func each(tb testing.TB, p *program, many int, d time.Duration) float64 {
	tb.Helper()
	before := cpu(tb, p)
	n := load(tb, p, many, d)
	return (cpu(tb, p) - before) / 1000 / n
}

// TestRig: both serve the same, and the sidecar's CPU can be told. More clients than few may ask for
// more than a machine can do that has just begun to, or that others use, and the sidecar refuses that.
func TestRig(t *testing.T) {
	const few = 4
	sidecar, plain := rig(t)
	for _, p := range []*program{sidecar, plain} {
		if us := each(t, p, few, 300*time.Millisecond); us <= 0 {
			t.Errorf("%v us a request", us)
		}
	}
}

// BenchmarkCPU reports the CPU for a request of both, microseconds, and their ratio: the medians of
// rounds of a quarter of a second, in turns, and the quartiles of the ratio.
func BenchmarkCPU(b *testing.B) {
	sidecar, plain := rig(b)
	const round = time.Second / 4
	var ours, theirs, ratios []float64
	for b.Loop() {
		each(b, sidecar, 64, time.Second)
		each(b, plain, 64, time.Second)
		for i := range 60 {
			var s, p float64
			if i%2 == 0 {
				s, p = each(b, sidecar, 64, round), each(b, plain, 64, round)
			} else {
				p, s = each(b, plain, 64, round), each(b, sidecar, 64, round)
			}
			ours, theirs, ratios = append(ours, s), append(theirs, p), append(ratios, s/p)
		}
	}
	b.ReportMetric(median(ours), "sidecar-us/req")
	b.ReportMetric(median(theirs), "plain-us/req")
	b.ReportMetric(median(ratios), "ratio")
	b.ReportMetric(ratios[len(ratios)/4], "ratio-q1")
	b.ReportMetric(ratios[3*len(ratios)/4], "ratio-q3")
	b.ReportMetric(0, "ns/op")
}

func median(list []float64) float64 {
	slices.Sort(list)
	n := len(list)
	return (list[(n-1)/2] + list[n/2]) / 2
}
