package sidecar

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/slicer-project/slicer/assignment/waittest"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/front"
	"github.com/slicer-project/slicer/test/kit/process"
	"github.com/slicer-project/slicer/test/slicertest"
)

// The test binary is also the programs of the test. The server's address comes in this variable.
const serverEnv = "SLICER_TEST_SERVER"

func TestMain(m *testing.M) {
	var err error
	switch process.Role() {
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

func serve(h http.Handler) error {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	return process.ServeHTTP(lis, h)
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

// rig is a server, and both before it.
func rig(tb testing.TB) (sidecar, plain process.Server) {
	tb.Helper()
	process.Build(tb, "slicerproxy", "github.com/slicer-project/slicer/cmd/slicerproxy")
	env := slicertest.Start()
	tb.Cleanup(env.Close)
	server := process.ServeRole(tb, "server").Addr
	plain = process.ServeRole(tb, "plain", serverEnv+"="+server)
	sidecar = process.Serve(tb, exec.Command(process.Program("slicerproxy"), "--job=web", "--task=a", "--upstream="+server, "--distributors="+env.Loopback(),
		"--listen=127.0.0.1:0", "--http=", "--log-format=json", "--drain-timeout=1s"), process.Listens)
	c := env.Clerk(clerk.Config{Job: "web"})
	for deadline := time.Now().Add(waittest.Patience); c.Assignment() == nil || !c.Lookup("k").Has(0); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatal("the task owns nothing")
		}
	}
	return sidecar, plain
}

// each is the CPU that a program takes for a request, microseconds.
func each(tb testing.TB, p process.Server, many int, d time.Duration) float64 {
	tb.Helper()
	before := p.CPU(tb)
	n, _ := p.Ask(tb, many, d, 1024, func(r *http.Request, user string) {
		r.Header["Slicer-Key"], r.Header["Slicer-Generation"] = []string{user}, []string{"1"}
	})
	return float64(p.CPU(tb)-before) / 1000 / float64(n)
}

// TestRig: both serve the same, and the sidecar's CPU can be told. More clients than few may ask for
// more than a machine can do that has just begun to, or that others use, and the sidecar refuses that.
func TestRig(t *testing.T) {
	const few = 4
	sidecar, plain := rig(t)
	for _, p := range []process.Server{sidecar, plain} {
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
