package house

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/slicer-project/slicer/assigner"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/access/enforce"
	"github.com/slicer-project/slicer/assignment/certs"
	"github.com/slicer-project/slicer/assignment/certs/certstest"
	"github.com/slicer-project/slicer/assignment/jobfile"
	"github.com/slicer-project/slicer/assignment/store/pebblestore"
	"github.com/slicer-project/slicer/backupdist"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/clerkgrpc"
	"github.com/slicer-project/slicer/clerk/clerkhttp"
	"github.com/slicer-project/slicer/distributor"
	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/lease/remote"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/slicelet/sliceletgrpc"
	"github.com/slicer-project/slicer/slicelet/slicelethttp"
	"github.com/slicer-project/slicer/test/kit/process"
)

// Parts of README and deploy/docs are made from the code, between markers, by
//
//	go test ./test/house -run Docs -update
//
// and the tests fail when they are out of date.
var update = flag.Bool("update", false, "rewrite the generated parts of README.md and deploy/docs")

// reference is the page of the tables.
const reference = "deploy/docs/REFERENCE.md"

// checkSection compares what stands between the markers of a section of a page with want.
func checkSection(t *testing.T, page, name, want string) {
	t.Helper()
	path := filepath.Join(root(t), page)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- begin "+name+" -->\n", "<!-- end "+name+" -->"
	text := string(data)
	i := strings.Index(text, begin)
	j := strings.Index(text, end)
	if i < 0 || j < i {
		t.Fatalf("%s has no section %q", page, name)
	}
	i += len(begin)
	if text[i:j] == want {
		return
	}
	if !*update {
		t.Fatalf("%s: %s are out of date: run go test ./test/house -run Docs -update\nwant:\n%s", page, name, want)
	}
	if err := os.WriteFile(path, []byte(text[:i]+want+text[j:]), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestDocsExamples(t *testing.T) {
	for _, library := range []string{"slicelet", "clerk"} {
		checkSection(t, "README.md", library+" example", "```go\n"+exampleBody(t, filepath.Join(root(t), library, "example_test.go"))+"```\n")
	}
}

// exampleBody returns the statements of a file's Example, one tab less deep.
func exampleBody(t *testing.T, path string) string {
	t.Helper()
	src, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, src, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Name.Name == "Example" {
			body := string(src[fset.Position(f.Body.Lbrace).Offset+2 : fset.Position(f.Body.Rbrace).Offset])
			if n := strings.Count(body, "\n"); n > 20 {
				t.Errorf("%s: Example has %d lines; README promises 20", path, n)
			}
			return strings.ReplaceAll("\n"+body, "\n\t", "\n")[1:]
		}
	}
	t.Fatalf("%s has no Example", path)
	return ""
}

func TestDocsFlags(t *testing.T) {
	bin := t.TempDir()
	var programs []string
	for _, name := range []string{"assigner", "distributor", "backupdist", "slicer", "slicerctl", "slicerproxy"} {
		programs = append(programs, module+"/cmd/"+name)
	}
	process.BuildIn(t, bin, programs...)
	var sb strings.Builder
	for _, program := range [][]string{{"assigner"}, {"distributor"}, {"backupdist"}, {"slicerproxy"}, {"slicer", "serve"}, {"slicer", "demo"}, {"slicerctl"}} {
		out, err := exec.Command(filepath.Join(bin, program[0]), append(program[1:], "--help")...).Output()
		if err != nil {
			t.Fatalf("%v: %v", program, err)
		}
		_, flags, ok := strings.Cut(string(out), "\nFlags:\n")
		if !ok {
			t.Fatalf("%v --help shows no flags", program)
		}
		flags, _, _ = strings.Cut(flags, "\nUse \"")
		fmt.Fprintf(&sb, "`%s`\n\n```text\n%s\n```\n\n", strings.Join(program, " "), strings.TrimRight(flags, "\n"))
	}
	checkSection(t, reference, "flags", sb.String())
	t.Run("usage", func(t *testing.T) { testUsage(t, bin) })
}

// TestDocsJobConfig holds the table of a job's config to its fields, in their order, and
// to their defaults where these are values.
func TestDocsJobConfig(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(root(t), reference))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(data), "\n## Job config\n")
	table, _, _ = strings.Cut(table, "\n## ")
	var rows [][]string
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_.]+)` \\| ([^|]*) \\| ([^|]*) \\| .+ \\|$").FindAllStringSubmatch(table, -1) {
		rows = append(rows, m[1:])
	}
	base := assignment.JobConfig{Name: "j"}.WithDefaults()
	fields := append(jobfile.Changes(assignment.JobConfig{}, base), jobfile.Changes(assignment.JobConfig{}, assignment.JobConfig{Zone: "z", Store: "s"})...)
	if len(rows) != len(fields) {
		t.Errorf("the table has %d fields, a config %d", len(rows), len(fields))
	}
	for _, f := range fields {
		i := slices.IndexFunc(rows, func(r []string) bool { return r[0] == f.Field })
		if i < 0 {
			t.Errorf("the table does not have %s", f.Field)
			continue
		}
		switch said := strings.Trim(rows[i][1], "`"); {
		case strings.Contains(said, " ") || said == "required" || said == "none":
		case !sameValue(said, f.To):
			t.Errorf("%s: the table says that the default is %s; it is %s", f.Field, said, f.To)
		}
	}
}

