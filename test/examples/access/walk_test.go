//go:build system

package access

import (
	"crypto/x509"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/slicer-project/slicer/assignment/access"
	"github.com/slicer-project/slicer/assignment/certs"
	"github.com/slicer-project/slicer/test/kit/process"
)

func TestMain(m *testing.M) { os.Exit(process.Main(m)) }

// TestCommands runs the commands of OPERATIONS that make certificates.
func TestCommands(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", "docs", "OPERATIONS.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "**With openssl**")
	_, rest, begun := strings.Cut(rest, "```sh\n")
	commands, _, ended := strings.Cut(rest, "```")
	if !ok || !begun || !ended {
		t.Fatal("OPERATIONS.md has no commands for openssl")
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", commands)
	cmd.Dir = t.TempDir()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, want := range map[string]struct {
		id     string
		names  int
		usages []x509.ExtKeyUsage
	}{
		"slicer-1": {"spiffe://corp/ns/slicer/slicer-1", 3, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}},
		"ann":      {"spiffe://corp/user/sre/ann", 0, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}},
		"cache-3":  {"spiffe://corp/ns/cache/task/cache-3", 0, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}},
	} {
		file := func(ending string) string { return filepath.Join(cmd.Dir, name+ending) }
		source, err := certs.New(certs.Config{Cert: file(".pem"), Key: file(".key"), CA: filepath.Join(cmd.Dir, "ca.pem")})
		if err != nil {
			t.Fatal(err)
		}
		leaf := source.InUse()[0].Leaf
		if id := access.Of(leaf); string(id) != want.id || len(leaf.DNSNames)+len(leaf.IPAddresses) != want.names || !slices.Equal(leaf.ExtKeyUsage, want.usages) {
			t.Errorf("%s: identity %s, names %v %v, usages %v; want %+v", name, id, leaf.DNSNames, leaf.IPAddresses, leaf.ExtKeyUsage, want)
		}
	}
}

// TestWalk runs the walk. It needs openssl.
func TestWalk(t *testing.T) {
	for _, program := range []string{"slicer", "slicerctl"} {
		process.Build(t, program, "github.com/slicer-project/slicer/cmd/"+program)
	}
	out, err := exec.CommandContext(t.Context(), "./walk.sh", filepath.Dir(process.Program("slicer"))).CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
}
