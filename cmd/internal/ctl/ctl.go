// Package ctl is slicerctl, the operator's tool: it asks a Distributor about jobs, and
// changes them through it. Commands that only read assignments work against a Backup
// Distributor too.
//
// New returns the whole command; run.Execute runs it with any arguments and
// streams, which is how its tests do. Every command prints a table or sentences
// for people, or with --json one JSON value (watch: one a line) for programs.
package ctl

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/slicer-project/slicer/cmd/internal/plan"
	"github.com/slicer-project/slicer/cmd/internal/run"
)

// app is what the commands share.
type app struct {
	json    bool
	timeout time.Duration
	locator locator
}

// New returns slicerctl.
func New() *cobra.Command {
	a := &app{}
	cmd := &cobra.Command{
		Use:   "slicerctl",
		Short: "See and steer Slicer's jobs",
		Long: `slicerctl shows and changes Slicer's jobs by asking a Distributor. Commands that
only read (inspect, lookup, watch, probe, job get, job list) work against a Backup
Distributor too, without what only an assigner knows. simulate, subset and context need no
server, and store goes to the store itself. Where there are several control planes, name
them: slicerctl context --help.

Exit codes: 0 done; 1 refused or failed; 2 the command line is wrong; 3 there is
no such job, task, assignment or context; 4 the server cannot be reached or did not answer
in time; 5 an order is in force, but was not carried out, or not acknowledged by all
subscribers, in time; 6 store check has found faults; 7 status has found something that is
not well.`,
		Example: `  slicerctl status
  slicerctl job apply -f job.yaml
  slicerctl inspect my-job
  slicerctl lookup my-job user/4711
  slicerctl --server slicer.example.com:4720 watch my-job
  slicerctl simulate --trace access.log --tasks 10 --all
  source <(slicerctl completion bash)`,
	}
	a.locator.bind(cmd, net.JoinHostPort("localhost", strconv.Itoa(run.DistributorPort)))
	fs := cmd.PersistentFlags()
	fs.BoolVar(&a.json, "json", false, "print JSON instead of text")
	fs.DurationVar(&a.timeout, "timeout", 10*time.Second, "how long to wait for the server, such as 500ms or 1m")
	cmd.AddCommand(a.statusCommand(), a.topCommand(), a.jobCommand(), a.inspectCommand(), a.lookupCommand(), a.watchCommand(), a.drainCommand(), a.probeCommand(), a.assignersCommand())
	cmd.AddCommand(a.freezeCommand(), a.unfreezeCommand(), a.pinCommand(), a.unpinCommand(), a.excludeCommand(), a.includeCommand(),
		a.rollbackCommand(), a.historyCommand(), a.explainCommand(), a.storeCommand(), a.limitsCommand(), a.contextCommand(), a.accessCommand())
	cmd.AddCommand(plan.Simulate(&a.json), plan.Subset(&a.json))
	return cmd
}

// printJSON writes one value; indented, since people read it too.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// printLine writes one value on one line.
func printLine(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}
