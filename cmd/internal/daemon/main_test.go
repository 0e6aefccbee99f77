package daemon_test

import (
	"testing"

	"github.com/spf13/cobra"

	"github.com/slicer-project/slicer/cmd/internal/assignerd"
	"github.com/slicer-project/slicer/cmd/internal/backupd"
	"github.com/slicer-project/slicer/cmd/internal/distributord"
	"github.com/slicer-project/slicer/cmd/internal/run/runtest"
	"github.com/slicer-project/slicer/cmd/internal/serve"
)

var programs = map[string]func() *cobra.Command{
	"assigner": assignerd.Command, "distributor": distributord.Command, "backupdist": backupd.Command, "serve": serve.Command,
}

func TestMain(m *testing.M) { runtest.Main(m, programs) }

// limit bounds every wait; nothing is asserted on it.
const limit = runtest.Limit
