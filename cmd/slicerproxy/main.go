// Command slicerproxy is an HTTP front end: a reverse proxy that sends each request
// to the task that owns its key, which rules in a file find. Its --help says how it
// is run.
package main

import (
	"os"

	"github.com/slicer-project/slicer/cmd/internal/proxyd"
	"github.com/slicer-project/slicer/cmd/internal/run"
)

func main() { os.Exit(run.Main(proxyd.Command())) }
