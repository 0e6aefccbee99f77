package daemon_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/slicer-project/slicer/cmd/internal/assignerd"
	"github.com/slicer-project/slicer/cmd/internal/run/runtest"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"github.com/slicer-project/slicer/test/kit/process"
)

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: limit}
	resp, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func becomesReady(t *testing.T, http string) {
	t.Helper()
	for deadline := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		code, body := get(t, "http://"+http+"/readyz")
		if code == 200 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not ready: %s", body)
		}
	}
}

func admin(t *testing.T, addr string) slicerv1.AdminServiceClient {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return slicerv1.NewAdminServiceClient(conn)
}

func serveArgs(dir string) []string {
	return []string{"--store=pebble://" + dir, "--listen=127.0.0.1:0", "--backup-listen=127.0.0.1:0", "--http=127.0.0.1:0"}
}

// lastingArgs are serveArgs with ports that are free again while the process is down, which
// those that the kernel chooses are not always.
func lastingArgs(t *testing.T, dir string) []string {
	free := process.FreePorts(t, 3)
	return []string{"--store=pebble://" + dir, "--listen=" + free[0], "--backup-listen=" + free[1], "--http=" + free[2]}
}

// TestServe runs "slicer serve" as a process: it serves, says so, ends in an
// orderly way on a signal, and has forgotten nothing when it starts again.
func TestServe(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "made", "by", "it")
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()

	p := runtest.Start(t, "serve", serveArgs(dir)...)
	w := p.Where()
	becomesReady(t, w["http"])
	if _, err := admin(t, w["listen"]).PutJob(ctx, &slicerv1.PutJobRequest{Config: &slicerv1.JobConfig{Name: "web"}}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"slicer_build_info", "slicer_assigner_", "slicer_distributor_", "slicer_backupdist_", "process_cpu_seconds_total"} {
		if _, body := get(t, "http://"+w["http"]+"/metrics"); !strings.Contains(body, want) {
			t.Errorf("/metrics has no %s", want)
		}
	}

	// A second one on this directory, or on a port of this one.
	for _, c := range []struct {
		args []string
		want string
	}{
		{serveArgs(dir), dir},
		{append(serveArgs(t.TempDir()), "--listen="+w["listen"]), "--listen: listen tcp " + w["listen"] + ": bind: address already in use"},
		{append(serveArgs(t.TempDir()), "--backup-listen="+w["backup"]), "--backup-listen: listen tcp " + w["backup"] + ": bind: address already in use"},
		{append(serveArgs(t.TempDir()), "--http="+w["http"]), "--http: listen tcp " + w["http"] + ": bind: address already in use"},
	} {
		second := runtest.Start(t, "serve", append(c.args, "--log-level=error")...)
		if code := second.End(); code != 1 || !strings.HasPrefix(second.Text(), "serve: ") || !strings.Contains(second.Text(), c.want) || strings.Count(second.Text(), "\n") != 1 {
			t.Errorf("exit %d, %q; want 1 and one line with %q", code, second.Text(), c.want)
		}
	}
	if code, _ := get(t, "http://"+w["http"]+"/readyz"); code != 200 {
		t.Error("the first is harmed")
	}
	p.Stop(syscall.SIGTERM)

	p = runtest.Start(t, "serve", serveArgs(dir)...)
	w = p.Where()
	becomesReady(t, w["http"])
	if jobs, err := admin(t, w["listen"]).ListJobs(ctx, &slicerv1.ListJobsRequest{}); err != nil || len(jobs.Jobs) != 1 {
		t.Errorf("after a restart: %v, %v", jobs, err)
	}
	// With a subscriber's stream open.
	conn, err := grpc.NewClient(w["listen"], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := slicerv1.NewSubscriberServiceClient(conn).Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Hello{Hello: &slicerv1.Hello{Job: "web", Role: slicerv1.Role_ROLE_CLERK, ClientId: "c"}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	p.Stop(syscall.SIGINT)
}

// TestDistributorAlone: without an assigner it serves, is not ready, and says why.
func TestDistributorAlone(t *testing.T) {
	p := runtest.Start(t, "distributor", "--assigners=127.0.0.1:1", "--listen=127.0.0.1:0", "--http=127.0.0.1:0")
	w := p.Where()
	if code, body := get(t, "http://"+w["http"]+"/readyz"); code != 503 || !strings.Contains(body, "assigner") {
		t.Errorf("readyz: %d %s", code, body)
	}
	if code, _ := get(t, "http://"+w["http"]+"/healthz"); code != 200 {
		t.Errorf("healthz: %d", code)
	}
	p.Stop(syscall.SIGTERM)
}

// TestStoreDown: a store that does not answer is waited for, not ready; a signal
// ends the waiting.
func TestStoreDown(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"assigner", "backupdist"} {
		http := process.FreePorts(t, 1)[0]
		p := runtest.Start(t, program, "--store=etcd://127.0.0.1:1/slicer", "--listen=127.0.0.1:0", "--http="+http)
		for deadline := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
			if strings.Contains(p.Text(), `"msg":"starting"`) {
				if code, body := get(t, "http://"+http+"/readyz"); code == 503 && strings.Contains(body, "opening store etcd://127.0.0.1:1/slicer") {
					break
				}
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s does not say that its store is down\n%s", program, p.Text())
			}
		}
		p.Stop(syscall.SIGTERM)
	}
}

