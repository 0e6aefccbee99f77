package proxy

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/test/kit/bed"
	"github.com/slicer-project/slicer/test/kit/process"
)

// rules has a host name for each kind of key.
const rules = `
trusted_proxies: 1
rules:
  - {host: header.test, job: web, key: {header: X-User}}
  - {host: cookie.test, job: web, key: {cookie: user}}
  - {host: query.test, job: web, key: {query: user}}
  - {host: segment.test, job: web, key: {segment: 2}}
  - {host: wildcard.test, path: "/users/{user}/", job: web, key: {wildcard: user}}
  - {host: address.test, job: web, key: client_address}
  - {host: chain.test, job: web, key: [{header: X-None}, {cookie: none}, {query: user}]}
  - {job: web}
`

const servers = 4

// rig is four servers, and before them slicerproxy and a plain proxy.
type rig struct {
	servers       []string
	slicer, plain string // addresses
}

// pids are processes by the address that they said.
var pids sync.Map

// role runs the test binary in a role.
func role(tb testing.TB, name string, env ...string) string {
	tb.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), append(env, roleEnv+"="+name)...)
	return start(tb, cmd, func(line string) (string, bool) { return line, true })
}

// start runs a program until the test ends, and returns what where finds in its
// output first.
func start(tb testing.TB, cmd *exec.Cmd, where func(line string) (string, bool)) string {
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
	found := make(chan string, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		var said strings.Builder
		sent := false
		for lines := bufio.NewScanner(out); lines.Scan(); {
			fmt.Fprintln(&said, lines.Text())
			if addr, ok := where(lines.Text()); ok && !sent {
				found <- addr
				sent = true
			}
		}
		if !sent {
			found <- ""
			tb.Errorf("%v says %s", cmd.Args, said.String())
		}
	}()
	tb.Cleanup(func() {
		in.Close()
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-done
		_ = cmd.Wait()
	})
	addr := <-found
	if addr == "" {
		tb.FailNow()
	}
	pids.Store(addr, cmd.Process.Pid)
	return addr
}

// serving finds the address in slicerproxy's log.
func serving(line string) (string, bool) {
	var m struct{ Msg, Listen string }
	if json.Unmarshal([]byte(line), &m) != nil || m.Msg != "serving" {
		return "", false
	}
	return m.Listen, true
}

// newRig waits until every server owns something.
func newRig(tb testing.TB) *rig {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	plane := bed.Start(tb, bed.Config{})
	// The load is even: the assignment stays what it is.
	if err := plane.PutJob(ctx, assignment.JobConfig{Name: "web", MaxReplicas: 1, Balance: assignment.BalanceConfig{Interval: time.Hour}}); err != nil {
		tb.Fatal(err)
	}
	r := &rig{}
	distributors := strings.Join(plane.Addrs(), ",")
	for i := range servers {
		r.servers = append(r.servers, role(tb, "server", fmt.Sprintf("%s=web-%d", nameEnv, i), distributorsEnv+"="+distributors))
	}
	ck, err := clerk.New(clerk.Config{Job: "web", Distributors: plane.Addrs()})
	if err != nil {
		tb.Fatal(err)
	}
	defer ck.Close()
	for owners := map[string]bool{}; len(owners) < servers; {
		changed := ck.Changed()
		if a := ck.Assignment(); a != nil {
			clear(owners)
			for _, s := range a.All() {
				owners[s.At(0).Name] = true
			}
		}
		if len(owners) < servers {
			select {
			case <-changed:
			case <-ctx.Done():
				tb.Fatalf("only %v own anything", owners)
			}
		}
	}
	dir := tb.TempDir()
	process.BuildIn(tb, dir, "github.com/slicer-project/slicer/cmd/slicerproxy")
	file := filepath.Join(dir, "rules.yaml")
	if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
		tb.Fatal(err)
	}
	r.plain = role(tb, "plain", serversEnv+"="+strings.Join(r.servers, ","))
	r.slicer = start(tb, exec.Command(filepath.Join(dir, "slicerproxy"), "--config="+file, "--distributors="+distributors,
		"--listen=127.0.0.1:0", "--http=", "--log-format=json"), serving)
	return r
}

// stats are the servers' counts so far, together, and how many have had a key.
func (r *rig) stats(tb testing.TB) (owned, others, keyless, busy int) {
	tb.Helper()
	for _, s := range r.servers {
		var a, b, c int
		resp, err := http.Get("http://" + s + "/stats")
		if err != nil {
			tb.Fatal(err)
		}
		_, err = fmt.Fscan(resp.Body, &a, &b, &c)
		resp.Body.Close()
		if err != nil {
			tb.Fatal(err)
		}
		if a > 0 {
			busy++
		}
		owned, others, keyless = owned+a, others+b, keyless+c
	}
	http.DefaultClient.CloseIdleConnections()
	return owned, others, keyless, busy
}

// rate is how many requests a second a proxy serves to 32 clients, each with a
// key in a header.
func rate(tb testing.TB, addr string, d time.Duration) float64 {
	tb.Helper()
	tr := &http.Transport{MaxIdleConnsPerHost: 64}
	defer tr.CloseIdleConnections()
	var n, failed atomic.Int64
	var clients sync.WaitGroup
	began := time.Now()
	for c := range 32 {
		clients.Go(func() {
			for i := 0; time.Since(began) < d; i++ {
				req, err := http.NewRequest("GET", "http://"+addr+"/profile", nil)
				if err != nil {
					failed.Add(1)
					return
				}
				req.Host = "header.test"
				req.Header.Set("X-User", fmt.Sprint("user/", c, "/", i%1000))
				resp, err := tr.RoundTrip(req)
				if err != nil {
					failed.Add(1)
					continue
				}
				if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != 200 {
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
	return float64(n.Load()) / time.Since(began).Seconds()
}

// compare lets both proxies take turns, first a round that does not count.
func compare(rounds int, measure func(addr string) float64, r *rig) (slicer, plain, ratio float64) {
	measure(r.slicer)
	measure(r.plain)
	var ss, ps, ratios []float64
	for i := range rounds {
		var s, p float64
		if i%2 == 0 {
			s, p = measure(r.slicer), measure(r.plain)
		} else {
			p, s = measure(r.plain), measure(r.slicer)
		}
		ss, ps, ratios = append(ss, s), append(ps, p), append(ratios, s/p)
	}
	return median(ss), median(ps), median(ratios)
}

func median(list []float64) float64 {
	slices.Sort(list)
	n := len(list)
	return (list[(n-1)/2] + list[n/2]) / 2
}
