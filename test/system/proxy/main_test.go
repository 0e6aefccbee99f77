package proxy

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/slicer-project/slicer/clerk/front"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/slicelet/slicelethttp"
	"github.com/slicer-project/slicer/test/kit/process"
)

// The test binary is also the programs of the test: what belongs to their roles comes in these
// variables.
const (
	nameEnv         = "SLICER_TEST_NAME"
	distributorsEnv = "SLICER_TEST_DISTRIBUTORS"
	serversEnv      = "SLICER_TEST_SERVERS"
)

func TestMain(m *testing.M) {
	switch role := process.Role(); role {
	case "":
		goleak.VerifyTestMain(m)
	case "server", "plain":
		f := server
		if role == "plain" {
			f = plain
		}
		if err := f(); err != nil {
			fmt.Fprintln(os.Stderr, role, err)
			os.Exit(1)
		}
	}
}

// server is a task of job web that answers with a kilobyte. At /stats it says how
// many requests it has had for keys of its own, for others' keys and without a key.
func server() error {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s, err := slicelet.New(slicelet.Config{
		Job: "web", Task: os.Getenv(nameEnv), Address: lis.Addr().String(), Distributors: strings.Split(os.Getenv(distributorsEnv), ","),
	})
	if err != nil {
		return err
	}
	defer s.Close()
	var owned, others, keyless atomic.Int64
	body := []byte(strings.Repeat("x", 1023) + "\n")
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		switch h, ok := slicelethttp.HandleFrom(r.Context()); {
		case !ok:
			keyless.Add(1)
		case h.Owned():
			owned.Add(1)
		default:
			others.Add(1)
		}
		_, _ = w.Write(body)
	})
	mux.HandleFunc("/stats", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, owned.Load(), others.Load(), keyless.Load())
	})
	h, err := slicelethttp.Handler(s, mux, slicelethttp.Config{})
	if err != nil {
		return err
	}
	return process.ServeHTTP(lis, h)
}

// plain is httputil's ReverseProxy as one would tune it, to the servers in turn.
func plain() error {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	servers := strings.Split(os.Getenv(serversEnv), ",")
	var turn atomic.Uint64
	dialer := &net.Dialer{Timeout: 2 * time.Second, KeepAlive: 30 * time.Second}
	return process.ServeHTTP(lis, &httputil.ReverseProxy{
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.Out.URL.Scheme, pr.Out.URL.Host = "http", servers[turn.Add(1)%uint64(len(servers))]
			pr.Out.Host = pr.In.Host
			pr.SetXForwarded()
		},
		Transport:  &http.Transport{DialContext: dialer.DialContext, MaxIdleConnsPerHost: 256, IdleConnTimeout: 5 * time.Minute, DisableCompression: true},
		BufferPool: &front.Buffers{},
	})
}