func TestBadCommandLines(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	locked := filepath.Join(t.TempDir(), "locked")
	if err := os.Mkdir(locked, 0o500); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 {
		locked = "/proc" // where not even root may make a directory
	}
	for _, c := range []struct {
		program string
		args    []string
		code    int
		want    string
	}{
		{"assigner", nil, 2, "--store is missing"},
		{"assigner", []string{"--store=pebble:///var/lib/slicer"}, 2, `run "slicer serve"`},
		{"assigner", []string{"--store=nonsense"}, 2, `--store: store: "nonsense" is not allowed`},
		{"assigner", []string{"--store=etcd://h:1", "--listen=nonsense"}, 2, `--listen: "nonsense" is not allowed`},
		{"assigner", []string{"--store=etcd://h:1", "--lease-ttl=20m"}, 2, `--lease-ttl: ttl: 20m0s is not allowed: want 1s to 10m0s`},
		{"assigner", []string{"--store=etcd://h:1", "--registration-ttl=1s"}, 2, `--registration-ttl: registration TTL: 1s is not allowed: want 2s to 10m in whole seconds`},
		{"backupdist", nil, 2, "--store is missing"},
		{"backupdist", []string{"--store=pebble:///var/lib/slicer"}, 2, `run "slicer serve"`},
		{"distributor", nil, 2, "--assigners is missing"},
		{"distributor", []string{"--assigners=a:1", "--upstreams=d:1"}, 2, "--upstreams: not allowed together with --assigners"},
		{"distributor", []string{"--serve-distributors", "--upstreams=d:1"}, 2, "--serve-distributors: not allowed together with --upstreams"},
		{"distributor", []string{"--upstreams=d"}, 2, `--upstreams: "d" is not allowed: want host:port`},
		{"distributor", []string{"--assigners=assigner"}, 2, `--assigners: "assigner" is not allowed: want host:port`},
		{"distributor", []string{"--assigners=:4710"}, 2, `--assigners: ":4710" is not allowed: want host:port to connect to`},
		{"distributor", []string{"--assigners=a:1", "--tls-ca=x"}, 2, "--tls-cert: missing"},
		{"distributor", []string{"--assigners=a:1", "--policy=p"}, 2, "--tls-ca: missing, --policy needs it: an identity is that of a verified certificate"},
		{"distributor", []string{"--assigners=a:1", "--log-level=x"}, 2, "--log-level"},
		{"distributor", []string{"--assigners=a:1", "--http=", "--listen=127.0.0.1:0", "--tls-cert=/no/c", "--tls-key=/no/k", "--log-level=error"}, 1, "--tls-cert, --tls-key: stat /no/c"},
		{"distributor", []string{"--assigner=a:1"}, 2, "unknown flag: --assigner"},
		{"distributor", []string{"--assigners=a:1", "--http=", "--listen=203.0.113.1:1", "--insecure", "--log-level=error"}, 1, "--listen: listen tcp 203.0.113.1:1"},
		{"distributor", []string{"--assigners=a:1"}, 2, `--listen: ":4720" is not allowed in plain text, since other machines may reach it: set --tls-cert, --tls-key and --tls-ca, or --insecure`},
		{"assigner", []string{"--store=etcd://h:1"}, 2, `--listen: ":4710" is not allowed in plain text`},
		{"backupdist", []string{"--store=etcd://h:1"}, 2, `--listen: ":4730" is not allowed in plain text`},
		{"serve", []string{"--listen=0.0.0.0:0"}, 2, `--listen: "0.0.0.0:0" is not allowed in plain text`},
		{"serve", []string{"--listen=127.0.0.1:0", "--backup-listen=:0"}, 2, `--backup-listen: ":0" is not allowed in plain text`},
		{"serve", []string{"--store=etcd://h:1"}, 2, "want pebble:///DIR"},
		{"serve", []string{"--store=pebble://dir"}, 2, "three slashes"},
		{"serve", []string{"--lease-ttl=500ms"}, 2, `--lease-ttl: ttl: 500ms is not allowed: want 1s to 10m0s`},
		{"serve", []string{"--backup-listen=x"}, 2, `--backup-listen: "x" is not allowed`},
		{"serve", append(serveArgs(filepath.Join(locked, "slicer")), "--log-level=error"), 1, "--store: "},
		{"serve", append(serveArgs(filepath.Join(file, "slicer")), "--log-level=error"), 1, "not a directory"},
	} {
		code, _, errs := runtest.Execute(programs[c.program](), c.args...)
		if code != c.code || !strings.Contains(errs, c.want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s %s: exit %d, %q; want exit %d and one line with %q", c.program, strings.Join(c.args, " "), code, errs, c.code, c.want)
		}
	}
}

