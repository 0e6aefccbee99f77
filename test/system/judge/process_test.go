package judge

import (
	"os"
	"testing"

	"github.com/slicer-project/slicer/test/kit/process"
)

func TestMain(m *testing.M) { os.Exit(process.Main(m)) }

const actor = "github.com/slicer-project/slicer/test/system/judge/actor"

// needBinaries builds etcd and ours.
func needBinaries(t *testing.T) {
	t.Helper()
	process.BuildSlicer(t)
	process.Build(t, "actor", actor)
}

// needSabotage builds slicelets that can be told to ignore their deadline.
func needSabotage(t *testing.T) {
	t.Helper()
	process.Build(t, "actor-sabotage", actor, "sabotage")
	process.Build(t, "assigner-sabotage", "github.com/slicer-project/slicer/cmd/assigner", "sabotage")
}
