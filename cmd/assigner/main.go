// Command assigner decides which task owns which keys and keeps that in etcd. Its --help says how it is run.
package main

import (
	"os"

	"github.com/slicer-project/slicer/cmd/internal/assignerd"
	"github.com/slicer-project/slicer/cmd/internal/run"
)

func main() { os.Exit(run.Main(assignerd.Command())) }
