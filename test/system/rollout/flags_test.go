//go:build system

package rollout

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// command is what a file of deploy/ starts.
type command struct {
	where   string
	program string
	args    []string
}

// commands are those of Compose, the manifests and the units.
func commands(t *testing.T) (all []command) {
	t.Helper()
	for _, o := range objects(t, "slicer.yaml", "application.yaml") {
		for _, c := range o.Spec.Template.Spec.Containers {
			all = append(all, command{"kubernetes " + o.Metadata.Name, c.program(), c.Args})
		}
	}
	var compose struct {
		Services map[string]struct{ Entrypoint, Command []string }
	}
	if err := yaml.Unmarshal([]byte(read(t, "compose", "compose.yaml")), &compose); err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(compose.Services)) {
		s := compose.Services[name]
		argv := slices.Concat(s.Entrypoint, s.Command)
		all = append(all, command{"compose " + name, filepath.Base(argv[0]), argv[1:]})
	}
	units, err := filepath.Glob(filepath.Join("..", "..", "..", "deploy", "systemd", "*.service"))
	if err != nil {
		t.Fatal(err)
	}
	start := regexp.MustCompile(`(?m)^ExecStart=(\S+)(.*) \$(\w+)$`)
	file := regexp.MustCompile(`(?m)^EnvironmentFile=/etc/slicer/(.*)$`)
	for _, unit := range units {
		text := read(t, "systemd", filepath.Base(unit))
		m, f := start.FindStringSubmatch(text), file.FindStringSubmatch(text)
		if m == nil || f == nil {
			t.Fatalf("%s starts nothing by a file of flags", unit)
		}
		env := regexp.MustCompile(`(?m)^` + m[3] + `="(.*)"$`).FindStringSubmatch(read(t, "systemd", f[1]))
		if env == nil {
			t.Fatalf("%s does not set %s", f[1], m[3])
		}
		all = append(all, command{"systemd " + filepath.Base(unit), filepath.Base(m[1]), append(strings.Fields(m[2]), strings.Fields(env[1])...)})
	}
	return all
}

// TestFlags: each program has the flags that it is given, with values of their kind.
func TestFlags(t *testing.T) {
	t.Parallel()
	found := map[string]int{}
	for _, c := range commands(t) {
		where, _, _ := strings.Cut(c.where, " ")
		found[where]++
		if c.program == "etcd" || c.program == "server" || c.program == "client" {
			known(t, c) // their --help comes before what follows it
			continue
		}
		// All flags are read before --help counts.
		out, err := exec.CommandContext(t.Context(), build(t, c.program), append(slices.Clone(c.args), "--help")...).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %s %s: %v\n%s", c.where, c.program, strings.Join(c.args, " "), err, out)
		}
		if _, err := exec.CommandContext(t.Context(), build(t, c.program), append(slices.Clone(c.args), "--no-such", "--help")...).CombinedOutput(); err == nil {
			t.Errorf("%s: %s takes any flag", c.where, c.program)
		}
	}
	if found["kubernetes"] < 5 || found["compose"] < 12 || found["systemd"] != 5 {
		t.Errorf("too few commands: %v", found)
	}
}

// known looks for a program's flags in its help.
func known(t *testing.T, c command) {
	t.Helper()
	help, _ := exec.CommandContext(t.Context(), build(t, c.program), "-h").CombinedOutput() // 2 of Go's package flag
	for _, a := range c.args {
		name, _, _ := strings.Cut(strings.TrimLeft(a, "-"), "=")
		if strings.HasPrefix(a, "-") && !regexp.MustCompile(`(?m)^ *--?`+regexp.QuoteMeta(name)+`\b`).Match(help) {
			t.Errorf("%s: %s has no flag %s", c.where, c.program, name)
		}
	}
	if !strings.Contains(string(help), "\n") || regexp.MustCompile(`(?m)^ *--?no-such\b`).Match(help) {
		t.Errorf("the help of %s is\n%s", c.program, help)
	}
}

