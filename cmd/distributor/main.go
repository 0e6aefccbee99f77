// Command distributor brings assignments to clerks and slicelets, and their health and
// load to assigners. Its --help says how it is run.
package main

import (
	"os"

	"github.com/slicer-project/slicer/cmd/internal/distributord"
	"github.com/slicer-project/slicer/cmd/internal/run"
)

func main() { os.Exit(run.Main(distributord.Command())) }
