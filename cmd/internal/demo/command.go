package demo

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/slicer-project/slicer/cmd/internal/run"
	"github.com/slicer-project/slicer/cmd/internal/screen"
)

// Command returns "slicer demo".
func Command() *cobra.Command {
	var c Config
	cmd := &cobra.Command{
		Use:   "demo [flags]",
		Short: "Watch Slicer shard a service, follow hot keys, lose a server, drain one, add one",
		Long: `Runs all of Slicer in this process, over real gRPC connections on the loopback
interface: a control plane on an embedded store, cache servers, and clients that
call them with keys of which a few are very hot. The hot keys shift, a server is
killed without a drain, another is drained, one is added. No file is left when it ends.

A client calls a task that owns the key; if that does not answer, one other, once.
Availability is the share of calls answered within a second. Imbalance is the
largest load of a server over the mean, as the clients measured it.

The line at the start says where the status page is: open it in a browser, and watch the
keyspace change owners.

Exits with 0 if availability is at least 0.9998, the drain lost no call, the
imbalance fell from above 2 (with 8 servers or more) to at most 1.3, and everything
that was to happen did; otherwise with 1 and the reason. With --trace, whose load
may be impossible to even out, the imbalance is reported but not judged. Malformed lines
of an access log are left out and counted on standard error; if they are more than
ten and more than 1%, the demo does not begin.

With --consistent the servers hold leases: at most one believes that it owns a key,
whatever happens. They refuse keys that are not theirs, and clients ask again. The
keys of the server that is killed have no owner until its lease has run out; calls
that this costs are told apart and not held against availability. A key cannot be
on several servers, so the hot keys are less hot, and the imbalance is judged only
if they allow it. The run fails if any key was seen with two owners.

--overload shows another scene: for five seconds there are ten times as many calls, of
all criticalities, of which the servers could answer two fifths. They refuse the least
critical, clients hold back what would be refused, and the summary tells what share of
each criticality was answered. Availability is judged without the flood, of whose
critical_plus calls at least 0.9 must have been answered; imbalance is not judged.

--json prints one JSON object a line: one each second, and a last one of the form
{"summary": {...}}.`,
		Example: `  slicer demo
  slicer demo --duration 2m --tasks 16 --clients 8 --qps 5000
  slicer demo --consistent
  slicer demo --overload
  slicer demo --duration 30s --json | tail -n 1
  slicer demo --trace access.log --duration 1m
  slicerctl --server ADDRESS inspect demo    # with the address that the demo prints`,
		Args: run.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.durationSet = cmd.Flags().Changed("duration")
			if c.Trace != "" && cmd.Flags().Changed("qps") {
				return run.Usagef("--qps: not with --trace, which brings its own load")
			}
			if c.Overload && !cmd.Flags().Changed("qps") {
				c.QPS = overloadQPS
			}
			var size func() (int, int)
			if !c.JSON {
				size = screen.Size(cmd.OutOrStdout())
			}
			c.Warn = func(s string) { fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", cmd.Root().Name(), s) }
			_, err := Run(cmd.Context(), c, cmd.OutOrStdout(), size)
			return err
		},
	}
	fs := cmd.Flags()
	fs.DurationVar(&c.Duration, "duration", 30*time.Second, "how long to run, at least 10s, 20s with --overload, 30s with --consistent; the script is spread over it")
	fs.IntVar(&c.Tasks, "tasks", 8, "cache servers at the start, 3 to 200")
	fs.IntVar(&c.Clients, "clients", 4, "clients, 1 to 200")
	fs.IntVar(&c.QPS, "qps", 1000, "calls a second by all clients together, 100 to 200000; 200 unless given with --overload")
	fs.Uint64Var(&c.Seed, "seed", 1, "seed of keys, arrival times and choice of servers")
	fs.StringVar(&c.Trace, "trace", "", "replay `FILE` as the load: CSV or .csv.gz of unix_ms,key,load, or an Apache or nginx access log")
	fs.Float64Var(&c.Speed, "speed", 0, "how many times as fast as recorded to replay the trace; 0 fits it into --duration")
	fs.BoolVar(&c.Consistent, "consistent", false, "run the job in consistent mode, for at least 30s")
	fs.BoolVar(&c.Overload, "overload", false, "show what ten times as many calls for five seconds do, and nothing else; at least 20s")
	fs.BoolVar(&c.JSON, "json", false, "print JSON lines alone")
	fs.StringVar(&c.Listen, "listen", "127.0.0.1:0", "`host:port` of the distributor; port 0 takes a free one")
	fs.StringVar(&c.HTTP, "http", "127.0.0.1:0", "`host:port` of the status page, for a browser; port 0 takes a free one, empty is none")
	return cmd
}
