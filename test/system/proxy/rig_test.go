package proxy

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
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
	servers       []string // addresses
	slicer, plain process.Server
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
		r.servers = append(r.servers, process.ServeRole(tb, "server", fmt.Sprintf("%s=web-%d", nameEnv, i), distributorsEnv+"="+distributors).Addr)
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
	r.plain = process.ServeRole(tb, "plain", serversEnv+"="+strings.Join(r.servers, ","))
	r.slicer = process.Serve(tb, exec.Command(filepath.Join(dir, "slicerproxy"), "--config="+file, "--distributors="+distributors,
		"--listen=127.0.0.1:0", "--http=", "--log-format=json"), process.Listens)
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
func rate(tb testing.TB, s process.Server, d time.Duration) float64 {
	tb.Helper()
	_, rate := s.Ask(tb, 32, d, 1024, func(r *http.Request, user string) {
		r.Host = "header.test"
		r.Header.Set("X-User", user)
	})
	return rate
}

// compare lets both proxies take turns, first a round that does not count.
func compare(rounds int, measure func(process.Server) float64, r *rig) (slicer, plain, ratio float64) {
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
