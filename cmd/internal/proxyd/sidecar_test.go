package proxyd_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/waittest"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/cmd/internal/proxyd"
	"github.com/slicer-project/slicer/cmd/internal/run"
	"github.com/slicer-project/slicer/cmd/internal/run/runtest"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"github.com/slicer-project/slicer/test/kit/bed"
)

// startServer serves HTTP without a word of Slicer until the test ends, and returns where.
func startServer(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	lis := bed.Listen(t)
	bed.ServeHTTP(t, lis, h, func() error { return nil })
	return lis.Addr().String()
}

// owned waits until so many tasks own something.
func owned(t *testing.T, c *clerk.Clerk, tasks int) {
	t.Helper()
	eventually(t, fmt.Sprint(tasks, " tasks own something"), func() bool {
		owners := map[string]bool{}
		if a := c.Assignment(); a != nil {
			for _, r := range a.All() {
				owners[r.At(0).Name] = true
			}
		}
		return len(owners) == tasks
	})
}

// TestSidecar runs sidecars as processes beside two servers of a real control plane, and slicerproxy
// before them: requests come with their keys, one sidecar is drained by a request and by its signal,
// and no request is lost.
func TestSidecar(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	plane := bed.Start(t, bed.Config{})
	if err := plane.PutJob(ctx, assignment.JobConfig{Name: "web"}); err != nil {
		t.Fatal(err)
	}
	distributors := "--distributors=" + strings.Join(plane.Addrs(), ",")
	var sidecars []*runtest.Process
	var wheres []map[string]string
	for i := range 2 {
		at := startServer(t, func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "web-%d %s", i, r.Header.Get("Slicer-Key"))
		})
		p := runtest.Start(t, "slicerproxy", "--job=web", fmt.Sprint("--task=web-", i), "--upstream="+at, distributors, "--listen=127.0.0.1:0", "--http=127.0.0.1:0", "--health=/", "--health-interval=50ms")
		sidecars, wheres = append(sidecars, p), append(wheres, p.Where())
	}
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, rules, "rules:\n- job: web\n  key: {query: user}\n")
	url := "http://" + runtest.Start(t, "slicerproxy", "--config="+rules, distributors, "--listen=127.0.0.1:0", "--http=").Where()["listen"]
	ck, err := clerk.New(clerk.Config{Job: "web", Distributors: plane.Addrs()})
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	owned(t, ck, 2)
	tr := &http.Transport{MaxIdleConnsPerHost: 10}
	defer tr.CloseIdleConnections()
	client := &http.Client{Transport: tr, Timeout: limit}
	eventually(t, "ready", func() bool { code, _ := ask(client, "http://"+wheres[0]["http"]+"/readyz"); return code == 200 })
	for i := range 20 {
		user := fmt.Sprint("user-", i)
		if code, body := ask(client, url+"/?user="+user); code != 200 || body != ck.Lookup(user).At(0).Name+" "+user {
			t.Errorf("%d %s, want %s", code, body, ck.Lookup(user).At(0).Name)
		}
	}
	var n atomic.Int64
	stop := waittest.Repeat(4, func(c, i int) {
		resp, err := client.Post(fmt.Sprintf("%s/?user=%d-%d", url, c, i), "text/plain", strings.NewReader("x"))
		if err != nil {
			t.Error(err)
			return
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if n.Add(1); resp.StatusCode != 200 {
			t.Errorf("%d %s", resp.StatusCode, body)
		}
	})
	req, err := http.NewRequestWithContext(ctx, "POST", "http://"+wheres[0]["http"]+"/drain", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if resp.StatusCode != 200 || string(body) != "drained\n" {
		t.Errorf("drain: %d %s", resp.StatusCode, body)
	}
	owned(t, ck, 1)
	if n.Load() == 0 {
		t.Error("nothing was sent")
	}
	stop()
	for _, p := range sidecars {
		p.Stop(syscall.SIGTERM)
	}
}

// TestSidecarConsistent: in consistent mode a server gets the generation and a fencing token with
// each request, requests for other tasks' keys are refused, and an answer is held back whose key
// was lost meanwhile.
func TestSidecarConsistent(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	plane := runtest.Start(t, "serve", "--store=pebble://"+filepath.Join(t.TempDir(), "store"), "--listen=127.0.0.1:0", "--backup-listen=127.0.0.1:0", "--http=127.0.0.1:0").Where()
	conn, err := grpc.NewClient(plane["listen"], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	eventually(t, "the job is there", func() bool {
		_, err = slicerv1.NewAdminServiceClient(conn).PutJob(ctx, &slicerv1.PutJobRequest{Config: &slicerv1.JobConfig{Name: "web", Mode: slicerv1.Mode_MODE_CONSISTENT, LeaseDurationMs: 2000}})
		return err == nil
	})
	inside := make(chan string, 2)
	release := make(chan struct{})
	start := func(name string) (*runtest.Process, string) {
		at := startServer(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/slow" {
				inside <- name
				<-release
			}
			fmt.Fprintf(w, "%s %s %s", name, r.Header.Get("Slicer-Generation"), r.Header.Get("Slicer-Fencing-Token"))
		})
		p := runtest.Start(t, "slicerproxy", "--job=web", "--task="+name, "--upstream="+at, "--distributors="+plane["listen"], "--leases="+plane["listen"], "--lease-time=2s",
			"--listen=127.0.0.1:0", "--http=", "--health-interval=50ms", "--drain-timeout=5s")
		return p, p.Where()["listen"]
	}
	_, a := start("a")
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	client := &http.Client{Transport: tr, Timeout: limit}
	key := "Slicer-Key: k"
	var said string
	eventually(t, "a owns all", func() bool {
		code, body := ask(client, "http://"+a+"/", key)
		said = body
		return code == 200
	})
	words := strings.Fields(said)
	if len(words) != 3 || words[0] != "a" {
		t.Fatalf("the server has got %q", said)
	}
	generation, err1 := strconv.Atoi(words[1])
	token, err2 := strconv.Atoi(words[2])
	if err1 != nil || err2 != nil || token < 1 || generation < token {
		t.Errorf("the server has got %q", said)
	}
	b, at := start("b")
	eventually(t, "b owns something", func() bool {
		for i := range 20 {
			if code, body := ask(client, "http://"+at+"/", fmt.Sprint("Slicer-Key: ", i)); code == 200 {
				key = fmt.Sprint("Slicer-Key: ", i)
				var g, now int
				if _, err := fmt.Sscanf(body, "b %d %d", &g, &now); err != nil || now <= token {
					t.Errorf("the new owner's token is %q, after %d", body, token)
				}
				return true
			} else if code != 421 {
				t.Fatalf("%d %s", code, body)
			}
		}
		return false
	})
	// It is stopped for longer than its lease while a request is under way.
	code := make(chan int, 1)
	go func() { c, _ := ask(client, "http://"+at+"/slow", key); code <- c }()
	<-inside
	b.Signal(syscall.SIGSTOP)
	eventually(t, "a owns the key", func() bool { c, _ := ask(client, "http://"+a+"/", key); return c == 200 })
	close(release)
	b.Signal(syscall.SIGCONT)
	if c := <-code; c != http.StatusConflict {
		t.Errorf("an answer whose key was lost: %d", c)
	}
}

