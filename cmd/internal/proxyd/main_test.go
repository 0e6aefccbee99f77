package proxyd_test

import (
	"testing"

	"github.com/spf13/cobra"

	"github.com/slicer-project/slicer/assignment/waittest"
	"github.com/slicer-project/slicer/cmd/internal/proxyd"
	"github.com/slicer-project/slicer/cmd/internal/run/runtest"
	"github.com/slicer-project/slicer/cmd/internal/serve"
)

func TestMain(m *testing.M) {
	runtest.Main(m, map[string]func() *cobra.Command{"slicerproxy": proxyd.Command, "serve": serve.Command})
}

// limit bounds every wait; nothing is asserted on it.
const limit = runtest.Limit

// eventually waits for something to be so.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	waittest.Eventually(t, limit, what, so)
}
