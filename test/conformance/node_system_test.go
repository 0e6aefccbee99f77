//go:build system

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/slicer-project/slicer/test/conformance/suite"
)

// TestNode runs all checks against the clerk in node, which knows of the protocol what
// CONFORMANCE.md says. It needs npm.
func TestNode(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("node")); err != nil {
		t.Fatal(err)
	}
	install := exec.Command("npm", "install", "--no-audit", "--no-fund", "--ignore-scripts")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("npm install: %v\n%s", err, out)
	}
	t.Setenv("NODE_PATH", filepath.Join(dir, "node_modules"))
	c := suite.Config{Role: suite.Clerk, Command: []string{"node", filepath.Join("node", "clerk.js")}, Patience: patience, Parallel: 4}
	suite.Run(c, checksOf(suite.Clerk), func(r suite.Result) {
		if r.Outcome != suite.Passed && (r.Outcome != suite.Skipped || r.Check != "clerk/cache-file") {
			t.Error(r.Line())
		}
	})
}
