package sidecar

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/waittest"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/test/kit/bed"
	"github.com/slicer-project/slicer/test/kit/process"
)

const module = "github.com/slicer-project/slicer"

// limit bounds every wait; nothing is asserted on it.
const limit = waittest.Patience

// TestGo: with servers in Go, which any machine has that runs this.
func TestGo(t *testing.T) {
	process.Build(t, "visits", module+"/test/examples/sidecar/server")
	scenario(t, func(port string) []string { return []string{process.Program("visits"), port} })
}

// fleet is three servers with sidecars, and slicerproxy before them.
type fleet struct {
	t        *testing.T
	url      string
	clerk    *clerk.Clerk
	ports    []string // of servers
	servers  []*process.Process
	sidecars []*process.Process
	admin    []string // addresses
	client   *http.Client
}

func start(t *testing.T, command func(port string) []string) *fleet {
	t.Helper()
	process.Build(t, "slicerproxy", module+"/cmd/slicerproxy")
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	plane := bed.Start(t, bed.Config{})
	cfg := assignment.JobConfig{Name: "visits", WarmUp: assignment.NoWarmUp, MaxReplicas: 3, Balance: assignment.BalanceConfig{Interval: 500 * time.Millisecond, Smoothing: 1}}
	if err := plane.PutJob(ctx, cfg.WithDefaults()); err != nil {
		t.Fatal(err)
	}
	ck, err := clerk.New(clerk.Config{Job: "visits", Distributors: plane.Addrs()})
	if err != nil {
		t.Fatal(err)
	}
	bed.CloseAtEnd(t, ck.Close)
	tr := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(tr.CloseIdleConnections)
	f := &fleet{t: t, clerk: ck, client: &http.Client{Transport: tr, Timeout: limit}}
	distributors := "--distributors=" + strings.Join(plane.Addrs(), ",")
	free := process.FreePorts(t, 10)
	for i := range 3 {
		_, port, _ := net.SplitHostPort(free[i])
		f.ports, f.admin = append(f.ports, port), append(f.admin, free[6+i])
		f.servers = append(f.servers, process.Start(t, "server-"+port, nil, command(port)...))
		f.sidecars = append(f.sidecars, process.Start(t, fmt.Sprint("sidecar-", i), nil, process.Program("slicerproxy"), "--job=visits", fmt.Sprint("--task=visits-", i),
			"--upstream=127.0.0.1:"+port, distributors, "--listen="+free[3+i], "--http="+free[6+i], "--health=/users/health", "--health-interval=200ms"))
	}
	f.url = "http://" + free[9]
	process.Start(t, "slicerproxy", nil, process.Program("slicerproxy"), "--config=rules.yaml", distributors, "--listen="+free[9], "--http=")
	f.await("all own something", func() error { return f.owners("visits-0", "visits-1", "visits-2") })
	f.await("it serves", func() error { _, err := f.visit("nobody"); return err })
	return f
}

func (f *fleet) await(what string, so func() error) {
	f.t.Helper()
	process.Eventually(f.t, limit, what, so)
}

// owners reports, as an error, that others own slices than these.
func (f *fleet) owners(names ...string) error {
	a := f.clerk.Assignment()
	if a == nil {
		return errors.New("no assignment")
	}
	got := map[string]bool{}
	for _, r := range a.All() {
		for i := range r.Len() {
			got[r.At(i).Name] = true
		}
	}
	for _, n := range names {
		if !got[n] {
			return fmt.Errorf("%v own something", got)
		}
	}
	if len(got) != len(names) {
		return fmt.Errorf("%v own something", got)
	}
	return nil
}

// visit returns the port of the server that has answered.
func (f *fleet) visit(user string) (port string, err error) {
	resp, err := f.client.Get(f.url + "/users/" + user)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	before, port, ok := strings.Cut(strings.TrimSpace(string(body)), ", at ")
	if resp.StatusCode != 200 || !ok || !strings.HasSuffix(before, " of "+user) {
		return "", fmt.Errorf("%d %s", resp.StatusCode, body)
	}
	return port, nil
}

// load has clients visit until stop is called, which returns how many visits there were. A third of
// them are one user's. None may fail.
func (f *fleet) load(clients int) (hot func() int, stop func() int64) {
	end := make(chan struct{})
	var wg sync.WaitGroup
	var n atomic.Int64
	var mu sync.Mutex
	by := map[string]bool{}
	for c := range clients {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-end:
					return
				default:
				}
				user := fmt.Sprint(c, "-", i%100)
				if i%3 == 0 {
					user = "hot"
				}
				port, err := f.visit(user)
				if err != nil {
					f.t.Error(err)
					return
				}
				n.Add(1)
				if user == "hot" {
					mu.Lock()
					by[port] = true
					mu.Unlock()
				}
			}
		})
	}
	return func() int {
			mu.Lock()
			defer mu.Unlock()
			n := len(by)
			clear(by)
			return n
		}, func() int64 {
			close(end)
			wg.Wait()
			return n.Load()
		}
}

// scenario: each user has one server; one that is asked for most gets several; a server that drains
// and one that is killed lose no request, and one that has come back gets users again.
func scenario(t *testing.T, command func(port string) []string) {
	f := start(t, command)
	for i := range 50 {
		user := fmt.Sprint("user-", i)
		owner := f.clerk.Lookup(user).At(0).Name
		for range 2 {
			if port, err := f.visit(user); err != nil || "visits-"+fmt.Sprint(f.index(port)) != owner {
				t.Errorf("%s, whom %s owns, is served at %s, %v", user, owner, port, err)
			}
		}
	}
	hot, stop := f.load(8)
	f.await("the hot user is served by several", func() error {
		time.Sleep(100 * time.Millisecond)
		if n := hot(); n < 2 {
			return fmt.Errorf("by %d", n)
		}
		return nil
	})

	// The sidecar is told to end, and the server after it.
	f.sidecars[0].End(limit)
	f.servers[0].Signal(syscall.SIGTERM)
	f.await("its users are others'", func() error { return f.owners("visits-1", "visits-2") })

	f.servers[1].Kill()
	f.await("they are the last one's", func() error { return f.owners("visits-2") })
	if resp, err := f.client.Get("http://" + f.admin[1] + "/readyz"); err != nil || resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("the sidecar of a dead server: %v, %v", resp, err)
	} else {
		resp.Body.Close()
	}
	f.servers[1].Restart()
	f.await("it is back", func() error { return f.owners("visits-1", "visits-2") })
	if n := stop(); n == 0 {
		t.Error("nothing was sent")
	} else {
		t.Logf("%d visits", n)
	}
}

// index is which server has a port.
func (f *fleet) index(port string) int {
	for i, p := range f.ports {
		if p == port {
			return i
		}
	}
	return -1
}