// sameValue reports whether two texts stand for one number, duration or word.
func sameValue(a, b string) bool {
	if x, err := strconv.ParseFloat(a, 64); err == nil {
		y, err := strconv.ParseFloat(b, 64)
		return err == nil && x == y
	}
	if x, err := time.ParseDuration(a); err == nil {
		y, err := time.ParseDuration(b)
		return err == nil && x == y
	}
	return a == b
}

// describer notes what is registered.
type describer struct {
	mu   sync.Mutex
	rows map[string]string // of the table, by name
}

var descPattern = regexp.MustCompile(`fqName: "([^"]+)", help: "((?:[^"\\]|\\.)*)", (?:unit: "[^"]*", )?constLabels: {.*}, variableLabels: {([^}]*)}`)

func (d *describer) Register(c prometheus.Collector) error {
	ch := make(chan *prometheus.Desc)
	go func() { c.Describe(ch); close(ch) }()
	d.mu.Lock()
	defer d.mu.Unlock()
	for desc := range ch {
		m := descPattern.FindStringSubmatch(desc.String())
		if m == nil {
			return fmt.Errorf("cannot read %s", desc)
		}
		labels := ""
		if m[3] != "" {
			labels = "`" + strings.Join(strings.FieldsFunc(m[3], func(r rune) bool { return r == ',' || r == ' ' }), "`, `") + "`"
		}
		d.rows[m[1]] = fmt.Sprintf("| `%s` | %s | %s |\n", m[1], labels, m[2])
	}
	return nil
}

func (d *describer) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		if err := d.Register(c); err != nil {
			panic(err)
		}
	}
}

func (d *describer) Unregister(prometheus.Collector) bool { return true }

func TestDocsMetrics(t *testing.T) {
	d := &describer{rows: map[string]string{}}
	st, err := pebblestore.Open(t.TempDir(), pebblestore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	nobody := []string{"127.0.0.1:1"}
	conn, err := grpc.NewClient(nobody[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	parts := []func() (interface{ Close() error }, error){
		func() (interface{ Close() error }, error) {
			return assigner.New(assigner.Config{ID: "a", Address: "127.0.0.1:1", Stores: []assigner.NamedStore{{Name: "default", Backend: st}}, Registerer: d})
		},
		func() (interface{ Close() error }, error) {
			return distributor.New(distributor.Config{ID: "d", Assigners: nobody, Registerer: d})
		},
		func() (interface{ Close() error }, error) {
			return backupdist.New(backupdist.Config{Store: st, Registerer: d})
		},
		func() (interface{ Close() error }, error) {
			_, err := certs.New(certs.Config{CA: certstest.NewAuthority(t, "ours").CA, Registerer: d})
			return io.NopCloser(nil), err
		},
		func() (interface{ Close() error }, error) {
			return clerk.New(clerk.Config{Job: "j", Distributors: nobody, Registerer: d})
		},
		func() (interface{ Close() error }, error) {
			return slicelet.New(slicelet.Config{Job: "j", Task: "t", Address: "127.0.0.1:1", Distributors: nobody, Registerer: d})
		},
		func() (interface{ Close() error }, error) {
			return lease.NewReader(lease.Config{Readers: remote.New(conn), Registerer: d})
		},
		func() (interface{ Close() error }, error) {
			return clerkhttp.NewProxy(clerkhttp.ProxyConfig{
				Rules: clerkhttp.Rules{List: []clerkhttp.Rule{{Job: "j"}}}, Registerer: d,
				Clerk: func(job string) (*clerk.Clerk, error) { return clerk.New(clerk.Config{Job: job, Distributors: nobody}) },
			})
		},
		func() (interface{ Close() error }, error) {
			s, err := slicelet.New(slicelet.Config{Job: "j", Task: "t", Address: "127.0.0.1:1", Distributors: nobody})
			if err == nil {
				_, err = slicelethttp.Handler(s, http.NotFoundHandler(), slicelethttp.Config{Registerer: d})
				sliceletgrpc.ServerOptions(s, sliceletgrpc.Config{Registerer: d})
			}
			return s, err
		},
		func() (interface{ Close() error }, error) {
			lis, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return nil, err
			}
			return sliceletgrpc.Listener(lis, nil, sliceletgrpc.ListenerConfig{Registerer: d})
		},
		func() (interface{ Close() error }, error) {
			conn, err := grpc.NewClient("slicer:///j", append(clerkgrpc.DialOptions(clerkgrpc.Config{
				Clerk: clerk.Config{Distributors: nobody, Registerer: d},
			}), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
			if err == nil {
				conn.Connect() // makes the clerk
			}
			return conn, err
		},
	}
	if _, err := enforce.New(enforce.Config{Registerer: d}); err != nil {
		t.Fatal(err)
	}
	for _, start := range parts {
		p, err := start()
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	var rows []string
	for _, name := range slices.Sorted(maps.Keys(d.rows)) {
		rows = append(rows, d.rows[name])
	}
	if len(rows) < 20 {
		t.Fatalf("only %d metrics were registered", len(rows))
	}
	checkSection(t, reference, "metrics", "| metric | labels | what it is |\n| --- | --- | --- |\n"+strings.Join(rows, ""))
}