// TestSidecarFlags: one clear error names the flag.
func TestSidecarFlags(t *testing.T) {
	for args, want := range map[string]string{
		"--task=a":                          "slicerproxy: --upstream is missing: --task is for the sidecar of a server",
		"--upstream=:1 --distributors=d:1":  `slicerproxy: --upstream: ":1" is not allowed`,
		"--upstream=x:1 --distributors=d:1": "slicerproxy: --job is missing",
		"--upstream=x:1 --job=web --policy=round_robin --distributors=d:1":       "slicerproxy: --policy is not allowed with --upstream",
		"--upstream=x:1 --job=web --health=x --distributors=d:1":                 `slicerproxy: --health: "x" is not allowed`,
		"--upstream=x:1 --job=web --health-interval=1ms --distributors=d:1":      "slicerproxy: --health-interval: 1ms is not allowed",
		"--upstream=x:1 --job=web --misrouted=lose --distributors=d:1":           `slicerproxy: --misrouted: "lose" is not allowed`,
		"--upstream=x:1 --job=web --misrouted=forward --grpc --distributors=d:1": `slicerproxy: --misrouted: "forward" is not allowed`,
		"--upstream=x:1 --job=web --webhook=ftp://x --distributors=d:1":          `slicerproxy: --webhook: "ftp://x" is not allowed`,
		"--upstream=x:1 --job=web --leases=x --distributors=d:1":                 `slicerproxy: --leases: "x" is not allowed`,
		"--upstream=x:1 --job=web":                                               "slicerproxy: --distributors is missing",
	} {
		code, _, errs := runtest.Execute(proxyd.Command(), strings.Fields(args)...)
		if code != run.ExitUsage || !strings.HasPrefix(errs, want) {
			t.Errorf("%s: exit %d, %q; want 2, %q", args, code, errs, want)
		}
	}
}

// TestSidecarNames: so does what the slicelet refuses.
func TestSidecarNames(t *testing.T) {
	for args, want := range map[string]string{
		"--job=Web --task=a --listen=127.0.0.1:0":                "\nslicerproxy: --job: job name: \"Web\" is not allowed",
		"--job=web --task=a/b --listen=127.0.0.1:0":              "\nslicerproxy: --task: task name: \"a/b\" is not allowed",
		"--job=web --task=a --listen=127.0.0.1:0 --advertise=:0": "\nslicerproxy: --advertise: ",
	} {
		code, _, errs := runtest.Execute(proxyd.Command(), strings.Fields(args+" --upstream=127.0.0.1:1 --distributors=127.0.0.1:1 --http=")...)
		if code != run.ExitUsage || !strings.Contains("\n"+errs, want) {
			t.Errorf("%s: exit %d, %q; want 2, %q", args, code, errs, want)
		}
	}
}