// TestTemplates: the chart's templates give no flag that the program does not have, whatever
// the values.
func TestTemplates(t *testing.T) {
	t.Parallel()
	flag := regexp.MustCompile(`(?m)^ *- --([a-z-]+)`)
	included := regexp.MustCompile(`include "(slicer\.[a-z]*[fF]lags)"`)
	helpers := read(t, "chart", "slicer", "templates", "_helpers.tpl")
	// whole is a template's text with that of all flags which it includes.
	var whole func(text string) string
	whole = func(text string) string {
		for _, m := range included.FindAllStringSubmatch(text, -1) {
			_, body, ok := strings.Cut(helpers, `define "`+m[1]+`"`)
			if !ok {
				t.Fatalf("the chart has no %s", m[1])
			}
			body, _, _ = strings.Cut(body, "{{- define")
			text += whole(body)
		}
		return text
	}
	for part, least := range map[string]int{"assigner": 7, "distributor": 7, "backupdist": 7, "slicerproxy": 7, "etcd": 1} {
		c := command{where: "template " + part, program: part}
		for _, m := range flag.FindAllStringSubmatch(whole(read(t, "chart", "slicer", "templates", part+".yaml")), -1) {
			c.args = append(c.args, "--"+m[1])
		}
		if len(c.args) < least {
			t.Errorf("template %s: only the flags %v", part, c.args)
		}
		known(t, c)
	}
}

// TestPorts: the ports of containers are those that programs listen on without a flag, but that
// --http is for the machine alone then, and probes and Prometheus come from elsewhere.
func TestPorts(t *testing.T) {
	t.Parallel()
	for _, o := range objects(t, "slicer.yaml") {
		for _, c := range o.Spec.Template.Spec.Containers {
			if c.program() == "etcd" || c.program() == "slicerctl" {
				continue // which have no default
			}
			help, err := exec.CommandContext(t.Context(), build(t, c.program()), "--help").Output()
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range c.Ports {
				flag, host := "listen", ""
				if p.Name == "http" {
					flag, host = "http", "localhost"
					if !slices.Contains(c.Args, fmt.Sprintf("--http=:%d", p.ContainerPort)) {
						t.Errorf("%s: --http does not open port %d to others", o.Metadata.Name, p.ContainerPort)
					}
				}
				if !regexp.MustCompile(fmt.Sprintf(`--%s .*\(default "%s:%d"\)`, flag, host, p.ContainerPort)).Match(help) {
					t.Errorf("%s: the port %s is %d, which is not the default of --%s", o.Metadata.Name, p.Name, p.ContainerPort, flag)
				}
			}
		}
	}
}

// TestTimeToEnd: what stops a server waits for longer than it takes to end.
func TestTimeToEnd(t *testing.T) {
	t.Parallel()
	seconds := func(file, pattern string) time.Duration {
		t.Helper()
		data, err := os.ReadFile(filepath.Join("..", "..", "..", file))
		if err != nil {
			t.Fatal(err)
		}
		m := regexp.MustCompile(pattern).FindSubmatch(data)
		if m == nil {
			t.Fatalf("%s has no %s", file, pattern)
		}
		n, err := strconv.Atoi(string(m[1]))
		if err != nil {
			t.Fatal(err)
		}
		return time.Duration(n) * time.Second
	}
	stop := seconds("cmd/internal/run/grpc.go", `StopLimit += (\d+) \* time\.Second`)
	const drain = time.Minute // sliceletgrpc.DrainTimeout
	for _, o := range objects(t, "slicer.yaml", "application.yaml") {
		if !o.runs() {
			continue
		}
		c := o.Spec.Template.Spec.Containers[0]
		takes := stop
		if c.program() == "server" {
			takes = drain
		}
		takes += time.Duration(c.Lifecycle.PreStop.Sleep.Seconds) * time.Second
		if grace := time.Duration(o.Spec.Template.Spec.Grace) * time.Second; grace <= takes {
			t.Errorf("%s is killed after %s, and may take %s to end", o.Metadata.Name, grace, takes)
		}
	}
	for _, unit := range []string{"slicer-assigner", "slicer-distributor", "slicer-backupdist", "slicer-serve", "slicerproxy"} {
		if limit := seconds("deploy/systemd/"+unit+".service", `TimeoutStopSec=(\d+)`); limit <= stop {
			t.Errorf("%s is killed after %s, and may take %s to end", unit, limit, stop)
		}
	}
}