// TestFlagsAlike: a flag of one name means the same in every program.
func TestFlagsAlike(t *testing.T) {
	common := []string{"listen", "advertise", "http", "id", "zone", "log-level", "log-format", "tls-cert", "tls-key", "tls-ca", "policy"}
	listens := map[string]string{}
	for name, program := range programs {
		cmd := program()
		for _, f := range common {
			got, want := cmd.Flag(f), assignerd.Command().Flag(f)
			if got == nil || got.Usage != want.Usage {
				t.Errorf("%s: --%s is not what it is in assigner", name, f)
			}
		}
		if cmd.Long == "" || cmd.Example == "" {
			t.Errorf("%s has no help", name)
		}
		for _, f := range []string{"listen", "http"} {
			_, port, err := net.SplitHostPort(cmd.Flag(f).DefValue)
			// serve is the distributor of its machine.
			if other := listens[port]; err != nil || other != "" && !slices.Contains([]string{name, other}, "serve") {
				t.Errorf("%s --%s: %s, also of %s, %v", name, f, port, other, err)
			}
			listens[port] = name
		}
	}
	for _, name := range []string{"assigner", "backupdist", "serve"} {
		if programs[name]().Flag("store") == nil {
			t.Errorf("%s has no --store", name)
		}
	}
}

// TestLinks: no program carries what it does not need. The Backup Distributor
// shares no code with what it stands in for.
func TestLinks(t *testing.T) {
	t.Parallel()
	const ours = "github.com/slicer-project/slicer/"
	for program, bad := range map[string][]string{
		"backupdist":  {ours + "assigner", ours + "distributor", ours + "loadbalance", "github.com/cockroachdb/pebble"},
		"distributor": {ours + "assigner", ours + "loadbalance", ours + "assignment/store", "go.etcd.io/", "github.com/cockroachdb/pebble"},
		"assigner":    {ours + "distributor", ours + "backupdist", "github.com/cockroachdb/pebble"},
		"slicerctl":   {ours + "assigner", ours + "distributor", ours + "backupdist"},
	} {
		out, err := exec.Command("go", "list", "-deps", ours+"cmd/"+program).Output()
		if err != nil {
			t.Fatal(err)
		}
		for dep := range strings.Lines(string(out)) {
			for _, b := range bad {
				if dep = strings.TrimSpace(dep); dep == ours+"loadbalance/overload" && program == "distributor" {
					continue // it divides limits
				}
				if dep == strings.TrimSuffix(b, "/") || strings.HasPrefix(dep, strings.TrimSuffix(b, "/")+"/") {
					t.Errorf("%s links %s", program, dep)
				}
			}
		}
	}
}
