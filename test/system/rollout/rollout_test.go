//go:build system

package rollout

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/clerkgrpc"
	"github.com/slicer-project/slicer/test/examples/greeter/hello"
	"github.com/slicer-project/slicer/test/kit/process"
)

// callLimit is the deadline of a call.
const callLimit = 10 * time.Second

// TestRollout upgrades all pods of the manifests and of the example application, in the order
// that DEPLOY.md tells, while two clients that run, and such as start, call. No call fails.
func TestRollout(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "slicer.yaml", "application.yaml")
	for _, part := range []string{"slicer-etcd", "slicer-assigner", "slicer-distributor", "slicer-backupdist"} {
		for _, p := range c.part(part) { // all at once, as Parallel
			c.run(p)
		}
		if part == "slicer-assigner" {
			continue // ready once there is a Distributor
		}
		for _, p := range c.part(part) {
			p.wait(t)
		}
	}
	for _, p := range c.part("slicer-assigner") {
		p.wait(t)
	}
	c.job()
	probe := c.part("slicer-probe")[0]
	c.run(probe)
	probe.wait(t)
	for _, p := range c.part("greeter") {
		c.run(p)
		p.wait(t)
	}
	c.sees(len(c.part("greeter")))

	a := c.callers(2)
	for _, part := range append(order(t), "greeter") {
		before := a.calls.Load()
		c.upgrade(part, func(p *pod) {
			if part == "greeter" {
				c.sees(len(c.part(part)))
			}
			a.join(c)
			a.unharmed(t, "after "+p.name)
		})
		t.Logf("%s: %d calls meanwhile", part, a.calls.Load()-before)
	}
	a.end()
	a.unharmed(t, "in the end")
	c.probed(probe)
	t.Logf("%d calls by clients that ran, %d by such as started; none failed", a.calls.Load(), a.joined.Load())
}

// probed waits until the prober has found a task at each Distributor and the Backup Distributors.
func (c *cluster) probed(p *pod) {
	c.Helper()
	client := http.Client{Timeout: 5 * time.Second}
	found := regexp.MustCompile(`(?m)^slicer_probe_selections_total\{job="greeter",result="found",target="[^"]+"\} [1-9]`)
	process.Eventually(c, within, "all targets are probed", func() error {
		resp, err := client.Get("http://" + p.at("http") + "/metrics")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if n := len(found.FindAll(text, -1)); err != nil || n != len(c.part("slicer-distributor"))+1 {
			return fmt.Errorf("%d have answered, %v:\n%s", n, err, text)
		}
		return nil
	})
}

// order are the parts in the order of the commands in DEPLOY.md.
func order(t *testing.T) (parts []string) {
	t.Helper()
	for _, m := range regexp.MustCompile(`--set (\w+)\.image\.tag=`).FindAllStringSubmatch(read(t, "docs", "DEPLOY.md"), -1) {
		parts = append(parts, "slicer-"+m[1])
	}
	if !slices.Equal(parts, []string{"slicer-backupdist", "slicer-assigner", "slicer-distributor"}) {
		t.Fatalf("DEPLOY.md upgrades %v", parts)
	}
	return parts
}

// distributors is where applications find Slicer.
const distributors = "slicer.slicer.svc:4720"

// job makes the application's, from its ConfigMap.
func (c *cluster) job() {
	c.Helper()
	for _, o := range c.objects {
		if text, ok := o.Data["greeter.yaml"]; ok {
			file := filepath.Join(c.dir, "greeter.yaml")
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				c.Fatal(err)
			}
			process.Eventually(c, within, "the job is made", func() error { return c.slicerctl("job", "apply", "--file="+file) })
			return
		}
	}
	c.Fatal("the application has no job")
}

func (c *cluster) slicerctl(args ...string) error {
	ctx, cancel := context.WithTimeout(c.Context(), within)
	defer cancel()
	out, err := exec.CommandContext(ctx, build(c.T, "slicerctl"), append([]string{"--server=" + c.services[distributors].addr}, args...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// sees waits until a new client knows of so many tasks, each under its pod's name.
func (c *cluster) sees(tasks int) {
	c.Helper()
	ck, err := clerk.New(clerk.Config{Job: "greeter", Distributors: []string{c.services[distributors].addr}})
	if err != nil {
		c.Fatal(err)
	}
	defer ck.Close()
	process.Eventually(c, within, fmt.Sprint(tasks, " tasks own keys"), func() error {
		owners := map[string]bool{}
		for i := range 1000 {
			for task := range ck.Lookup(fmt.Sprint("person-", i)).All() {
				owners[task.Name+" at "+task.Address] = true
			}
		}
		n := 0
		for _, p := range c.part("greeter") {
			if owners[p.name+" at "+p.at("grpc")] {
				n++
			}
		}
		if n != tasks || len(owners) != tasks {
			return fmt.Errorf("%v own keys", owners)
		}
		return nil
	})
}

// audience is the clients that call until end.
type audience struct {
	calls, joined atomic.Int64
	failed        atomic.Pointer[error]
	end           func()
}

func (c *cluster) callers(n int) *audience {
	c.Helper()
	a := &audience{}
	ctx, cancel := context.WithCancel(c.Context())
	var wg sync.WaitGroup
	for range n {
		client, hangUp := c.client()
		if err := greet(client, "first"); err != nil {
			c.Fatal(err)
		}
		wg.Go(func() {
			defer hangUp()
			for i := 0; ctx.Err() == nil; i++ {
				if err := greet(client, fmt.Sprint("person-", i%1000)); err != nil {
					a.failed.CompareAndSwap(nil, &err)
				}
				a.calls.Add(1)
				// A call each millisecond or so leaves the machine to the processes.
				select {
				case <-ctx.Done():
				case <-time.After(time.Millisecond):
				}
			}
		})
	}
	a.end = sync.OnceFunc(func() { cancel(); wg.Wait() })
	c.Cleanup(a.end)
	return a
}

// join has a client start, and call.
func (a *audience) join(c *cluster) {
	c.Helper()
	client, hangUp := c.client()
	defer hangUp()
	for i := range 20 {
		if err := greet(client, fmt.Sprint("person-", i)); err != nil {
			c.Errorf("a client that starts: %v", err)
		}
		a.joined.Add(1)
	}
}

func (a *audience) unharmed(t *testing.T, when string) {
	t.Helper()
	if err := a.failed.Swap(nil); err != nil {
		t.Errorf("%s: %v", when, *err)
	}
}

// client is one that finds the Distributors, and the Backup Distributors, by their Services.
func (c *cluster) client() (hello.GreeterClient, func()) {
	c.Helper()
	routed := clerkgrpc.DialOptions(clerkgrpc.Config{HealthCheck: true, Clerk: clerk.Config{
		Distributors: []string{c.services[distributors].addr}, Backups: []string{c.services["slicer-backupdist.slicer.svc:4730"].addr},
	}})
	conn, err := grpc.NewClient("slicer:///greeter", append(routed, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		c.Fatal(err)
	}
	return hello.NewGreeterClient(conn), func() { conn.Close() }
}

func greet(client hello.GreeterClient, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	_, err := client.SayHello(clerk.WithKey(ctx, name), wrapperspb.String(name))
	return err
}
