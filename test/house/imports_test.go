// Package house checks the rules that the whole repository keeps: which packages may
// import which, and what may stand at the top.
package house

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/slicer-project/slicer"

// mayImport says, for each folder, which of our folders its packages may
// import besides their own. The longest folder that fits a package counts.
var mayImport = map[string][]string{
	"assignment":            {},
	"assignment/jobfile":    {"assignment"},
	"assignment/wire":       {"assignment", "proto"},
	"assignment/certs":      {"assignment"},
	"assignment/store":      {"assignment", "assignment/wire", "proto"},
	"assignment/subscriber": {"assignment", "assignment/wire", "proto"},
	"loadbalance":           {"assignment", "loadbalance/overload"},
	"loadbalance/overload":  {"assignment"},
	"lease":                 {"assignment", "assignment/wire", "proto"},
	"lease/etcd":            {"assignment", "assignment/wire", "lease", "proto"},
	"lease/front":           {"assignment", "assignment/wire", "lease", "lease/etcd", "proto"},
	"lease/serve":           {"assignment", "assignment/wire", "lease", "proto"},
	"proto":                 {},
	"assigner":              {"assignment", "assignment/wire", "assignment/store", "assignment/jobfile", "lease", "loadbalance", "loadbalance/overload", "proto"},
	"distributor":           {"assignment", "assignment/wire", "loadbalance/overload", "proto"},
	"backupdist":            {"assignment", "assignment/wire", "assignment/store", "proto"},
	"clerk":                 {"assignment", "assignment/certs", "assignment/wire", "assignment/subscriber", "loadbalance", "loadbalance/overload", "proto"},
	"slicelet":              {"assignment", "assignment/certs", "assignment/wire", "assignment/subscriber", "loadbalance", "loadbalance/overload", "lease", "proto"},
	"cmd":                   {"*"},
	"deploy":                {"*"},
	"test":                  {"*"},
}

// mustNotLink says what the programs of our users must not carry.
var mustNotLink = map[string][]string{
	"clerk": {"go.etcd.io/", "github.com/cockroachdb/", "github.com/spf13/"},
	"slicelet": {"go.etcd.io/", "github.com/cockroachdb/", "github.com/spf13/",
		module + "/lease/etcd", module + "/lease/serve", module + "/lease/remote"},
	"assignment/subscriber": {"go.etcd.io/", "github.com/cockroachdb/", "github.com/spf13/"},
	"assignment/certs":      {"go.etcd.io/", "github.com/cockroachdb/", "github.com/spf13/", "go.yaml.in/"},
	"backupdist":            {module + "/assigner", module + "/distributor", "github.com/cockroachdb/", "go.etcd.io/"},
	"distributor":           {module + "/assigner", "go.etcd.io/", "github.com/cockroachdb/"},
	"lease":                 {"go.etcd.io/", "github.com/cockroachdb/"},
	"lease/remote":          {"go.etcd.io/", "github.com/cockroachdb/"},
	"loadbalance":           {"google.golang.org/grpc", "go.etcd.io/", "github.com/cockroachdb/"},
	"assignment":            {"google.golang.org/", "go.etcd.io/", "github.com/cockroachdb/", "go.yaml.in/"},
	"test/slicertest": {"go.etcd.io/", "github.com/cockroachdb/", "github.com/spf13/",
		module + "/assigner", module + "/distributor", module + "/lease/etcd"},
}

type goPackage struct {
	ImportPath string
	Imports    []string
	Deps       []string
}

func listPackages(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps=false", "-json=ImportPath,Imports,Deps", module+"/...")
	cmd.Dir = root(t)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var all []goPackage
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

func root(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Dir(strings.TrimSpace(string(out)))
}

// room finds the longest folder of rules that holds the package.
func room[V any](rules map[string]V, rel string) (folder string, ok bool) {
	for f := range rules {
		if (rel == f || strings.HasPrefix(rel, f+"/")) && len(f) > len(folder) {
			folder, ok = f, true
		}
	}
	return folder, ok
}

func TestImports(t *testing.T) {
	packages := listPackages(t)
	if len(packages) < 10 {
		t.Fatalf("go list found %d packages: the test looks in the wrong place", len(packages))
	}
	for _, p := range packages {
		rel := strings.TrimPrefix(p.ImportPath, module+"/")
		folder, ok := room(mayImport, rel)
		if !ok {
			t.Errorf("%s stands in no folder of the house", rel)
			continue
		}
		allowed := mayImport[folder]
		for _, imp := range p.Imports {
			other, ours := strings.CutPrefix(imp, module+"/")
			if !ours || slices.Contains(allowed, "*") {
				continue
			}
			if to, _ := room(mayImport, other); to != folder && !slices.Contains(allowed, to) {
				t.Errorf("%s imports %s; packages of %s may import only %v", rel, other, folder, allowed)
			}
		}
		if folder, ok := room(mustNotLink, rel); ok && folder == rel {
			for _, dep := range p.Deps {
				for _, bad := range mustNotLink[folder] {
					if strings.HasPrefix(dep, bad) {
						t.Errorf("%s links %s", rel, dep)
					}
				}
			}
		}
	}
}

func TestTopLevel(t *testing.T) {
	want := []string{"assigner", "distributor", "backupdist", "clerk", "slicelet", "assignment", "lease", "loadbalance",
		"proto", "cmd", "deploy", "test", "go.mod", "go.sum", "README.md"}
	entries, err := os.ReadDir(root(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") && !slices.Contains(want, e.Name()) {
			t.Errorf("%s stands at the top; only %v and dotfiles may", e.Name(), want)
		}
	}
}
