// Command slicer is the whole of Slicer in one process:
//
//	slicer demo     # watch it shard a service, lose a server, follow hot keys
//	slicer serve    # a control plane on an embedded store
//
// Its --help, and that of each command, says the rest.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/slicer-project/slicer/cmd/internal/demo"
	"github.com/slicer-project/slicer/cmd/internal/run"
	"github.com/slicer-project/slicer/cmd/internal/serve"
)

func main() {
	cmd := &cobra.Command{
		Use:   "slicer",
		Short: "Slicer in one process: a demonstration, or a control plane on an embedded store",
		Long: `slicer demo shows what Slicer does. slicer serve is a whole control plane for one
machine; the programs assigner, distributor and backupdist are its parts as
processes of their own, on etcd, for many.`,
		Example: `  slicer demo
  slicer serve`,
	}
	cmd.AddCommand(serve.Command(), demo.Command())
	os.Exit(run.Main(cmd))
}
