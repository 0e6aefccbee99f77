// Command slicerctl shows and changes Slicer's jobs by asking a Distributor:
//
//	slicerctl job apply -f job.yaml
//	slicerctl inspect my-job
//	slicerctl lookup my-job user/4711
//	slicerctl watch my-job
//	slicerctl drain my-job web-3
//
// Its --help, and that of each command, says the rest.
package main

import (
	"os"

	"github.com/slicer-project/slicer/cmd/internal/ctl"
	"github.com/slicer-project/slicer/cmd/internal/run"
)

func main() { os.Exit(run.Main(ctl.New())) }
