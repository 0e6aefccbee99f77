//go:build system

package access

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/slicer-project/slicer/test/kit/process"
)

func TestMain(m *testing.M) { os.Exit(process.Main(m)) }

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
