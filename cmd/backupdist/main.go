// Command backupdist serves assignments straight from the store when all else is dead. Its --help says how it is run.
package main

import (
	"os"

	"github.com/slicer-project/slicer/cmd/internal/backupd"
	"github.com/slicer-project/slicer/cmd/internal/run"
)

func main() { os.Exit(run.Main(backupd.Command())) }
